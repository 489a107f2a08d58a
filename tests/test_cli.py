"""The command line, as far as it starts no server."""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import avatar_server
from avatar_server import cli
from avatar_server.avatar.encoder.h264_coding import nvenc_works
from avatar_server.command_line import parse_sets
from avatar_server.config import ConfigError


def invoke(*arguments: str) -> tuple[int, str]:
    """Exit code and all output; an unexpected error is raised."""
    result = CliRunner(env={"COLUMNS": "200", "TERM": "dumb"}).invoke(cli.app, list(arguments))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.output


def test_the_version_is_told() -> None:
    assert invoke("--version") == (0, f"avatar-server {avatar_server.__version__}\n")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--config", "nowhere"), "no configuration 'nowhere'"),
        (("--set", "http.prot=1"), "http.prot"),
        (("--set", "http.port"), "key.path=value"),
        (("--set", "http.port=many"), "http.port"),
        (("--set", "http.port=1", "--set", "http.port.x=1"), "already has a value"),
        (("--port", "70000"), "http.port"),
        (("--sessions", "0"), "sessions.max_sessions"),
        (("--no-such-option",), "--no-such-option"),
    ],
)
def test_wrong_use_is_told_in_words_with_exit_code_2(
    arguments: tuple[str, ...], words: str
) -> None:
    code, output = invoke("serve", *arguments)
    assert code == 2, output
    assert words in output


@pytest.mark.skipif(nvenc_works(), reason="this machine has NVENC")
def test_a_video_encoder_that_is_not_here_is_told_before_anything_starts() -> None:
    code, output = invoke("serve", "--set", "media.video.encoder=h264_nvenc", "--port", "0")
    assert code == 2
    assert "media.video.encoder: h264_nvenc cannot be opened" in output
    assert "Set media.video.encoder to auto or libx264." in output


def test_ctrl_c_while_models_are_fetched_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(settings: object, console: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "ensure_models", interrupted)
    monkeypatch.setattr(cli, "setup_logging", lambda settings, role: None)
    code, output = invoke("serve", "--port", "0")
    assert code == 130
    assert "Stopped" in output


def test_a_broken_avatar_is_named_with_exit_code_2(tmp_path: Path) -> None:
    (tmp_path / "Bad Name").mkdir()
    (tmp_path / "Bad Name" / "avatar.yaml").write_text("title: x\n", encoding="utf-8")
    code, output = invoke("serve", "--set", f"avatar_dirs=[{tmp_path}]")
    assert code == 2
    assert "Bad Name" in output


def test_settings_on_the_command_line_are_yaml_by_dotted_keys() -> None:
    assert parse_sets(["a.b=1", "a.c=[x, y]", "d=text", "e=", "f=a=b"]) == {
        "a": {"b": 1, "c": ["x", "y"]},
        "d": "text",
        "e": None,
        "f": "a=b",
    }
    for wrong in ("a", "=1", "a..b=1", ".a=1", "a={"):
        with pytest.raises(ConfigError, match="--set"):
            parse_sets([wrong])


def fake_bench(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Puts a bench in place that only notes what it was asked; returns the notes."""
    calls: list[dict[str, Any]] = []

    def bench_media(**asked: Any) -> dict[str, Any]:
        calls.append(asked)
        return {"encode_ms": 2.5}

    module = types.SimpleNamespace(bench_media=bench_media, print_table=lambda figures: None)
    monkeypatch.setitem(sys.modules, "avatar_server.bench.media", module)
    return calls


def test_a_bench_writes_its_figures_to_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = fake_bench(monkeypatch)
    file = tmp_path / "figures.json"
    code, output = invoke("bench", "media", "--seconds", "3", "--viewers", "2", "--json", str(file))
    assert code == 0
    assert calls == [{"seconds": 3.0, "viewers": [2]}]
    assert json.loads(file.read_text()) == {"encode_ms": 2.5}
    assert json.loads(output) == {"encode_ms": 2.5}


def test_a_file_that_cannot_be_written_is_told_before_measuring(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = fake_bench(monkeypatch)
    code, output = invoke("bench", "media", "--json", str(tmp_path / "none" / "x.json"))
    assert code == 2
    assert "there is no folder" in output
    assert calls == []


def test_models_are_listed_with_their_licences() -> None:
    code, output = invoke("models", "list")
    assert code == 0
    assert "whisper-tiny.en" in output
    assert "Apache-2.0" in output


def test_an_unknown_model_is_wrong_use() -> None:
    code, output = invoke("models", "fetch", "no-such-model")
    assert code == 2
    assert "no-such-model" in output


def test_a_configuration_whose_engines_are_missing_fetches_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("fetched")

    monkeypatch.setattr("avatar_server.models.ModelStore.ensure", refuse)
    code, output = invoke("serve", "--config", "h100", "--port", "0")
    assert code == 2
    assert "llm.engine: openai" in output
    assert "kokoro-torch" in output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--kill", "avatar@90"), "lasts 60 s only"),
        (("--kill", "avatar:9@10"), "there are 4 session(s)"),
        (("--kill", "gateway@10"), "its end is the end of all"),
        (("--kill", "tts@10"), "avatar:1 to avatar:N"),
        (("--kill", "10"), "avatar:2@20"),
        (("--kill", "avatar@5", "--find-max"), "use one of --kill, --find-max and --against"),
        (("--against", "scheduler.policy=best"), "scheduler.policy"),
        (("--policy", "best"), "scheduler.policy"),
        (("--policy", "fifo", "--url", "http://localhost:8080"), "started for the test"),
        (("--html", "/nowhere/x.html"), "there is no folder /nowhere"),
        (("--speech", "/nowhere"), "/nowhere"),
        (("--set", "loadtest.min_fps=1"), "loadtest.min_fps"),
        (("--url", "localhost:8080"), "no address of a server"),
        (("--url", "http://127.0.0.1:1"), "cannot be reached"),
        (("--sessions", "0"), "--sessions"),
    ],
)
def test_a_load_test_that_cannot_be_done_is_told_before_it_begins(
    arguments: tuple[str, ...], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("avatar_server.loadtest.speech.prepared", lambda cache: tmp_path)
    code, output = invoke("load", *arguments)
    assert code == 2, output
    assert words in output
