"""The load test against a server of its own: real processes, real WebRTC, real models."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from avatar_server.models import ModelStore

ROOT = Path(__file__).resolve().parents[2]
OBJECTIVE = (
    # What a shared machine may do to two sessions is not this test's matter.
    "loadtest.min_fps_p5=1",
    "loadtest.max_freezes=100000",
    "loadtest.max_audio_gaps=100000",
    "loadtest.max_voice_to_voice_p95_ms=60000",
)


def load(*arguments: str, sets: tuple[str, ...] = OBJECTIVE) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "avatar_server.cli", "load", *arguments]
    for pair in ("capacity.admission=fixed", *sets):
        command += ["--set", pair]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=240, cwd=ROOT, env={**os.environ}
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, model_store: ModelStore) -> Any:
    folder = tmp_path_factory.mktemp("load")
    done = load(
        *("--sessions", "2", "--viewers", "2", "--duration", "14", "--kill", "avatar:2@5"),
        *("--json", str(folder / "load.json"), "--html", str(folder / "load.html")),
    )
    assert (folder / "load.json").is_file(), done.stderr
    figures = json.loads((folder / "load.json").read_text())
    return done, figures, (folder / "load.html").read_text()


def test_two_sessions_are_talked_to_and_measured(run: Any) -> None:
    done, figures, page = run
    assert figures["sessions"] == 2
    assert figures["joins"]["accepted"] == 2
    assert figures["joins"]["rejected"] == 0
    assert {(v["session"], v["viewer"]) for v in figures["detail"]["viewers"]} == {
        (0, 0),
        (0, 1),
        (1, 0),
        (1, 1),
    }
    assert 20 < figures["video"]["fps_p50"] < 31
    assert figures["turns"]["count"] >= 1
    answered = [t for t in figures["detail"]["turns"] if t["voice_to_voice_ms"] is not None]
    assert answered
    timed = [turn for turn in answered if turn["server_voice_to_voice_ms"] is not None]
    assert timed
    for turn in timed:
        # The viewer's clock and the server's see the same turn.
        assert turn["voice_to_voice_ms"] == pytest.approx(
            turn["server_voice_to_voice_ms"], rel=0.3, abs=400
        )
        assert {"endpoint", "stt", "tts"} <= set(turn["stages_ms"])
    cpu = figures["cpu_ms_per_s"]
    for role in ("gateway", "avatar", "inference", "load"):
        assert cpu[role] > 0, role
    assert abs(figures["audio"]["av_offset_p95_ms"]) < 1_000
    assert "<svg" in page
    assert "avatar 2 killed" in page
    brief = json.loads(done.stdout)
    assert brief["verdict"] == figures["verdict"]
    assert done.returncode == (0 if figures["verdict"]["pass"] else 1)


def test_a_killed_avatar_comes_back_and_the_other_session_misses_no_frame(run: Any) -> None:
    _, figures, _ = run
    (kill,) = figures["kills"]
    assert kill["process"] == "avatar 2"
    assert kill["back_after_s"] is not None
    assert kill["others"]["sessions"] == 1
    events = [e["what"] for e in figures["detail"]["events"] if e["session"] == 1]
    assert "connection lost" in events
    assert "joined again" in events
    if figures["verdict"]["caveats"]:
        pytest.skip(f"frames cannot be judged here: {figures['verdict']['caveats'][0]}")
    assert kill["others"]["missed_frames"] == 0


def test_sessions_that_the_server_does_not_take_are_counted(model_store: ModelStore) -> None:
    """Against a server that runs already, with room for one."""
    from avatar_server.loadtest.server import ServerProcess

    with ServerProcess(["--sessions", "1", "--set", "capacity.admission=fixed"]) as server:
        done = load("--url", server.url, "--sessions", "2", "--duration", "5", "--talkers", "0")
        figures = json.loads(done.stdout)
        assert done.returncode == 1
        assert figures["joins"]["accepted"] == 1
        assert figures["joins"]["rejected"] == 1
        assert figures["verdict"]["binding"] == "admission"
        assert figures["cpu_ms_per_s"]["inference"] is not None
        unknown = load("--url", server.url, "--avatar", "nobody")
        assert unknown.returncode == 2
        assert "no avatar 'nobody'" in unknown.stderr
        assert "Traceback" not in unknown.stderr + done.stderr
