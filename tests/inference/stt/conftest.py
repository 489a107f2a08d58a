"""Speech made by the product's own voice."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray

from avatar_server.inference.tts.piper import PiperSynthesizer
from avatar_server.models import ModelStore

Say = Callable[[str], NDArray[np.int16]]


@pytest.fixture(scope="session")
def say(model_store: ModelStore) -> Say:
    """Text to int16 mono sound at 16 kHz, with 0.3 s of near-silence before and after."""
    onnxruntime.set_seed(0)  # the voice's noise, so that each run hears the same
    voice = PiperSynthesizer(model_store.path("piper-joe"), "piper-joe")
    rng = np.random.default_rng(0)

    def spoken(text: str) -> NDArray[np.int16]:
        pieces = [piece.pcm for piece in voice.synthesize(text, "piper-joe", 1.0, "en")]
        sound = np.concatenate(pieces).astype(np.float32)
        # 48 kHz to 16 kHz: a mean of three is low-pass enough for a voice.
        sound = sound[: len(sound) // 3 * 3].reshape(-1, 3).mean(axis=1)
        sound = np.pad(sound, 4_800) + rng.normal(0, 5, len(sound) + 9_600)
        return np.clip(sound, -32_768, 32_767).astype(np.int16)

    return spoken
