"""Streaming resampling."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from avatar_server.resample import Resampler


def tone(rate_hz: int, seconds: float, frequency_hz: float = 997.0) -> np.ndarray:
    return np.sin(2 * np.pi * frequency_hz * np.arange(int(rate_hz * seconds)) / rate_hz).astype(
        np.float32
    )


@pytest.mark.parametrize("source_hz", [16_000, 22_050, 24_000, 44_100, 48_000])
def test_a_tone_comes_out_as_the_same_tone_in_time(source_hz: int) -> None:
    resampler = Resampler(source_hz, 48_000)
    out = np.concatenate([resampler.push(tone(source_hz, 0.5)), resampler.flush()])
    assert np.abs(out - tone(48_000, 0.5))[300:-300].max() < 1e-4


def test_what_lies_above_the_new_nyquist_frequency_is_removed() -> None:
    resampler = Resampler(48_000, 16_000)
    out = np.concatenate([resampler.push(tone(48_000, 0.5, 11_000)), resampler.flush()])
    assert np.abs(out)[300:-300].max() < 1e-3


@settings(deadline=None)
@given(st.lists(st.integers(0, 2_000), max_size=12), st.sampled_from([22_050, 24_000]))
def test_pieces_give_the_same_samples_as_the_whole(sizes: list[int], source_hz: int) -> None:
    sound = np.random.default_rng(1).standard_normal(sum(sizes)).astype(np.float32)
    whole = Resampler(source_hz, 48_000)
    expected = np.concatenate([whole.push(sound), whole.flush()])
    streamed = Resampler(source_hz, 48_000)
    parts = [streamed.push(part) for part in np.split(sound, np.cumsum(sizes))]
    out = np.concatenate([*parts, streamed.flush()])
    assert out.size == round(sum(sizes) * 48_000 / source_hz)
    np.testing.assert_allclose(out, expected, atol=1e-5)


def test_a_resampler_is_as_new_after_a_flush() -> None:
    resampler = Resampler(22_050, 48_000)
    first = np.concatenate([resampler.push(tone(22_050, 0.1)), resampler.flush()])
    second = np.concatenate([resampler.push(tone(22_050, 0.1)), resampler.flush()])
    np.testing.assert_array_equal(first, second)


def test_a_rate_of_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="positive"):
        Resampler(0, 48_000)
