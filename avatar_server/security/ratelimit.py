"""Token buckets by address or key: pure, under an injected clock, in bounded memory."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from avatar_server.clock import Clock

MOST_BUCKETS = 10_000
"""Beyond it the longest unused is forgotten, which forgives its owner and nobody else."""


@dataclass(slots=True)
class _Bucket:
    tokens: float
    at: float


class RateLimiter:
    """Each caller may do `burst` things at once, and `per_minute` a minute in the long run."""

    def __init__(self, per_minute: float, burst: int, clock: Clock) -> None:
        if per_minute <= 0 or burst < 1:
            raise ValueError("a rate and a burst must be positive")
        self._rate = per_minute / 60
        self._burst = burst
        self._clock = clock
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def take(self, caller: str) -> float:
        """0 where the caller may go on; else the seconds after which it may."""
        now = self._clock.now()
        bucket = self._buckets.get(caller)
        if bucket is None:
            bucket = _Bucket(float(self._burst), now)
            self._buckets[caller] = bucket
            if len(self._buckets) > MOST_BUCKETS:
                self._buckets.popitem(last=False)
        self._buckets.move_to_end(caller)
        bucket.tokens = min(self._burst, bucket.tokens + (now - bucket.at) * self._rate)
        bucket.at = now
        # The sum of many small steps may miss 1 by a rounding error.
        if bucket.tokens >= 1 - 1e-9:
            bucket.tokens -= 1
            return 0.0
        return (1 - bucket.tokens) / self._rate

    def __len__(self) -> int:
        return len(self._buckets)
