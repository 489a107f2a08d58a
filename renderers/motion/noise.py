"""Movement that never repeats visibly, and still is a function of time and seed alone."""

from __future__ import annotations

import math

_MASK = (1 << 64) - 1


def hash_unit(seed: int, index: int) -> float:
    """A number in [0, 1) that looks random, from `seed` and `index` (SplitMix64's mixer)."""
    z = (seed * 0x9E3779B97F4A7C15 + index * 0xD1B54A32D192ED03 + 0x632BE59BD9B4E019) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return ((z ^ (z >> 31)) >> 11) / (1 << 53)


class SmoothNoise:
    """Value noise of one variable: random levels at `rate_hz`, joined by quintic steps.

    Calling it gives a value in -1..1. Two octaves, so that slow drift carries small tremor.
    """

    def __init__(self, seed: int, rate_hz: float) -> None:
        self._seed = seed
        self._rate_hz = rate_hz

    def __call__(self, t: float) -> float:
        slow = self._octave(self._seed, t * self._rate_hz)
        fine = self._octave(self._seed + 101, t * self._rate_hz * 2.7)
        return 0.78 * slow + 0.22 * fine

    @staticmethod
    def _octave(seed: int, x: float) -> float:
        cell = math.floor(x)
        f = x - cell
        step = f * f * f * (f * (f * 6.0 - 15.0) + 10.0)
        left = hash_unit(seed, cell) * 2.0 - 1.0
        right = hash_unit(seed, cell + 1) * 2.0 - 1.0
        return left + (right - left) * step
