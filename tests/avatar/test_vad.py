"""Voice activity detection with the real model."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray

from avatar_server.avatar.vad import FRAME_SAMPLES, Vad
from avatar_server.inference.tts.piper import PiperSynthesizer
from avatar_server.models import ModelStore


@pytest.fixture
def vad(model_store: ModelStore) -> Vad:
    return Vad(model_store.path("silero-vad"))


@pytest.fixture(scope="module")
def speech(model_store: ModelStore) -> NDArray[np.int16]:
    onnxruntime.set_seed(0)  # the voice's noise, so that each run hears the same
    voice = PiperSynthesizer(model_store.path("piper-joe"), "piper-joe")
    text = "The weather is lovely today."
    sound = np.concatenate([p.pcm for p in voice.synthesize(text, "piper-joe", 1.0, "en")])
    return sound[: len(sound) // 3 * 3].reshape(-1, 3).mean(axis=1).astype(np.int16)


def _frames(pcm: NDArray[np.int16]) -> NDArray[np.int16]:
    return pcm[: len(pcm) // FRAME_SAMPLES * FRAME_SAMPLES].reshape(-1, FRAME_SAMPLES)


def test_speech_is_told_from_noise(vad: Vad, speech: NDArray[np.int16]) -> None:
    assert np.median([vad.probability(frame) for frame in _frames(speech)]) > 0.8
    vad.reset()
    noise = np.random.default_rng(0).normal(0, 500, 32_000).astype(np.int16)
    assert max(vad.probability(frame) for frame in _frames(noise)) < 0.4


def test_frame_by_frame_is_the_same_as_all_at_once(vad: Vad, speech: NDArray[np.int16]) -> None:
    one_by_one = [vad.probability(frame) for frame in _frames(speech)]
    np.testing.assert_allclose(one_by_one, vad.probabilities(speech), atol=1e-5)


def test_reset_forgets_the_stream(vad: Vad, speech: NDArray[np.int16]) -> None:
    frames = _frames(speech)
    first = [vad.probability(frame) for frame in frames]
    carried = [vad.probability(frame) for frame in frames]
    vad.reset()
    assert [vad.probability(frame) for frame in frames] == first
    assert carried != first


def test_a_frame_of_another_length_is_refused(vad: Vad) -> None:
    with pytest.raises(ValueError, match="512 samples"):
        vad.probability(np.zeros(480, dtype=np.int16))


def test_less_than_a_frame_has_no_probabilities(vad: Vad) -> None:
    assert vad.probabilities(np.zeros(100, dtype=np.int16)).shape == (0,)


def test_another_model_is_refused(model_store: ModelStore) -> None:
    with pytest.raises(ValueError, match="not a Silero VAD"):
        Vad(model_store.path("smart-turn-v3.2"))


def test_viewers_share_the_model_but_not_what_it_heard(
    model_store: ModelStore, speech: NDArray[np.int16]
) -> None:
    alone, one, other = (Vad(model_store.path("silero-vad")) for _ in range(3))
    assert one._session is other._session
    noise = np.random.default_rng(1).normal(0, 2_000, FRAME_SAMPLES).astype(np.int16)
    for frame in _frames(speech)[:20]:
        expected = alone.probability(frame)
        assert one.probability(frame) == pytest.approx(expected, abs=1e-5)
        other.probability(noise)
