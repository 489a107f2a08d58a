"""Virtual hardware: events in order of time, and devices whose steps share their capacity."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable

from avatar_server.clock import ManualClock

LEAST_SPEED = 0.02
"""Of a step on a device that frames have taken whole: virtual time must go on."""


class Timeline:
    """Calls at moments of virtual time."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self._order = itertools.count()
        self._calls: list[tuple[float, int, Callable[[], None]]] = []

    def now(self) -> float:
        return self.clock.now()

    def at(self, when: float, call: Callable[[], None]) -> None:
        """Call at `when` (s), or now where that is past."""
        heapq.heappush(self._calls, (max(when, self.now()), next(self._order), call))

    def after(self, seconds: float, call: Callable[[], None]) -> None:
        self.at(self.now() + seconds, call)

    def run(self, until: float, after_each: Callable[[], None]) -> None:
        """Run all calls due by `until`; `after_each` is called once for each moment."""
        while self._calls and self._calls[0][0] <= until:
            when = self._calls[0][0]
            self.clock.advance(max(0.0, when - self.now()))
            while self._calls and self._calls[0][0] <= when:
                heapq.heappop(self._calls)[2]()
            after_each()
        self.clock.advance(max(0.0, until - self.now()))


class SharedDevice:
    """Steps that run at once share the capacity equally; none is faster than alone.

    `background` is capacity taken by what goes before all steps (frames, where the operating
    system gives them priority). It comes in short pieces on any core: each core is taken by it
    for the same share of time, now together with another and now not, so that a lone step on two
    half-taken cores gets one of them for three quarters of the time, and not always.
    """

    def __init__(self, timeline: Timeline, capacity: float) -> None:
        self._timeline = timeline
        self.capacity = capacity
        self.background = 0.0
        self.busy_s = 0.0
        """Capacity-seconds used by steps and the background so far."""
        self._left: dict[int, float] = {}
        self._done: dict[int, Callable[[], None]] = {}
        self._ids = itertools.count()
        self._at = timeline.now()
        self._version = 0

    def start(self, seconds: float, done: Callable[[], None]) -> None:
        """Run a step that takes `seconds` alone, then call `done`."""
        self._advance()
        number = next(self._ids)
        self._left[number], self._done[number] = max(seconds, 1e-6), done
        self._plan()

    def set_background(self, cores: float) -> None:
        """From now on this much is taken by what goes first."""
        self._advance()
        self.background = cores
        self._plan()

    def settle(self) -> None:
        """Bring `busy_s` up to now."""
        self._advance()

    @property
    def _speed(self) -> float:
        if not self._left:
            return 0.0
        steps = len(self._left)
        free = self.capacity - self.background
        rate = min(free, _cores_at_work(steps, math.ceil(self.capacity), free / self.capacity))
        return min(1.0, max(LEAST_SPEED, rate / steps))

    def _advance(self) -> None:
        now = self._timeline.now()
        passed, self._at = now - self._at, now
        if passed <= 0:
            return
        work = passed * self._speed
        for number in self._left:
            self._left[number] -= work
        used = self.background + self._speed * len(self._left)
        self.busy_s += passed * min(self.capacity, used)

    def _plan(self) -> None:
        self._version += 1
        if not self._left:
            return
        version = self._version
        self._timeline.after(
            max(0.0, min(self._left.values())) / self._speed, lambda: self._finish(version)
        )

    def _finish(self, version: int) -> None:
        if version != self._version:
            return
        self._advance()
        over = [number for number, left in self._left.items() if left <= 1e-9]
        calls = []
        for number in over:
            del self._left[number]
            calls.append(self._done.pop(number))
        self._plan()
        for call in calls:
            call()


def _cores_at_work(steps: int, cores: int, free: float) -> float:
    """Of `cores` that are each free for that share of time, how many work on `steps` at a moment:
    the mean of the lesser of `steps` and the free cores, which are binomially distributed."""
    return sum(
        min(steps, k) * math.comb(cores, k) * free**k * (1 - free) ** (cores - k)
        for k in range(1, cores + 1)
    )
