"""Rate limits in virtual time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from avatar_server.clock import ManualClock
from avatar_server.security import RateLimiter
from avatar_server.security.ratelimit import MOST_BUCKETS


def test_a_burst_passes_then_the_rate_holds() -> None:
    clock = ManualClock()
    limiter = RateLimiter(per_minute=60, burst=3, clock=clock)
    assert [limiter.take("a") for _ in range(3)] == [0, 0, 0]
    assert limiter.take("a") == pytest.approx(1.0)
    clock.advance(0.4)
    assert limiter.take("a") == pytest.approx(0.6)
    clock.advance(0.6)
    assert limiter.take("a") == 0
    assert limiter.take("a") > 0


def test_callers_do_not_count_against_each_other() -> None:
    limiter = RateLimiter(per_minute=1, burst=1, clock=ManualClock())
    assert limiter.take("a") == 0
    assert limiter.take("b") == 0
    assert limiter.take("a") > 0


def test_memory_is_bounded() -> None:
    limiter = RateLimiter(per_minute=1, burst=1, clock=ManualClock())
    for number in range(MOST_BUCKETS + 500):
        limiter.take(str(number))
    assert len(limiter) == MOST_BUCKETS
    assert limiter.take(str(MOST_BUCKETS + 499)) > 0


@given(st.lists(st.floats(0, 5), max_size=200), st.integers(1, 20))
def test_never_more_than_the_burst_and_the_rate(steps: list[float], burst: int) -> None:
    clock = ManualClock()
    limiter = RateLimiter(per_minute=30, burst=burst, clock=clock)
    passed = 0
    for step in steps:
        clock.advance(step)
        passed += limiter.take("a") == 0
    assert passed <= burst + sum(steps) * 0.5 + 1e-6


@given(st.floats(0.1, 600), st.integers(1, 20))
def test_whoever_waits_as_told_is_let_through(per_minute: float, burst: int) -> None:
    clock = ManualClock()
    limiter = RateLimiter(per_minute, burst, clock)
    while not (wait := limiter.take("a")):
        pass
    clock.advance(wait)
    assert limiter.take("a") == 0
