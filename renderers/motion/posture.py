"""How a head is held: changed now and then, and with the clauses of what is said."""

from __future__ import annotations

import bisect
from random import Random
from typing import NamedTuple

from renderers.contract import Attitude


class Held(NamedTuple):
    """Degrees, and sway -1..1."""

    yaw: float = 0.0
    pitch: float = 0.0
    roll: float = 0.0
    sway: float = 0.0


# How far postures lie from the middle.
_REACH = {
    Attitude.IDLE: Held(4.0, 1.2, 1.8, 0.45),
    Attitude.LISTENING: Held(2.2, 0.6, 2.2, 0.25),
    Attitude.THINKING: Held(4.0, 1.6, 1.8, 0.25),
    Attitude.SPEAKING: Held(3.4, 1.0, 2.0, 0.30),
}
# Mean seconds between changes; the least is a fifth of it.
_MEAN_S = {
    Attitude.IDLE: 11.0,
    Attitude.LISTENING: 7.0,
    Attitude.THINKING: 3.0,
    Attitude.SPEAKING: 4.5,
}


_LEAST_S = 1.2
"""Between changes: more often looks restless."""
_PLANNED = 16


class Posture:
    """The posture aimed for. `step` must be called with times that do not go back."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._next = random.uniform(2.0, 6.0)
        self._since = -_LEAST_S
        self._planned: list[float] = []
        self._held = Held()

    def change_at(self, t: float) -> None:
        """A phrase begins at media time `t`: people move with it."""
        bisect.insort(self._planned, t)
        del self._planned[_PLANNED:]

    def forget_after(self, t: float) -> None:
        """What was to begin after media time `t` will not."""
        del self._planned[bisect.bisect_right(self._planned, t) :]

    def step(self, t: float, attitude: Attitude) -> Held:
        """The posture at media time `t`."""
        due = t >= self._next
        passed = bisect.bisect_right(self._planned, t)
        if passed:
            del self._planned[:passed]
            due = True
        if due and t - self._since >= _LEAST_S:
            self._since = t
            r, mean = self._random, _MEAN_S[attitude]
            # Gaussian, so that most are near the middle, and a far one comes now and then.
            self._held = Held(*(reach * _gauss(r) for reach in _REACH[attitude]))
            self._next = t + min(max(r.expovariate(1.0 / mean), mean / 5), 4 * mean)
        return self._held


def _gauss(random: Random) -> float:
    return min(max(random.gauss(0.0, 0.5), -1.0), 1.0)
