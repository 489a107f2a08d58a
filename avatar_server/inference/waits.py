"""How long jobs wait before they run: what overload is judged by."""

from __future__ import annotations

from collections import deque

from avatar_server.clock import Clock

WINDOW_S = 6.0
SHARE = 0.75
MIN_WAITS = 3
"""Fewer say nothing of the machine; and one long wait among few must not set off an alarm."""
MAX_WAITS = 512


class Waits:
    """Waits of the last seconds. One event loop's."""

    def __init__(self, clock: Clock, window_s: float = WINDOW_S) -> None:
        self._clock, self._window_s = clock, window_s
        self._waits: deque[tuple[float, float]] = deque(maxlen=MAX_WAITS)

    def add(self, seconds: float) -> None:
        """A job began after it had waited this long."""
        self._waits.append((self._clock.now(), seconds))

    def percentile_ms(self) -> float:
        """The 75th percentile in milliseconds; 0 where next to nothing waited of late."""
        oldest = self._clock.now() - self._window_s
        while self._waits and self._waits[0][0] < oldest:
            self._waits.popleft()
        if len(self._waits) < MIN_WAITS:
            return 0.0
        waits = sorted(wait for _, wait in self._waits)
        return 1e3 * waits[int(SHARE * (len(waits) - 1))]
