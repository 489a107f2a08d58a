"""The mel-spectrogram, against what its definition says of sounds that are known."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from renderers.neural.mel import (
    BANDS,
    SAMPLE_RATE_HZ,
    columns_of,
    decimated,
    mel_filters,
    melspectrogram,
    needed,
)


def tone(hz: float, rate: int, seconds: float, level: float = 0.5) -> NDArray[np.float32]:
    at = np.arange(round(rate * seconds)) / rate
    return (level * np.sin(2 * np.pi * hz * at)).astype(np.float32)


def test_silence_is_the_lowest_value_everywhere() -> None:
    mel = melspectrogram(np.zeros(SAMPLE_RATE_HZ, np.float32))
    assert mel.shape == (BANDS, 81)
    assert (mel == -4).all()


@pytest.mark.parametrize("hz", [200.0, 440.0, 1_000.0, 3_000.0, 7_000.0])
def test_a_tone_is_loudest_in_the_band_that_holds_it(hz: float) -> None:
    mel = melspectrogram(tone(hz, SAMPLE_RATE_HZ, 1.0))
    loudest = int(mel[:, 20:60].mean(axis=1).argmax())
    peaks_hz = mel_filters().argmax(axis=1) * 20.0
    assert abs(peaks_hz[loudest] - hz) <= max(40.0, 0.05 * hz)


def test_a_tone_has_the_level_that_the_definition_gives() -> None:
    # Computed here from the definition: magnitude of the windowed sine after pre-emphasis, times
    # the band's filter, 20 dB below its level, and -100..0 dB spread over -4..4.
    hz, level = 1_000.0, 0.5
    mel = melspectrogram(tone(hz, SAMPLE_RATE_HZ, 1.0, level))
    gain = abs(1 - 0.97 * np.exp(-2j * np.pi * hz / SAMPLE_RATE_HZ))
    window = np.hanning(801)[:-1]
    spectrum = np.abs(np.fft.rfft(window * np.sin(2 * np.pi * hz * np.arange(800) / 16_000)))
    magnitude = float((mel_filters() @ (spectrum * level * gain)).max())
    expected = (20 * np.log10(magnitude) - 20 + 100) / 100 * 8 - 4
    assert mel[:, 20:60].max() == pytest.approx(expected, abs=0.01)


def test_ten_times_the_sound_is_twenty_decibels_more() -> None:
    quiet = melspectrogram(tone(500.0, SAMPLE_RATE_HZ, 0.5, 0.01))
    loud = melspectrogram(tone(500.0, SAMPLE_RATE_HZ, 0.5, 0.1))
    band = int(loud[:, 20].argmax())
    assert loud[band, 20] - quiet[band, 20] == pytest.approx(20 / 100 * 8, abs=0.01)


def test_filters_have_equal_area_and_stay_between_their_limits() -> None:
    filters = mel_filters()
    assert filters.shape == (BANDS, 401)
    areas = filters[30:].sum(axis=1) * 20.0
    assert areas == pytest.approx(1.0, abs=0.03)
    hz = np.arange(401) * 20.0
    assert (filters[:, hz < 55] == 0).all()
    assert (filters[:, hz > 7_600] == 0).all()


def test_a_piece_of_the_sound_gives_the_columns_that_all_of_it_does() -> None:
    rng = np.random.default_rng(2)
    sound = (rng.standard_normal(48_000) * 3_000).astype(np.int16)
    first, count = needed(20, 30)
    part = columns_of(sound[first : first + count])
    assert part.shape == (BANDS, 30)
    first, count = needed(35, 5)
    assert np.allclose(columns_of(sound[first : first + count]), part[:, 15:20], atol=1e-3)


def test_columns_are_centred_where_the_utterances_own_are() -> None:
    # One click at 0.5 s is loudest in column 40, by either way.
    sound = np.zeros(48_000, np.int16)
    sound[24_000] = 30_000
    first, count = needed(30, 21)
    mel = columns_of(sound[first : first + count])
    assert 30 + int(mel.mean(axis=0).argmax()) == 40
    low = decimated(np.pad(sound, 24))
    assert int(melspectrogram(low).mean(axis=0).argmax()) == 40


def test_what_16_khz_cannot_hold_does_not_come_back_as_other_sound() -> None:
    high = (tone(12_000.0, 48_000, 0.2) * 32_767).astype(np.int16)
    kept = (tone(3_000.0, 48_000, 0.2) * 32_767).astype(np.int16)
    assert np.abs(decimated(high)).max() < 0.005
    assert np.abs(decimated(kept)).max() == pytest.approx(0.5, abs=0.01)


def test_too_short_a_sound_is_refused() -> None:
    with pytest.raises(ValueError, match="401"):
        melspectrogram(np.zeros(400, np.float32))
