"""When a process that ended unasked is started again: pure policy under an injected clock."""

from __future__ import annotations

from collections import deque

from avatar_server.clock import Clock

WINDOW_S = 60.0
FIRST_BACKOFF_S = 0.25
MAX_BACKOFF_S = 5.0


class RestartPolicy:
    """The first restart in a minute is immediate, each further one waits twice as long.

    After `limit_per_minute` restarts within a minute there is no further one until the oldest of
    them is a minute old.
    """

    def __init__(self, limit_per_minute: int, clock: Clock) -> None:
        self._limit = limit_per_minute
        self._clock = clock
        self._recent: deque[float] = deque()

    def exhausted(self) -> bool:
        """Whether the limit has been reached."""
        self._forget()
        return len(self._recent) >= self._limit

    def delay_s(self) -> float:
        """Count a restart and say how long to wait before it."""
        self._forget()
        now = self._clock.now()
        if len(self._recent) >= self._limit:
            # Not the oldest that is remembered: one on the edge of the minute may be there yet.
            wait = max(0.0, self._recent[-self._limit] + WINDOW_S - now)
        elif not self._recent:
            wait = 0.0
        else:
            wait = min(MAX_BACKOFF_S, FIRST_BACKOFF_S * 2 ** (len(self._recent) - 1))
        self._recent.append(now + wait)
        return wait

    def _forget(self) -> None:
        oldest = self._clock.now() - WINDOW_S
        while self._recent and self._recent[0] <= oldest:
            self._recent.popleft()


def cause_label(cause: str) -> str:
    """A word for metrics, of which there are few, for a sentence of which there are many."""
    if "signal" in cause:
        return "killed"
    if "sign of life" in cause or "not ready" in cause:
        return "hang"
    return "exit"
