"""End-of-turn detection with the real model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray

from avatar_server.inference.endpoint import EndOfTurnModel
from avatar_server.inference.tts.piper import PiperSynthesizer
from avatar_server.models import ModelStore


@pytest.fixture(scope="module")
def model(model_store: ModelStore) -> EndOfTurnModel:
    loaded = EndOfTurnModel(model_store.path("smart-turn-v3.2"))
    loaded.warm_up()
    return loaded


@pytest.fixture(scope="module")
def question(model_store: ModelStore) -> NDArray[np.int16]:
    onnxruntime.set_seed(0)  # the voice's noise, so that each run hears the same
    voice = PiperSynthesizer(model_store.path("piper-joe"), "piper-joe")
    text = "Could you please tell me what time the museum opens on Sunday?"
    sound = np.concatenate([p.pcm for p in voice.synthesize(text, "piper-joe", 1.0, "en")])
    sound = sound[: len(sound) // 3 * 3].reshape(-1, 3).mean(axis=1)
    return np.asarray(np.concatenate([sound, np.zeros(3_200)]), dtype=np.int16)


def test_a_whole_question_is_more_complete_than_its_beginnings(
    model: EndOfTurnModel, question: NDArray[np.int16]
) -> None:
    whole = model.probability(question)
    parts = [model.probability(question[: int(len(question) * s)]) for s in (0.3, 0.4, 0.5, 0.6)]
    assert 0.5 < whole <= 1.0
    assert 0.0 <= min(parts) < whole - 0.3


def test_only_the_last_eight_seconds_count(
    model: EndOfTurnModel, question: NDArray[np.int16]
) -> None:
    rng = np.random.default_rng(0)
    tail = np.concatenate([np.zeros(8 * 16_000 - len(question), dtype=np.int16), question])
    noise = rng.normal(0, 3_000, 32_000).astype(np.int16)
    assert model.probability(np.concatenate([noise, tail])) == model.probability(tail)


def test_short_sound_is_padded_before_it(model: EndOfTurnModel) -> None:
    sound = np.random.default_rng(0).normal(0, 3_000, 16_000).astype(np.int16)
    features = model.features(sound)
    assert features.shape == (80, 800)
    assert features[:, 710:].mean() > features[:, :690].mean()


def test_no_sound_is_no_error(model: EndOfTurnModel) -> None:
    assert 0.0 <= model.probability(np.zeros(0, dtype=np.int16)) <= 1.0


def test_stereo_is_refused(model: EndOfTurnModel) -> None:
    with pytest.raises(ValueError, match="mono"):
        model.probability(np.zeros((2, 100), dtype=np.int16))


def test_another_model_is_refused(model_store: ModelStore) -> None:
    path: Path = model_store.path("silero-vad")
    with pytest.raises(ValueError, match="not a Smart Turn v3 model"):
        EndOfTurnModel(path)
