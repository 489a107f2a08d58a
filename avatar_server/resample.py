"""Streaming resampling by a fixed ratio, exact in length and without seams."""

from __future__ import annotations

from math import gcd

import numpy as np
from numpy.typing import NDArray

_HALF_TAPS = 24
"""Input samples on each side that one output sample is made from (at unity cutoff)."""
_ROLL_OFF = 0.94
"""Cutoff as a share of the lower Nyquist frequency."""
_KAISER_BETA = 9.0
"""About 90 dB of stop-band attenuation (Kaiser's formula)."""
_BLOCK = 128
"""Input samples per matrix row, at least: fewer make long chains of tiny products."""
_BLAS_ONE_THREAD = 250_000
"""Multiplications below which OpenBLAS stays in the calling thread (its own limit: 262,144).

Above it wakes a pool whose threads spin on cores that the avatars need: measured, twice the CPU.
"""


class Resampler:
    """Windowed-sinc polyphase resampler from `source_hz` to `target_hz`, mono float32.

    In all, `round(n * target_hz / source_hz)` samples come out for `n` that went in, time-aligned
    (no delay), however the input was cut into pieces.
    """

    def __init__(self, source_hz: int, target_hz: int) -> None:
        if source_hz <= 0 or target_hz <= 0:
            raise ValueError(f"rates must be positive, got {source_hz} and {target_hz} Hz")
        common = gcd(source_hz, target_hz)
        times = -(-_BLOCK // (source_hz // common))
        self._step_in = source_hz // common * times
        self._step_out = target_hz // common * times
        cutoff = min(1.0, target_hz / source_hz) * _ROLL_OFF
        half = int(np.ceil(_HALF_TAPS / min(1.0, target_hz / source_hz)))
        rows = np.arange(self._step_in + 2 * half) - half
        centres = np.arange(self._step_out) * (self._step_in / self._step_out)
        distance = rows[:, None] - centres[None, :]
        inside = np.clip(1.0 - (distance / half) ** 2, 0.0, None)
        window = np.i0(_KAISER_BETA * np.sqrt(inside)) / np.i0(_KAISER_BETA)
        window[np.abs(distance) >= half] = 0.0
        kernel = cutoff * np.sinc(cutoff * distance) * window
        self._matrix = np.ascontiguousarray(kernel / kernel.sum(axis=0), dtype=np.float32)
        self._half = half
        self._pending = np.zeros(half, np.float32)
        self._taken = 0
        self._given = 0

    def push(self, samples: NDArray[np.float32]) -> NDArray[np.float32]:
        """What can be given now, after `samples` of shape (n,)."""
        self._taken += samples.size
        self._pending = np.concatenate([self._pending, samples.astype(np.float32, copy=False)])
        return self._run()

    def flush(self) -> NDArray[np.float32]:
        """The rest; the resampler is then as new."""
        owed = round(self._taken * self._step_out / self._step_in) - self._given
        blocks = -(-max(owed, 0) // self._step_out)
        short = blocks * self._step_in + 2 * self._half - self._pending.size
        if short > 0:
            self._pending = np.concatenate([self._pending, np.zeros(short, np.float32)])
        rest = self._run()[: max(owed, 0)]
        self._pending = np.zeros(self._half, np.float32)
        self._taken = self._given = 0
        return rest

    def _run(self) -> NDArray[np.float32]:
        blocks = (self._pending.size - 2 * self._half) // self._step_in
        if blocks <= 0:
            return np.zeros(0, np.float32)
        width = self._matrix.shape[0]
        windows = np.lib.stride_tricks.sliding_window_view(self._pending, width)
        windows = windows[: blocks * self._step_in : self._step_in]
        result = np.empty((blocks, self._step_out), np.float32)
        rows = max(1, _BLAS_ONE_THREAD // self._matrix.size)
        for row in range(0, blocks, rows):
            np.matmul(windows[row : row + rows], self._matrix, out=result[row : row + rows])
        self._pending = self._pending[blocks * self._step_in :].copy()
        self._given += result.size
        return result.ravel()
