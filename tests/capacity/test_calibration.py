"""Measuring, and keeping what was measured."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from avatar_server.avatars import AvatarSpec, VoiceSpec, find_avatars
from avatar_server.capacity.figures import (
    MAX_AGE_S,
    CalibrationCache,
    frames_key,
    stages_key,
)
from avatar_server.capacity.frames import measure_audio, measure_avatar, sample
from avatar_server.capacity.stages import measure_stages
from avatar_server.config import AudioSettings, Settings, VideoSettings
from avatar_server.inference.loading import load_models
from avatar_server.models import ModelStore
from avatar_server.processes import Bootstrap, bootstrap_line, plain_settings
from avatar_server.protocol.costs import FrameCosts, StageCosts
from renderers import I420Frame, Pose, Rect
from renderers.neural import LipSyncNetwork, NeuralRenderer
from tests.capacity.costs import FRAMES, STAGES, machine, settings
from tests.renderers.neural.tiny_network import network_bytes, write_avatar


class Burner:
    """Takes a known time of CPU for each frame, more for a speaking one."""

    def __init__(self, idle_s: float, speaking_s: float) -> None:
        self.idle_s, self.speaking_s = idle_s, speaking_s
        self._shade = 0

    def draw(self, pose: Pose, frame: I420Frame) -> Rect:
        until = time.thread_time() + (self.speaking_s if pose.jaw > 0.05 else self.idle_s)
        self._shade = (self._shade + 1) % 200
        frame.y[:] = self._shade
        frame.u[:] = frame.v[:] = 128
        while time.thread_time() < until:
            pass
        return Rect(0, 0, frame.width, frame.height)

    def close(self) -> None:
        pass


def test_the_cost_of_a_frame_is_that_of_drawing_and_encoding_it() -> None:
    video = VideoSettings(width=160, height=120)
    costs = measure_avatar("burner", Burner(0.002, 0.006), video)  # type: ignore[arg-type]
    # The mouth is closed between syllables.
    assert 3.0 < costs.render_ms < 9.0
    assert 0 < costs.encode_ms < costs.render_ms
    assert 2.0 <= costs.idle_frame_ms < costs.render_ms + costs.encode_ms
    assert costs.rss_bytes > 10_000_000


def test_every_kind_of_renderer_is_measured_before_a_second_of_one_kind() -> None:
    kinds = ["puppet", "puppet", "puppet", "portrait", "neural"]
    avatars = [
        AvatarSpec(name=f"a{n}", title="A", voice=VoiceSpec(name="v"), renderer=kind, folder=Path())
        for n, kind in enumerate(kinds)
    ]
    assert [spec.name for spec in sample(avatars)] == ["a0", "a3", "a4"]
    assert [spec.name for spec in sample(avatars[:4])] == ["a0", "a3", "a1"]
    assert sample([]) == []


def test_a_neural_avatar_is_measured_while_its_mouth_is_drawn(tmp_path: Path) -> None:
    renderer = NeuralRenderer(write_avatar(tmp_path / "tester"))
    costs = measure_avatar("tester", renderer, VideoSettings())
    # All but the network: the sound's spectrogram, and laying the face over the picture.
    assert renderer.missed < 5
    assert costs.render_ms > 0.2
    assert costs.idle_frame_ms < costs.render_ms + costs.encode_ms
    renderer.close()


def test_an_avatar_more_is_measured_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    here = frames_key(machine(), settings())
    monkeypatch.setattr("avatar_server.capacity.figures.find_avatars", lambda folders: {})
    assert frames_key(machine(), settings()) != here


def test_sound_costs_something_and_far_from_a_core() -> None:
    assert 0 < measure_audio(AudioSettings()) < 500


def test_the_process_measures_the_shipped_avatars_and_ends() -> None:
    values = settings()
    process = subprocess.Popen(
        [sys.executable, "-m", "avatar_server.capacity.frames"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(bootstrap_line(Bootstrap(role="frames", settings=plain_settings(values))))
    process.stdin.flush()
    costs = msgspec.json.decode(process.stdout.read(), type=FrameCosts)
    assert process.wait(30) == 0
    assert costs.avatar in find_avatars()
    assert costs.render_ms > 0


def test_the_process_ends_with_its_parent() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "avatar_server.capacity.frames"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None
    line = bootstrap_line(Bootstrap(role="frames", settings=plain_settings(settings())))
    process.stdin.write(line)
    process.stdin.close()
    assert process.wait(30) == 1


def test_the_stages_of_the_embedded_models_are_measured(
    model_store: ModelStore, tmp_path: Path
) -> None:
    values = settings(tts={"engine": "piper"})
    for name in ("whisper-tiny.en", "smollm2-135m-instruct", "piper-joe", "smart-turn-v3.2"):
        model_store.path(name)
    told: list[str] = []
    weights = tmp_path / "lips.onnx"
    weights.write_bytes(network_bytes(heavy=2))
    network = LipSyncNetwork(weights, device="cpu")

    async def scenario() -> StageCosts:
        models = load_models(values, lambda _: None)
        # Else the first viewers would wait for what each model does at its first use.
        assert models.recogniser._encoder._silence is not None  # type: ignore[attr-defined]
        try:
            return await measure_stages(models, values, told.append, face=network)
        finally:
            await models.llm.close()

    costs = asyncio.run(scenario())
    assert 0.01 < costs.stt_s < 3
    assert 0.005 < costs.endpoint_s < 2
    assert 0 < costs.retrieve_s < 0.5
    assert 0 < costs.tts_first_s < 2
    assert 0.01 < costs.tts_rtf < 1.5
    assert costs.llm_prefill_per_s > costs.llm_decode_per_s > 5
    assert {costs.stt_device, costs.llm_device, costs.tts_device} == {"cpu"}
    assert costs.face_device == "cpu"
    assert 0.001 < costs.face_s < 2
    assert 0.001 < costs.face_many_s < 2
    assert len(told) == 4


# --- the cache --------------------------------------------------------------------------------


def test_what_was_measured_is_found_again(tmp_path: Path) -> None:
    cache, values = CalibrationCache(tmp_path), settings()
    key = frames_key(machine(), values)
    assert cache.load(FrameCosts, key) is None
    cache.store(FRAMES, key)
    cache.store(STAGES, stages_key(machine(), values))
    assert CalibrationCache(tmp_path).load(FrameCosts, key) == FRAMES
    assert cache.load(StageCosts, stages_key(machine(), values)) == STAGES
    assert not list(tmp_path.glob("*.partial"))


@pytest.mark.parametrize(
    "sections",
    [
        {"media": {"video": {"preset": "superfast"}}},
        {"media": {"video": {"width": 640}}},
        {"media": {"audio": {"bitrate_bps": 32_000}}},
    ],
)
def test_other_pictures_are_measured_anew(sections: dict[str, Any]) -> None:
    assert frames_key(machine(), settings()) != frames_key(machine(), settings(**sections))


@pytest.mark.parametrize(
    "sections",
    [
        {"stt": {"model": "whisper-base"}},
        {"llm": {"threads": 2}},
        {"tts": {"engine": "piper"}},
        {"sessions": {"max_sessions": 1}},
    ],
)
def test_other_models_are_measured_anew(sections: dict[str, Any]) -> None:
    assert stages_key(machine(), settings()) != stages_key(machine(), settings(**sections))


def test_another_machine_or_version_is_measured_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    here = frames_key(machine(), settings())
    assert frames_key(machine(4), settings()) != here
    assert frames_key(msgspec.structs.replace(machine(), cpu="other"), settings()) != here
    monkeypatch.setattr("avatar_server.capacity.figures.version", lambda name: "9")
    assert frames_key(machine(), settings()) != here


def test_what_costs_nothing_is_not_measured_anew() -> None:
    same = settings(http={"port": 9}, turns={"budget_ms": 900}, observe={"log_level": "debug"})
    assert frames_key(machine(), settings()) == frames_key(machine(), same)
    assert stages_key(machine(), settings()) == stages_key(machine(), same)


@pytest.mark.parametrize("content", [b"", b"{", b'{"avatar": 3}', b"\xff\xfe"])
def test_a_broken_file_is_no_figure(tmp_path: Path, content: bytes) -> None:
    cache = CalibrationCache(tmp_path)
    cache.store(FRAMES, "k")
    (file,) = tmp_path.iterdir()
    assert json.loads(file.read_bytes())["avatar"] == "theo"
    file.write_bytes(content)
    assert cache.load(FrameCosts, "k") is None


def test_what_is_too_old_is_measured_anew(tmp_path: Path) -> None:
    cache = CalibrationCache(tmp_path)
    cache.store(FRAMES, "k")
    (file,) = tmp_path.iterdir()
    almost = time.time() - MAX_AGE_S + 60
    os.utime(file, (almost, almost))
    assert cache.load(FrameCosts, "k") == FRAMES
    os.utime(file, (almost - 120, almost - 120))
    assert cache.load(FrameCosts, "k") is None


def test_a_cache_that_cannot_be_written_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    CalibrationCache(tmp_path / "file" / "below").store(FRAMES, "k")
    assert "cannot be kept" in caplog.text


def test_secrets_are_no_part_of_a_key() -> None:
    def with_key(key: str) -> Settings:
        return settings(llm={"engine": "openai", "base_url": "http://x", "api_key": key})

    assert stages_key(machine(), with_key("a")) == stages_key(machine(), with_key("b"))
