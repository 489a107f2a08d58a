"""When an encode's cap has to be worked for, in virtual time."""

from __future__ import annotations

from avatar_server.avatar.encoder.rate_guard import RateGuard

CAP = 300_000


def run(guard: RateGuard, start: float, seconds: float, bps: float) -> float:
    """Pictures at 30 a second; the time at which the encoder had to be opened anew, or the end."""
    for k in range(round(seconds * 30)):
        now = start + k / 30
        if guard.must_change(at_keyframe=k % 30 == 0):
            return now
        guard.add(round(bps / 30), now)
    return start + seconds


def test_below_the_cap_nothing_is_done_for_it() -> None:
    guard = RateGuard(CAP)
    guard.add(200_000, 0.0)
    assert run(guard, 1 / 30, 60, 0.8 * CAP) == 1 / 30 + 60


def test_a_rate_above_the_cap_is_noticed_within_seconds() -> None:
    assert 0.4 < run(RateGuard(CAP), 0.0, 60, 3 * CAP) < 0.6
    assert run(RateGuard(CAP), 0.0, 60, 1.5 * CAP) < 2.5


def test_the_cap_is_let_go_of_at_a_keyframe_after_ten_quiet_seconds() -> None:
    guard = RateGuard(CAP)
    at = run(guard, 0.0, 60, 3 * CAP)
    guard.change()
    assert guard.capped
    assert run(guard, at, 30, 0.95 * CAP) == at + 30
    quiet = run(guard, at + 30, 60, 0.2 * CAP)
    assert at + 40 <= quiet <= at + 43
    assert not guard.must_change(at_keyframe=False)
    assert guard.must_change(at_keyframe=True)
