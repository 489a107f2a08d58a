"""The overload levels in virtual time."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from avatar_server.capacity.overload import Load, Overload, OverloadLevel
from avatar_server.clock import ManualClock
from avatar_server.config import OverloadSettings

SETTINGS = OverloadSettings()
HIGH = Load(late_share=0.2)
BETWEEN = Load(late_share=0.01)
LOW = Load()


def follow(
    overload: Overload, clock: ManualClock, seconds: int, load: Callable[[OverloadLevel], Load]
) -> list[tuple[float, OverloadLevel]]:
    """The changes of level while one load a second comes in."""
    changes = []
    for _ in range(seconds):
        clock.advance(1.0)
        before = overload.level
        if overload.update(load(before)) is not before:
            changes.append((clock.now(), overload.level))
    return changes


def machine(settings: OverloadSettings = SETTINGS) -> tuple[Overload, ManualClock]:
    clock = ManualClock()
    return Overload(settings, clock), clock


def test_it_goes_up_one_level_at_a_time_and_comes_all_the_way_back() -> None:
    overload, clock = machine()
    up = follow(overload, clock, 60, lambda _: HIGH)
    assert [level for _, level in up] == list(OverloadLevel)[1:]
    down = follow(overload, clock, 200, lambda _: LOW)
    assert [level for _, level in down] == list(reversed(OverloadLevel))[1:]
    assert overload.level is OverloadLevel.NONE
    assert overload.reason == ""


def test_each_step_waits_for_the_effect_of_the_one_before() -> None:
    overload, clock = machine()
    times = [at for at, _ in follow(overload, clock, 60, lambda _: HIGH)]
    assert all(later - at >= SETTINGS.settle_s for at, later in itertools.pairwise(times))
    assert times[0] >= SETTINGS.rise_s


def test_a_short_stall_changes_nothing() -> None:
    overload, clock = machine()
    for _ in range(50):
        assert not follow(overload, clock, 5, lambda _: HIGH)
        assert not follow(overload, clock, 3, lambda _: LOW)


def test_between_the_marks_everything_stays_as_it_is() -> None:
    overload, clock = machine()
    follow(overload, clock, 8, lambda _: HIGH)
    level = overload.level
    assert level
    assert not follow(overload, clock, 3_600, lambda _: BETWEEN)
    assert overload.level is level


@pytest.mark.parametrize(
    ("load", "words"),
    [
        (Load(late_share=0.2), "20% of a session's frames are late"),
        (Load(frame_cost=0.95), "a frame takes 95%"),
        (Load(wait_ms=900), "wait 900 ms"),
    ],
)
def test_every_kind_of_load_raises_the_level_and_is_named(load: Load, words: str) -> None:
    overload, clock = machine()
    follow(overload, clock, 7, lambda _: load)
    assert overload.level is OverloadLevel.NO_PARTIALS
    assert words in overload.reason


def test_switched_off_it_does_nothing() -> None:
    overload, clock = machine(OverloadSettings(enabled=False))
    assert not follow(overload, clock, 100, lambda _: HIGH)


@pytest.mark.parametrize("needed", list(OverloadLevel)[1:])
def test_a_measure_that_is_needed_all_the_time_is_not_tried_without_for_ever_again(
    needed: OverloadLevel,
) -> None:
    """The load is high without the measure and low with it: the worst case for hysteresis."""
    overload, clock = machine()
    changes = follow(overload, clock, 3_600, lambda level: LOW if level >= needed else HIGH)
    assert overload.level >= needed - 1
    rises = [at for at, level in changes if level is needed]
    assert len(rises) <= 20, "no more than every three minutes on average"
    gaps = [later - at for at, later in itertools.pairwise(rises)]
    assert gaps[-1] > 200, "and ever more seldom"


def test_after_a_long_quiet_time_the_next_overload_is_short_again() -> None:
    overload, clock = machine()
    for _ in range(4):
        follow(overload, clock, 8, lambda _: HIGH)
        follow(overload, clock, 400, lambda _: LOW)
    assert overload.level is OverloadLevel.NONE
    follow(overload, clock, 7, lambda _: HIGH)
    changes = follow(overload, clock, round(SETTINGS.fall_s) + 2, lambda _: LOW)
    assert [level for _, level in changes] == [OverloadLevel.NONE]


@given(st.lists(st.sampled_from([HIGH, BETWEEN, LOW]), max_size=400))
def test_whatever_comes_it_moves_by_one_and_never_twice_within_the_settling_time(
    loads: list[Load],
) -> None:
    overload, clock = machine()
    level, changed_at = overload.level, -100.0
    for load in loads:
        clock.advance(1.0)
        now = overload.update(load)
        if now is not level:
            assert abs(now - level) == 1
            assert clock.now() - changed_at >= SETTINGS.settle_s
            assert (now > level) == (load is HIGH)
            level, changed_at = now, clock.now()


@given(st.lists(st.sampled_from([HIGH, BETWEEN, LOW]), max_size=200))
def test_quiet_always_ends_it(loads: list[Load]) -> None:
    overload, clock = machine()
    for load in loads:
        clock.advance(1.0)
        overload.update(load)
    follow(overload, clock, 2_000, lambda _: LOW)
    assert overload.level is OverloadLevel.NONE
