"""Time is injected: logic takes a `Clock`, so that tests can run hours in virtual time."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """A monotonic clock."""

    def now(self) -> float:
        """Seconds since an arbitrary fixed point; never goes back."""
        ...


class MonotonicClock:
    """The machine's monotonic clock, which all processes of one Linux host share."""

    def now(self) -> float:
        return time.monotonic()


class ManualClock:
    """A clock that moves only when told to, for tests and simulations."""

    def __init__(self, start: float = 0.0) -> None:
        self._now = start

    def now(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        """Move forward by `seconds`, which must not be negative."""
        if seconds < 0:
            raise ValueError(f"a clock cannot go back (asked to advance by {seconds} s)")
        self._now += seconds
