"""Blinks and gaze."""

from __future__ import annotations

import math
from random import Random

from renderers.contract import Attitude

# Spontaneous blinks: 15-20 a minute in conversation (Bentivoglio et al. 1997); closing takes
# about 90 ms, opening about twice that (Trutoiu et al. 2011).
_CLOSE_S = 0.085
_HOLD_S = 0.030
_OPEN_S = 0.170
_MEAN_GAP_S = {
    Attitude.IDLE: 3.6,
    Attitude.LISTENING: 3.9,
    Attitude.THINKING: 2.6,
    Attitude.SPEAKING: 2.7,
}


class Blinks:
    """When the lids close. `value(t)` must be called with times that do not go back."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._start = random.uniform(0.8, 2.0)
        self._again = False

    def value(self, t: float, attitude: Attitude) -> float:
        """Lid closure 0..1 at time `t`."""
        if t > self._start + _CLOSE_S + _HOLD_S + _OPEN_S:
            self._plan(t, attitude)
        return closure(t - self._start)

    def soon(self, t: float) -> None:
        """A blink goes with a large movement of the eyes or head."""
        if self._start > t + 0.05:
            self._start = t + 0.03

    def _plan(self, t: float, attitude: Attitude) -> None:
        if not self._again and self._random.random() < 0.12:
            self._again = True
            self._start = t + self._random.uniform(0.08, 0.18)
            return
        self._again = False
        gap = self._random.gammavariate(3.0, _MEAN_GAP_S[attitude] / 3.0)
        self._start = t + min(max(gap, 0.7), 9.0)


def closure(since_start: float) -> float:
    """Lid closure at `since_start` seconds into a blink."""
    if since_start <= 0:
        return 0.0
    if since_start < _CLOSE_S:
        x = since_start / _CLOSE_S
        return x * x * (3 - 2 * x)
    if since_start < _CLOSE_S + _HOLD_S:
        return 1.0
    x = (since_start - _CLOSE_S - _HOLD_S) / _OPEN_S
    if x >= 1:
        return 0.0
    return 1.0 - math.sin(x * math.pi / 2)


class Gaze:
    """Where the eyes rest, in jumps (saccades), with the tremor between them."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._next = random.uniform(0.4, 1.2)
        self._away = False
        self._tremor_at = 0.0
        self._tremor = (0.0, 0.0)
        self.x = 0.0
        self.y = 0.0
        self.jumped = False

    def step(self, t: float, attitude: Attitude) -> tuple[float, float]:
        """Target gaze (x right, y up, -1..1) at time `t`; `jumped` says a large saccade began."""
        self.jumped = False
        if t >= self._next:
            self._jump(t, attitude)
        if t >= self._tremor_at:
            self._tremor_at = t + self._random.uniform(0.25, 0.8)
            self._tremor = (self._random.gauss(0, 0.018), self._random.gauss(0, 0.014))
        return self.x + self._tremor[0], self.y + self._tremor[1]

    def retarget(self, t: float) -> None:
        """The attitude changed: look anew within a moment."""
        self._next = min(self._next, t + self._random.uniform(0.05, 0.2))
        self._away = False

    def _jump(self, t: float, attitude: Attitude) -> None:
        r = self._random
        before = (self.x, self.y)
        if attitude is Attitude.THINKING:
            side = r.choice((-1.0, 1.0)) if not self._away else math.copysign(1.0, self.x)
            self.x, self.y = side * r.uniform(0.3, 0.6), r.uniform(0.2, 0.5)
            self._away = True
            self._next = t + r.uniform(0.5, 1.4)
        elif attitude is Attitude.LISTENING:
            self._look(r, away_chance=0.08, reach=0.3)
            self._next = t + (r.uniform(0.5, 0.9) if self._away else r.uniform(1.2, 3.2))
        elif attitude is Attitude.SPEAKING:
            self._look(r, away_chance=0.22, reach=0.4)
            self._next = t + (r.uniform(0.4, 0.9) if self._away else r.uniform(1.0, 2.6))
        else:
            self._look(r, away_chance=0.3, reach=0.55)
            self._next = t + (r.uniform(0.6, 1.6) if self._away else r.uniform(1.4, 4.0))
        self.jumped = math.hypot(self.x - before[0], self.y - before[1]) > 0.3

    def _look(self, r: Random, *, away_chance: float, reach: float) -> None:
        self._away = not self._away and r.random() < away_chance
        if self._away:
            self.x, self.y = r.uniform(-reach, reach), r.uniform(-reach * 0.6, reach * 0.4)
        else:
            # People look at one of the other's eyes, or at the mouth, and change often.
            self.x, self.y = r.choice(((-0.05, 0.02), (0.05, 0.02), (0.0, -0.05)))
