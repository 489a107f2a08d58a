"""The mel-spectrogram that lip-sync networks of the Wav2Lip kind take.

Its definition is the one of Prajwal et al., "A Lip Sync Expert Is All You Need for Speech to Lip
Generation In the Wild" (ACM Multimedia 2020), whose published code takes it over from Tacotron
implementations (Shen et al. 2018): 16 kHz, pre-emphasis 0.97, a Hann window of 50 ms every 12.5 ms,
magnitudes (not powers) in 80 triangular bands of equal area from 55 to 7,600 Hz on Slaney's mel
scale, decibels below 20 dB, and -100..0 dB mapped to -4..4.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

SAMPLE_RATE_HZ = 16_000
SOUND_RATE_HZ = 48_000
"""Of the sound that renderers are given."""
BANDS = 80
COLUMNS_PER_S = 80
WINDOW_COLUMNS = 16
"""Of one frame: 200 ms."""
LIMIT = 4.0
"""Columns hold -4 (silence) to 4."""

_FFT, _HOP = 800, 200
_PRE_EMPHASIS = 0.97
_LOWEST_HZ, _HIGHEST_HZ = 55.0, 7_600.0
_REFERENCE_DB, _FLOOR_DB = 20.0, -100.0
_RATIO = SOUND_RATE_HZ // SAMPLE_RATE_HZ
_COLUMN_SOUND = SOUND_RATE_HZ // COLUMNS_PER_S
_HALF_TAPS = 24
"""Samples at 48 kHz on each side of the low-pass filter before every third is taken."""

_TOGETHER = 6
"""Columns in one matrix product: from 262,144 multiplications on OpenBLAS wakes threads of its own,
which spin on cores that others need."""

Sound = NDArray[np.int16]
Floats = NDArray[np.float32]


def needed(first: int, count: int) -> tuple[int, int]:
    """The sound that columns `first` to `first + count - 1` are made of: its first sample at 48 kHz
    and its length. Column c is centred at sample 600 c."""
    begin = (first * _HOP - _FFT // 2 - 1) * _RATIO - _HALF_TAPS
    samples = (count - 1) * _HOP + _FFT + 1
    return begin, (samples - 1) * _RATIO + 2 * _HALF_TAPS + 1


def column_at(time_s: float) -> int:
    """The column centred nearest to `time_s`."""
    return round(time_s * COLUMNS_PER_S)


def columns_of(sound: Sound) -> Floats:
    """Columns of the sound that `needed` asked for: float32 [80, count], -4..4."""
    low = decimated(sound)
    emphasised = low[1:] - np.float32(_PRE_EMPHASIS) * low[:-1]
    return _columns(emphasised)


def melspectrogram(samples: Floats) -> Floats:
    """Of a whole utterance at 16 kHz (-1..1): float32 [80, len // 200 + 1].

    Column c is centred at sample 200 c, and the ends are mirrored, as in the published code.
    """
    if len(samples) <= _FFT // 2:
        raise ValueError(f"at least {_FFT // 2 + 1} samples are needed, got {len(samples)}")
    samples = samples.astype(np.float32, copy=False)
    emphasised = samples.copy()
    emphasised[1:] -= np.float32(_PRE_EMPHASIS) * samples[:-1]
    return _columns(np.pad(emphasised, _FFT // 2, mode="reflect"))


def decimated(sound: Sound) -> Floats:
    """16 kHz of 48 kHz int16, -1..1; shorter by the filter's 24 samples at either end."""
    taps = _low_pass()
    windows = sliding_window_view(sound.astype(np.float32), len(taps))[::_RATIO]
    return np.asarray(windows @ taps, np.float32)


def _columns(samples: Floats) -> Floats:
    windows = sliding_window_view(samples, _FFT)[::_HOP]
    # float32 in, complex64 out: half the time of the float64 transform.
    complexes = np.fft.rfft(windows * _window(), axis=-1)
    spectrum = np.sqrt(np.square(complexes.real) + np.square(complexes.imag))
    bands = np.empty((BANDS, len(spectrum)), np.float32)
    for first in range(0, len(spectrum), _TOGETHER):
        part = slice(first, first + _TOGETHER)
        np.matmul(mel_filters(), spectrum[part].T, out=bands[:, part])
    floor = np.float32(10 ** (_FLOOR_DB / 20))
    levels = 20 * np.log10(np.maximum(bands, floor)) - _REFERENCE_DB
    scaled = (levels - _FLOOR_DB) / -_FLOOR_DB * 2 * LIMIT - LIMIT
    return np.asarray(np.clip(scaled, -LIMIT, LIMIT), np.float32)


@cache
def _window() -> Floats:
    return np.asarray(np.hanning(_FFT + 1)[:-1], np.float32)


@cache
def _low_pass() -> Floats:
    """A windowed sinc (Blackman) with its cutoff at 7.6 kHz, above which no band lies."""
    at = np.arange(-_HALF_TAPS, _HALF_TAPS + 1)
    kernel = np.sinc(2 * _HIGHEST_HZ / SOUND_RATE_HZ * at) * np.blackman(len(at) + 2)[1:-1]
    return np.asarray(kernel / kernel.sum() / 32_768, np.float32)


@cache
def mel_filters() -> Floats:
    """float32 [80, 401]: triangles of equal area. Slaney's scale is linear to 1 kHz (Auditory
    Toolbox, 1998), logarithmic above."""
    bins_hz = np.linspace(0, SAMPLE_RATE_HZ / 2, _FFT // 2 + 1)
    edges_hz = _hz(np.linspace(_mel(_LOWEST_HZ), _mel(_HIGHEST_HZ), BANDS + 2))
    low, middle, high = edges_hz[:-2, None], edges_hz[1:-1, None], edges_hz[2:, None]
    rising, falling = (bins_hz - low) / (middle - low), (high - bins_hz) / (high - middle)
    triangles = np.maximum(0.0, np.minimum(rising, falling)) * 2 / (high - low)
    return np.ascontiguousarray(triangles, np.float32)


_LINEAR_HZ, _LINEAR_MEL, _STEP = 1_000.0, 15.0, np.log(6.4) / 27


def _mel(hz: float) -> float:
    if hz < _LINEAR_HZ:
        return hz * 3 / 200
    return float(_LINEAR_MEL + np.log(hz / _LINEAR_HZ) / _STEP)


def _hz(mel: NDArray[np.float64]) -> NDArray[np.float64]:
    above = _LINEAR_HZ * np.exp(_STEP * (mel - _LINEAR_MEL))
    return np.where(mel < _LINEAR_MEL, mel * 200 / 3, above)
