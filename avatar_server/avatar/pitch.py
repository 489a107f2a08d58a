"""The pitch of speech: the largest peak of the windowed autocorrelation (Boersma 1993)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

SAMPLE_RATE_HZ = 48_000
LOWEST_HZ, HIGHEST_HZ = 65.0, 420.0
"""Voices of adults, with room for a lively one."""
CONTEXT_SAMPLES = 480
"""Sound before and after that a value depends on: 10 ms."""

_DECIMATION = 6
_RATE_HZ = SAMPLE_RATE_HZ // _DECIMATION
_WINDOW, _HOP = 320, 160
# 40 ms, more than two periods of the lowest voice, every 20 ms: what moves a head is slower.
_FFT = 1_024
_VOICED = 0.5
_QUIET_RMS = 0.006
_OCTAVE_COST = 0.04
"""For each octave of a longer period: of two nearly equal peaks that of the shorter is right."""

_LOW_PASS = np.hanning(9)[1:-1].astype(np.float32)
_LOW_PASS /= _LOW_PASS.sum()
# Up to some 1.2 kHz: high harmonics make peaks so narrow that they fall between samples.

_HANN = np.hanning(_WINDOW).astype(np.float32)
_LAGS = np.arange(int(_RATE_HZ / HIGHEST_HZ), int(_RATE_HZ / LOWEST_HZ) + 1)


def _autocorrelation(frames: NDArray[np.float32]) -> NDArray[np.float32]:
    spectrum = np.fft.rfft(frames, _FFT)
    power = (spectrum * spectrum.conj()).real
    return np.asarray(np.fft.irfft(power, _FFT)[..., : _LAGS[-1] + 2], np.float32)


_OF_WINDOW = _autocorrelation(_HANN)
_OF_WINDOW /= _OF_WINDOW[0]
_COST = (_OCTAVE_COST * np.log2(_LAGS * (HIGHEST_HZ / _RATE_HZ))).astype(np.float32)


def pitch_per_10_ms(pcm: NDArray[np.int16], before: NDArray[np.int16]) -> NDArray[np.float32]:
    """Hz for each 10 ms of `pcm` (48 kHz, whole 10 ms); 0 where there is no voice.

    `before` are the samples just before, as far as there are any.
    """
    count = len(pcm) // 480
    if not count:
        return np.zeros(0, np.float32)
    lead = np.zeros(CONTEXT_SAMPLES, np.int16)
    kept = before[-CONTEXT_SAMPLES:]
    lead[CONTEXT_SAMPLES - len(kept) :] = kept
    hops = -(-count // 2)
    trail = np.zeros(hops * _HOP * _DECIMATION + CONTEXT_SAMPLES - len(pcm), np.int16)
    sound = np.concatenate((lead, pcm, trail)).astype(np.float32) / 32_768
    slow = np.convolve(sound.reshape(-1, _DECIMATION).mean(axis=1), _LOW_PASS, mode="same")
    frames = np.lib.stride_tricks.sliding_window_view(slow, _WINDOW)[::_HOP][:hops]
    frames = frames - frames.mean(axis=1, keepdims=True)
    loud = np.sqrt(np.mean(frames * frames, axis=1)) > _QUIET_RMS
    curve = _autocorrelation(frames * _HANN)
    curve /= np.maximum(curve[:, :1], 1e-9) * _OF_WINDOW
    peaks = curve[:, _LAGS] - _COST
    best = np.argmax(peaks, axis=1)
    rows = np.arange(hops)
    lag = _LAGS[best]
    left, here, right = curve[rows, lag - 1], curve[rows, lag], curve[rows, lag + 1]
    # The peak lies between samples: that of a parabola through three of them.
    bend = left - 2 * here + right
    shift = np.where(np.abs(bend) > 1e-6, 0.5 * (left - right) / np.where(bend == 0, 1, bend), 0.0)
    hz = _RATE_HZ / (lag + np.clip(shift, -0.5, 0.5))
    inside = (best > 0) & (best < len(_LAGS) - 1)
    voiced = np.where(loud & inside & (here > _VOICED), hz, 0.0)
    return np.repeat(voiced, 2)[:count].astype(np.float32)


def pitch_of_whole(pcm: NDArray[np.int16]) -> NDArray[np.float32]:
    """`pitch_per_10_ms` of the whole 10 ms of `pcm`, with nothing before it."""
    return pitch_per_10_ms(pcm[: len(pcm) // 480 * 480], pcm[:0])
