"""When a lost process is started again, in virtual time."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from avatar_server.clock import ManualClock
from avatar_server.gateway.restarts import MAX_BACKOFF_S, WINDOW_S, RestartPolicy


def test_the_first_restart_is_immediate_and_each_further_one_waits_longer() -> None:
    clock = ManualClock()
    policy = RestartPolicy(10, clock)
    delays = [policy.delay_s() for _ in range(8)]
    assert delays[0] == 0
    assert delays[1:5] == [0.25, 0.5, 1.0, 2.0]
    assert max(delays) == MAX_BACKOFF_S


def test_after_a_quiet_minute_a_restart_is_immediate_again() -> None:
    clock = ManualClock()
    policy = RestartPolicy(3, clock)
    for _ in range(3):
        policy.delay_s()
    assert policy.exhausted()
    clock.advance(WINDOW_S + MAX_BACKOFF_S)
    assert not policy.exhausted()
    assert policy.delay_s() == 0


@example(1, [1.3289724721116216, 0.0, 0.0, 0.0])
@given(st.integers(1, 8), st.lists(st.floats(0, 30, allow_nan=False), min_size=1, max_size=60))
def test_no_minute_has_more_restarts_than_the_limit(limit: int, lives: list[float]) -> None:
    clock = ManualClock()
    policy = RestartPolicy(limit, clock)
    starts: list[float] = []
    for life_s in lives:
        clock.advance(life_s)
        clock.advance(policy.delay_s())
        starts.append(clock.now())
    for index, start in enumerate(starts):
        within = [other for other in starts[index:] if other < start + WINDOW_S - 1e-6]
        assert len(within) <= limit
