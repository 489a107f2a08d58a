"""The pitch of speech."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from avatar_server.avatar.pitch import CONTEXT_SAMPLES, pitch_per_10_ms

RATE = 48_000
NONE = np.zeros(0, np.int16)


def voice(hz: NDArray[np.float64], level: float = 0.1, seed: int = 1) -> NDArray[np.int16]:
    """A voice-like sound: twenty harmonics of `hz` (one value a sample), with some noise."""
    phase = 2 * np.pi * np.cumsum(hz) / RATE
    wave = sum(np.sin(k * phase) / k for k in range(1, 21))
    noise = np.random.default_rng(seed).standard_normal(len(hz)) * 0.05
    sound = np.asarray(wave + noise)
    return (sound / np.abs(sound).max() * level * 32_767).astype(np.int16)


@pytest.mark.parametrize("hz", [80, 110, 165, 220, 330, 400])
def test_a_steady_voice_has_its_pitch(hz: float) -> None:
    found = pitch_per_10_ms(voice(np.full(RATE, float(hz))), NONE)
    assert len(found) == 100
    np.testing.assert_allclose(found[4:-6], hz, rtol=0.02)


def test_a_glide_is_followed() -> None:
    hz = np.geomspace(100, 200, 2 * RATE)
    found = pitch_per_10_ms(voice(hz), NONE)
    expected = hz[240::480]
    np.testing.assert_allclose(found[4:-6], expected[4:-6], rtol=0.04)


def test_silence_hiss_and_a_whisper_have_none() -> None:
    rng = np.random.default_rng(2)
    noise = (rng.standard_normal(RATE) * 2_000).astype(np.int16)
    assert not pitch_per_10_ms(np.zeros(RATE, np.int16), NONE).any()
    assert (pitch_per_10_ms(noise, NONE) > 0).mean() < 0.05
    assert not pitch_per_10_ms(voice(np.full(RATE, 120.0), level=0.004), NONE).any()


def test_sound_in_pieces_has_the_pitch_of_the_whole_but_at_their_ends() -> None:
    sound = voice(np.geomspace(90, 180, 2 * RATE))
    whole = pitch_per_10_ms(sound, NONE)
    parts, at = [], 0
    for count in (30, 2, 68, 100):
        end = at + count * 480
        parts.append(pitch_per_10_ms(sound[at:end], sound[max(0, at - CONTEXT_SAMPLES) : at]))
        at = end
    pieces = np.concatenate(parts)
    assert len(pieces) == len(whole)
    same = np.isclose(pieces, whole, rtol=0.02)
    assert same.mean() > 0.94
    assert len(pitch_per_10_ms(NONE, NONE)) == 0
