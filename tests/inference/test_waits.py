"""Waits of jobs, in virtual time."""

from __future__ import annotations

import pytest

from avatar_server.clock import ManualClock
from avatar_server.inference.waits import Waits


def test_it_is_the_percentile_of_the_last_seconds() -> None:
    clock = ManualClock()
    waits = Waits(clock, window_s=10.0)
    assert waits.percentile_ms() == 0.0
    for number in range(20):
        waits.add(number / 10)
    assert waits.percentile_ms() == pytest.approx(1_400)
    clock.advance(6)
    for _ in range(3):
        waits.add(0.05)
    clock.advance(5)
    assert waits.percentile_ms() == pytest.approx(50), "the others are too long ago"
    clock.advance(6)
    assert waits.percentile_ms() == 0.0


def test_one_long_wait_among_few_is_no_alarm() -> None:
    waits = Waits(ManualClock())
    waits.add(5.0)
    assert waits.percentile_ms() == 0.0
    for _ in range(3):
        waits.add(0.01)
    assert waits.percentile_ms() == pytest.approx(10)
