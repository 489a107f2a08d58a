"""The speech models, loaded once."""

from __future__ import annotations

import pytest

from avatar_server.inference.tts.build import onnx_kokoro
from avatar_server.inference.tts.kokoro import KokoroSynthesizer
from avatar_server.inference.tts.piper import PiperSynthesizer
from avatar_server.models import ModelStore


@pytest.fixture(scope="session")
def piper(model_store: ModelStore) -> PiperSynthesizer:
    synthesizer = PiperSynthesizer(model_store.path("piper-joe"), "piper-joe")
    synthesizer.warm_up()
    return synthesizer


@pytest.fixture(scope="session")
def kokoro(model_store: ModelStore) -> KokoroSynthesizer:
    return onnx_kokoro(model_store.path("kokoro-82m-int8"), model_store.path("kokoro-voices"))
