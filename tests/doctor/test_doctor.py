"""The doctor: what it finds on machines that are made up, and on this one."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aioice import stun
from typer.testing import CliRunner

from avatar_server import cli
from avatar_server.capacity.demand import Resource
from avatar_server.config import Settings, settings_from_values
from avatar_server.doctor import Check, failed, guarded, hardware, network, passed, software
from avatar_server.doctor.examine import Diagnosis
from avatar_server.doctor.hardware import GpuFound, has_video_encoder
from avatar_server.doctor.room import ADVICE, Room
from tests.renderers.neural.tiny_network import network_bytes, write_avatar


def settings(**values: Any) -> Settings:
    return settings_from_values(values)


def only(checks: Iterator[Check], name: str) -> Check:
    return next(check for check in checks if check.name == name)


def test_a_fix_belongs_to_what_failed_and_to_nothing_else() -> None:
    assert passed("a", "b").fix == ""
    with pytest.raises(ValueError, match="fix"):
        Check("a", True, "b", "do it")
    with pytest.raises(ValueError, match="fix"):
        failed("a", "b", "")


def test_a_check_that_breaks_is_a_failed_check() -> None:
    def broken() -> Iterator[Check]:
        yield passed("first", "fine")
        raise OSError("no such thing")

    (check,) = guarded("probe", broken)
    assert not check.ok
    assert "no such thing" in check.found


def machine(root: Path, flags: str = "fpu avx2 avx512f", free_kb: int = 8 << 20) -> Path:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/cpuinfo").write_text(f"model name\t: A Processor\nflags\t\t: {flags}\n")
    (root / "proc/meminfo").write_text(f"MemTotal: {16 << 20} kB\nMemAvailable: {free_kb} kB\n")
    (root / "proc/self/cgroup").write_text("0::/\n")
    (root / "sys/fs/cgroup").mkdir(parents=True)
    return root


def test_a_processor_without_avx2_is_told_with_what_to_do(tmp_path: Path) -> None:
    check = only(hardware.cpu(machine(tmp_path, flags="fpu sse2")), "vector units")
    assert not check.ok
    assert "AVX2" in check.fix


def test_avx2_and_more_will_do(tmp_path: Path) -> None:
    check = only(hardware.cpu(machine(tmp_path)), "vector units")
    assert (check.ok, check.found) == (True, "avx2, avx512f")


def test_one_core_is_too_few_even_where_the_machine_has_more(tmp_path: Path) -> None:
    root = machine(tmp_path)
    (root / "sys/fs/cgroup/cpu.max").write_text("100000 100000\n")
    check = only(hardware.cpu(root), "cpu")
    assert not check.ok
    assert "1 core" in check.found
    assert "2 cores" in check.fix


def test_little_free_memory_is_told(tmp_path: Path) -> None:
    low = only(hardware.memory(machine(tmp_path, free_kb=1 << 20)), "memory")
    assert not low.ok
    assert low.found == "1.0 of 16.0 GiB free"


H100 = GpuFound("NVIDIA H100 80GB HBM3", 81_559, "575.57", "9.0")


def test_a_gpu_is_described_and_an_h100_has_no_video_encoder() -> None:
    found = list(hardware.gpu(settings(), [H100]))
    assert found[0].found == (
        "NVIDIA H100 80GB HBM3, 79.6 GiB, driver 575.57, compute capability 9.0"
    )
    assert found[1].name == "gpu video encoder"
    assert "encoded on the CPU" in found[1].found
    assert all(check.ok for check in found)


@pytest.mark.parametrize(
    ("name", "has"),
    [
        ("NVIDIA H100 80GB HBM3", False),
        ("NVIDIA A100-SXM4-80GB", False),
        ("NVIDIA H200", False),
        ("NVIDIA L40S", True),
        ("NVIDIA L4", True),
        ("NVIDIA GeForce RTX 4090", True),
        ("Tesla T4", True),
        ("NVIDIA A10", True),
    ],
)
def test_which_gpus_encode_video(name: str, has: bool) -> None:
    assert has_video_encoder(name) is has


def test_a_configuration_that_wants_a_gpu_says_so_where_there_is_none() -> None:
    assert only(hardware.gpu(settings(), []), "gpu").ok
    check = only(hardware.gpu(settings(stt={"device": "cuda"}), []), "gpu")
    assert not check.ok
    assert "speech to text on a GPU" in check.fix
    assert "--gpus all" in check.fix


def test_every_encoder_of_this_installation_opens() -> None:
    checks = list(software.codecs())
    assert [check.name for check in checks] == ["codec libx264", "codec libvpx", "codec libopus"]
    assert all(check.ok for check in checks), checks


def test_the_packages_of_this_installation_will_do() -> None:
    assert all(check.ok for check in software.python())


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "importlib.metadata.requires", lambda name: ["no-such-package>=3", "numpy<0.1"]
    )
    check = only(software.python(), "packages")
    assert not check.ok
    assert "no-such-package is missing" in check.found
    assert "wanted <0.1" in check.found


def test_missing_and_changed_models_are_told_apart(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AVATAR_SERVER_CACHE", str(tmp_path))
    monkeypatch.setattr(software, "default_models", lambda settings: ["whisper-tiny.en"])
    missing = only(software.models(settings()), "model whisper-tiny.en")
    assert "avatar-server models fetch whisper-tiny.en" in missing.fix
    monkeypatch.setattr(software.ModelStore, "missing", lambda self, names: [])
    monkeypatch.setattr(software.ModelStore, "verify", lambda self, name: False)
    changed = only(software.models(settings()), "model whisper-tiny.en")
    assert "have changed" in changed.found


def test_a_clock_of_the_past_is_told() -> None:
    assert not only(software.clock(1_000_000_000.0), "clock").ok
    assert only(software.clock(1_800_000_000.0), "clock").ok


def test_a_folder_that_cannot_be_written_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AVATAR_SERVER_CACHE", str(tmp_path / "new" / "cache"))
    monkeypatch.setattr("os.access", lambda path, mode: False)
    check = only(software.files(), "cache folder")
    assert not check.ok
    assert "AVATAR_SERVER_CACHE" in check.fix


def test_recordings_that_could_not_be_written_are_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")

    def look(**recording: Any) -> Check:
        (check,) = software.recordings(settings_from_values({"recording": recording}))
        return check

    assert look().ok
    folder = str(tmp_path / "new")
    assert look(enabled=True, folder=folder, keep_free_gb=0).ok
    full = look(enabled=True, folder=folder, keep_free_gb=1e6)
    assert not full.ok
    assert "recording.keep_free_gb" in full.fix
    blocked = look(enabled=True, folder=str(tmp_path / "file" / "new"))
    assert not blocked.ok
    assert "recording.folder" in blocked.fix


def test_few_open_files_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda what: (256, 1_048_576))
    check = only(software.files(), "open files")
    assert not check.ok
    assert "ulimit -n 4096" in check.fix


def test_a_taken_port_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        check = only(network.http_port(settings(http={"port": port})), "http port")
    assert not check.ok
    assert "--port" in check.fix


def test_a_range_with_too_few_free_ports_is_told() -> None:
    assert only(network.udp_ports(settings()), "udp ports").ok
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("", 0))
        port = taken.getsockname()[1]
        media, sessions = {"udp_ports": f"{port}"}, {"max_viewers": 1}
        check = only(network.udp_ports(settings(media=media, sessions=sessions)), "udp ports")
    assert not check.ok
    assert "0 of 1 free" in check.found
    assert "media.udp_ports" in check.fix


def test_opening_to_others_without_tls_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AVATAR_SERVER_DATA", str(tmp_path))
    assert only(network.addresses(settings()), "addresses").ok
    check = only(network.addresses(settings(http={"host": "0.0.0.0"})), "addresses")
    assert not check.ok
    assert "http.tls_certificate" in check.fix


class StunServer(threading.Thread):
    """Answers binding requests; the first `lose` datagrams are dropped."""

    def __init__(self, lose: int = 0, answer: bytes | None = None) -> None:
        super().__init__(daemon=True)
        self._lose, self._answer = lose, answer
        self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.udp.bind(("127.0.0.1", 0))
        self.port = self.udp.getsockname()[1]
        self.start()

    def run(self) -> None:
        while True:
            try:
                data, address = self.udp.recvfrom(2_048)
            except OSError:
                return
            if self._lose:
                self._lose -= 1
                continue
            request = stun.parse_message(data)
            answer = stun.Message(stun.Method.BINDING, stun.Class.RESPONSE, request.transaction_id)
            self.udp.sendto(self._answer or bytes(answer), address)


def test_a_stun_server_that_answers_is_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "TIMEOUT_S", 0.3)
    server = StunServer(lose=2)
    assert network.unreachable(f"stun:127.0.0.1:{server.port}") is None
    assert network.unreachable(f"turn:127.0.0.1:{server.port}?transport=udp") is None
    server.udp.close()


def test_silence_strangers_and_unknown_names_are_told_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(network, "TIMEOUT_S", 0.05)
    silent = StunServer(lose=100)
    assert "no answer" in (network.unreachable(f"stun:127.0.0.1:{silent.port}") or "")
    monkeypatch.setattr(network, "TIMEOUT_S", 2.0)
    stranger = StunServer(answer=b"hello")
    said = network.unreachable(f"stun:127.0.0.1:{stranger.port}")
    assert said == "something else answers there"
    assert "name is not known" in (network.unreachable("stun:no-such-host.invalid") or "")
    assert "refused" in (network.unreachable("turn:127.0.0.1:1?transport=tcp") or "").lower()
    assert network.unreachable("http:127.0.0.1") == "not an address of a STUN or TURN server"
    silent.udp.close()
    stranger.udp.close()


def test_there_is_advice_for_every_resource_that_may_bind() -> None:
    assert set(ADVICE) == set(Resource)


def test_the_json_has_what_programs_expect() -> None:
    found = Diagnosis(
        [failed("a", "b", "c"), passed("d", "e")], Room(3, "cpu", "Three.", ["More."])
    )
    assert not found.ok
    assert found.as_json() == {
        "checks": [
            {"name": "a", "ok": False, "found": "b", "fix": "c"},
            {"name": "d", "ok": True, "found": "e", "fix": ""},
        ],
        "sessions": 3,
        "binding": "cpu",
        "verdict": "Three.",
        "advice": ["More."],
    }


def test_the_command_examines_this_machine() -> None:
    result = CliRunner(env={"COLUMNS": "160"}).invoke(
        cli.app, ["doctor", "--json", "--set", "http.port=0", "--quick"]
    )
    assert result.exit_code in (0, 1), result.output
    document = json.loads(result.output)
    assert set(document) >= {"checks", "sessions", "binding"}
    names = {check["name"] for check in document["checks"]}
    assert {"python", "cpu", "memory", "gpu", "graphics", "clock", "open files"} <= names
    assert all(set(check) == {"name", "ok", "found", "fix"} for check in document["checks"])
    assert all(bool(check["fix"]) != check["ok"] for check in document["checks"])


def test_the_command_says_it_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    room = Room(2, "cpu", "This machine has room for 2 sessions.", ["Give it more CPU cores."])
    diagnosis = Diagnosis([failed("cpu", "1 core", "Give it two."), passed("clock", "fine")], room)
    monkeypatch.setattr("avatar_server.doctor.examine", lambda settings, measure: diagnosis)
    result = CliRunner(env={"COLUMNS": "160", "TERM": "dumb"}).invoke(cli.app, ["doctor"])
    assert result.exit_code == 1
    assert "Give it two." in result.output
    assert "1 thing is not as it should be" in result.output
    assert "room for 2 sessions" in result.output


def test_lip_sync_networks_are_tried_and_what_is_wrong_with_one_is_told(tmp_path: Path) -> None:
    write_avatar(tmp_path / "fine")
    write_avatar(tmp_path / "wrong", network_bytes(face_channels=3))
    write_avatar(tmp_path / "small", face={"x": 10, "y": 10, "width": 20, "height": 30})
    checks = list(software.avatars(settings(avatar_dirs=[str(tmp_path)])))
    assert only(iter(checks), "avatar fine").found.startswith("lip-sync network of 96 px, on ")
    for name, says in (("wrong", "[N, 6, size, size]"), ("small", "20x30 pixels")):
        check = only(iter(checks), f"avatar {name}")
        assert not check.ok
        assert says in check.fix
