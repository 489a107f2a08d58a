"""What a conversation needs beside the language model, from `configs/plan/voice.yaml`."""

from __future__ import annotations

from functools import cache
from typing import Any

import yaml

from avatar_server.capacity.planner.catalogue import Row
from avatar_server.paths import configs_dir


class Figure(Row):
    """A number and where it is from."""

    value: float
    source: str


class Recogniser(Row):
    """Speech to text."""

    title: str
    memory_gib: Figure
    utterance_ms: Figure


class Synthesiser(Row):
    """Text to speech."""

    title: str
    memory_gib: Figure
    first_audio_ms: Figure
    real_time_factor: Figure


class Engine(Row):
    """Memory that the language model's engine takes beside weights and caches."""

    graphs_gib: Figure
    activations_gib: Figure
    context_gib: Figure


class Neural(Row):
    """A neural renderer, where there is one."""

    title: str
    memory_gib: Figure


class Media(Row):
    """Pictures and sound, and the CPU."""

    playout_ms: Figure
    session_cores: Figure
    inference_cores: Figure
    gateway_cores: Figure


class Speech(Row):
    """How fast speech uses up text."""

    tokens_per_second: Figure


class Voice(Row):
    """All of it."""

    stt: Recogniser
    tts: Synthesiser
    engine: Engine
    neural: Neural
    media: Media
    speech: Speech


@cache
def voice() -> Voice:
    """The shipped figures."""
    path = configs_dir() / "plan" / "voice.yaml"
    values: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    return Voice.model_validate(values)
