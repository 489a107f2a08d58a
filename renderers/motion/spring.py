"""Targets jump, faces do not: critically damped springs between the two."""

from __future__ import annotations

import math


class Spring:
    """A critically damped spring; `half_life_s` is about how long half of a jump takes.

    Stepped exactly (closed form), so it is stable for any step.
    """

    __slots__ = ("_omega", "value", "velocity")

    def __init__(self, half_life_s: float, value: float = 0.0) -> None:
        # For critical damping x(t) = (1 + wt) exp(-wt) falls to one half at wt = 1.678.
        self._omega = 1.678 / half_life_s
        self.value = value
        self.velocity = 0.0

    def step(self, target: float, dt: float) -> float:
        """Move towards `target` for `dt` seconds and return the new value."""
        omega = self._omega
        offset = self.value - target
        decay = math.exp(-omega * dt)
        slope = self.velocity + omega * offset
        self.value = target + (offset + slope * dt) * decay
        self.velocity = (self.velocity - omega * slope * dt) * decay
        return self.value
