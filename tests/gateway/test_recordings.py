"""Recordings as operators see them: listed, given out, and deleted, also by their age."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from avatar_server import cli
from avatar_server.config import RecordingSettings, settings_from_values
from avatar_server.gateway.retention import Retention
from avatar_server.recording import files
from avatar_server.recording.store import RecordingInUse, RecordingStore
from avatar_server.security import AuditLog
from tests.gateway.serving import StartServer
from tests.gateway.support import GatewayFactory

DAY_S = 86_400.0
NOW = 1_800_000_000.0


def make(
    parent: Path, began: float = NOW, *, session: str = "abc", size: int = 1_000, ended: bool = True
) -> str:
    """A recording with a movie of `size` bytes that was written last a minute after it `began`."""
    folder = files.make_folder(parent, session, began)
    for name in files.FILES[:3]:
        with files.open_private(folder / name) as file:
            file.write(b"x" * size if name == files.MOVIE else b"WEBVTT\n\n")
    about = files.About(
        id=folder.name, session=session, avatar="theo", title="Theo", began=files.utc(began),
        ended=files.utc(began + 60) if ended else None, duration_s=60.0 if ended else 0.0,
    )  # fmt: skip
    files.write_about(folder, about)
    for path in folder.iterdir():
        os.utime(path, (began + 60, began + 60))
    return folder.name


def test_what_is_too_old_goes_first_and_then_the_oldest_of_too_much(tmp_path: Path) -> None:
    store = RecordingStore(tmp_path)
    ancient = make(tmp_path, NOW - 40 * DAY_S, size=600_000)
    older = make(tmp_path, NOW - 3 * DAY_S, size=600_000)
    newer = make(tmp_path, NOW - 2 * DAY_S, size=600_000)
    settings = RecordingSettings(keep_days=30, keep_gb=0.001)
    gone = store.sweep(settings, NOW)
    assert [deletion.id for deletion in gone] == [ancient, older]
    assert "keep_days" in gone[0].why
    assert "keep_gb" in gone[1].why
    assert [recording.id for recording in store.all()] == [newer]
    assert store.sweep(settings, NOW) == []
    for_ever = RecordingSettings(keep_days=None, keep_gb=None)
    assert store.sweep(for_ever, NOW + 10_000 * DAY_S) == []


def test_one_that_cannot_be_deleted_keeps_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck, other = make(tmp_path, NOW - 50 * DAY_S), make(tmp_path, NOW - 40 * DAY_S)
    remove = shutil.rmtree

    def refuse(folder: Path) -> None:
        if folder.name == stuck:
            raise PermissionError(1, "Operation not permitted", str(folder))
        remove(folder)

    monkeypatch.setattr("avatar_server.recording.store.shutil.rmtree", refuse)
    first, second = RecordingStore(tmp_path).sweep(RecordingSettings(keep_days=30), NOW)
    assert (first.id, second.id) == (stuck, other)
    assert "not permitted" in first.failure
    assert second.failure == ""
    assert [recording.id for recording in RecordingStore(tmp_path).all()] == [stuck]


def test_one_that_is_being_written_is_never_deleted(tmp_path: Path) -> None:
    name = make(tmp_path, NOW - 40 * DAY_S, ended=False)
    store = RecordingStore(tmp_path)
    with (tmp_path / name / files.MOVIE).open("r+b") as movie:
        files.claim(movie)
        recording = store.get(name)
        assert recording is not None
        assert recording.state == "recording"
        assert store.sweep(RecordingSettings(keep_days=1), NOW) == []
        with pytest.raises(RecordingInUse):
            store.delete(name)
    cut_off = store.get(name)
    assert cut_off is not None
    assert cut_off.state == "cut-off"
    assert store.delete(name)
    assert not store.delete(name)


@pytest.mark.parametrize("name", ["..", ".", "", "a/b", "../keys", "20260101T000000Z-a-1/..", "x"])
def test_a_name_cannot_lead_out_of_the_folder(tmp_path: Path, name: str) -> None:
    (tmp_path / "recordings").mkdir()
    (tmp_path / "keys").mkdir()
    store = RecordingStore(tmp_path / "recordings")
    assert store.get(name) is None
    assert not store.delete(name)
    assert (tmp_path / "keys").is_dir()


def test_a_link_in_the_folder_is_no_recording(tmp_path: Path) -> None:
    target = tmp_path / "elsewhere"
    name = make(target)
    (tmp_path / "recordings").mkdir()
    (tmp_path / "recordings" / name).symlink_to(target / name)
    assert RecordingStore(tmp_path / "recordings").all() == []


def test_names_are_safe_whatever_a_session_is_called(tmp_path: Path) -> None:
    folder = files.make_folder(tmp_path, "../Ünsafe name/" + "x" * 100, NOW)
    assert folder.parent == tmp_path
    assert files.is_name(folder.name)
    assert files.make_folder(tmp_path, folder.name.split("-")[1], NOW).name.endswith("-2")


def test_deletions_are_in_the_audit_log(tmp_path: Path) -> None:
    name = make(tmp_path / "kept", time.time() - 2 * DAY_S)
    values = {"recording": {"folder": str(tmp_path / "kept"), "keep_days": 1}}
    audit = tmp_path / "audit.jsonl"

    async def scenario() -> None:
        retention = Retention(settings_from_values(values), AuditLog(audit))
        retention.start()
        async with asyncio.timeout(10):
            while not audit.exists():  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        await retention.stop()

    asyncio.run(scenario())
    (line,) = [json.loads(line) for line in audit.read_text().splitlines()]
    assert (line["actor"], line["action"], line["target"]) == (
        "retention",
        "recording.delete",
        name,
    )
    assert "keep_days" in line["outcome"]
    assert list((tmp_path / "kept").iterdir()) == []


def test_recordings_are_listed_in_pages_given_out_in_ranges_and_deleted(
    tmp_path: Path, gateway: GatewayFactory
) -> None:
    folder = tmp_path / "kept"
    names = [make(folder, NOW + at, session=session) for at, session in enumerate("aab")]

    async def scenario() -> None:
        async with gateway({"recording": {"folder": str(folder)}}, wait=False) as g:
            page = await g.http.get("/v1/recordings?limit=2")
            assert [one["id"] for one in page.json()] == names[:2]
            following = page.headers["link"].split(">")[0].removeprefix("<")
            assert [one["id"] for one in (await g.http.get(following)).json()] == names[2:]
            of_b = (await g.http.get("/v1/recordings?session=b")).json()
            assert [one["id"] for one in of_b] == names[2:]
            one = (await g.http.get(f"/v1/recordings/{names[0]}")).json()
            assert one["state"] == "complete"
            assert one["duration_s"] == 60.0
            part = await g.http.get(one["video"], headers={"Range": "bytes=10-19"})
            assert part.status_code == 206
            assert part.headers["content-range"] == "bytes 10-19/1000"
            assert part.headers["content-type"] == "video/mp4"
            captions = await g.http.get(one["captions"])
            assert captions.headers["content-type"].startswith("text/vtt")
            assert captions.text == "WEBVTT\n\n"
            assert (await g.http.get(one["turns"])).status_code == 200
            assert (await g.http.delete(f"/v1/recordings/{names[0]}")).status_code == 204
            for method, path in (("GET", one["video"]), ("DELETE", f"/v1/recordings/{names[0]}")):
                gone = await g.http.request(method, path)
                assert gone.status_code == 404
                assert gone.json()["detail"].endswith(".")
            assert (await g.http.get("/v1/recordings/..%2F..%2Fkeys/video")).status_code == 404

    asyncio.run(scenario())


def test_a_launch_may_ask_for_it_and_the_setting_decides_otherwise(
    gateway: GatewayFactory,
) -> None:
    async def scenario() -> None:
        async with gateway({"recording": {"enabled": True}}) as g:
            assert (await g.http.get("/v1/status")).json()["recorded"]
            for asked, recorded in ((None, True), (False, False), (True, True)):
                body = {"avatar": "good"} | ({} if asked is None else {"record": asked})
                made = await g.http.post("/v1/sessions", json=body)
                assert made.json()["recorded"] is recorded
                g.control.end(made.json()["id"])

    asyncio.run(scenario())


def test_recordings_from_the_command_line(
    tmp_path: Path, start: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = make(tmp_path / "data" / "recordings", time.time())
    monkeypatch.setenv("AVATAR_SERVER_URL", start().url)
    run = CliRunner(env={"COLUMNS": "200", "TERM": "dumb"})

    def call(*arguments: str) -> tuple[int, str]:
        result = run.invoke(cli.app, arguments)
        assert result.exception is None or isinstance(result.exception, SystemExit)
        return result.exit_code, result.output

    code, output = call("recordings", "list")
    assert code == 0, output
    assert name in output
    assert "60 s" in output
    to = tmp_path / "saved"
    assert call("recordings", "download", name, "--to", str(to))[0] == 2
    to.mkdir()
    code, output = call("recordings", "download", name, "--to", str(to))
    assert code == 0, output
    saved = {path.suffix: path.stat().st_size for path in to.iterdir()}
    assert saved == {".mp4": 1_000, ".vtt": 8, ".jsonl": 8}
    code, output = call("recordings", "download", name, "--to", str(to))
    assert code == 1
    assert "File exists" in output
    code, output = call("recordings", "delete", name)
    assert code == 0, output
    code, output = call("recordings", "delete", name)
    assert code == 1
    assert "no such recording" in output
    code, output = call("recordings", "list")
    assert output.strip() == "Nothing is recorded."
    code, output = call("launch", "good", "--record")
    assert code == 0, output
    assert ", recorded," in output
