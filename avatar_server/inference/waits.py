"""How long jobs wait before they run: what overload is judged by."""

from __future__ import annotations

from collections import deque

from avatar_server.clock import Clock

WINDOW_S = 10.0
SHARE = 0.9
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
        """The 90th percentile in milliseconds; 0 where nothing waited of late."""
        oldest = self._clock.now() - self._window_s
        while self._waits and self._waits[0][0] < oldest:
            self._waits.popleft()
        if not self._waits:
            return 0.0
        waits = sorted(wait for _, wait in self._waits)
        return 1e3 * waits[min(len(waits) - 1, int(SHARE * len(waits)))]
