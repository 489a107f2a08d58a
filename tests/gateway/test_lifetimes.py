"""Maximum session time, draining, and sessions that are always on: in virtual time."""

from __future__ import annotations

from typing import Any

import pytest

from avatar_server.clock import ManualClock
from avatar_server.config import SessionSettings
from avatar_server.gateway.lifetimes import REJOIN_S, RETRY_S, TAIL_S, Lifetimes
from avatar_server.gateway.registry import Registry
from avatar_server.protocol.messages import AvatarStatus


def make(**limits: Any) -> tuple[Lifetimes, Registry, ManualClock]:
    settings = SessionSettings(max_sessions=8, **limits)
    clock = ManualClock()
    registry = Registry(settings, clock)
    return Lifetimes(settings, registry, clock), registry, clock


def run(registry: Registry, session: str, avatar: str = "theo", **more: Any) -> None:
    registry.add(session, avatar, **more)
    registry.ready(session, 1)


def watched(registry: Registry, session: str, viewer: str = "v") -> None:
    registry.begin_join(session, viewer)
    registry.joined(session, viewer)


def test_without_a_limit_nothing_ends() -> None:
    lifetimes, registry, clock = make()
    run(registry, "a")
    clock.advance(1e6)
    assert lifetimes.notices() == []
    assert lifetimes.endings() == []


def test_a_session_is_told_of_its_end_once_and_then_ended() -> None:
    lifetimes, registry, clock = make(max_session_s=600, notice_s=60)
    run(registry, "a")
    watched(registry, "a")
    clock.advance(539)
    assert lifetimes.notices() == []
    clock.advance(2)
    assert lifetimes.notices() == [("a", 59.0)]
    assert lifetimes.notices() == []
    assert lifetimes.endings() == []
    clock.advance(59)
    (ending,) = lifetimes.endings()
    assert (ending.session, ending.why) == ("a", "time")


def doing(registry: Registry, session: str, state: str) -> None:
    registry.status(AvatarStatus(session=session, state=state, viewers=1, viewer_ids=["v"]))


@pytest.mark.parametrize("state", ["hearing", "thinking", "speaking"])
@pytest.mark.parametrize("drained", [False, True])
def test_a_turn_that_is_going_on_is_finished(state: str, drained: bool) -> None:
    lifetimes, registry, clock = make(max_session_s=None if drained else 600, turn_grace_s=15)
    run(registry, "a")
    watched(registry, "a")
    if drained:
        lifetimes.drain(600)
    clock.advance(600)
    doing(registry, "a", state)
    assert lifetimes.endings() == []
    clock.advance(14)
    doing(registry, "a", state)
    assert lifetimes.endings() == []
    doing(registry, "a", "idle")
    clock.advance(TAIL_S / 2)
    assert lifetimes.endings() == [], "its last words are on their way"
    clock.advance(TAIL_S / 2)
    assert [ending.session for ending in lifetimes.endings()] == ["a"]


def test_a_turn_without_end_is_not_waited_for_longer_than_said() -> None:
    lifetimes, registry, clock = make(max_session_s=600, turn_grace_s=15)
    run(registry, "a")
    watched(registry, "a")
    clock.advance(614.9)
    doing(registry, "a", "speaking")
    assert lifetimes.endings() == []
    clock.advance(0.1)
    assert [ending.session for ending in lifetimes.endings()] == ["a"]


def test_those_that_are_always_on_have_no_maximum() -> None:
    lifetimes, registry, clock = make(max_session_s=60, always_on=["theo"])
    run(registry, "a", pinned=True)
    clock.advance(1_000)
    assert lifetimes.notices() == []
    assert lifetimes.endings() == []


def test_draining_tells_everybody_and_ends_the_last_at_the_deadline() -> None:
    lifetimes, registry, clock = make(notice_s=60)
    run(registry, "a")
    watched(registry, "a")
    assert not lifetimes.draining
    lifetimes.drain(100)
    assert lifetimes.draining
    assert lifetimes.seconds_left == 100
    assert lifetimes.notices() == []
    clock.advance(40)
    assert lifetimes.notices() == [("a", 60.0)]
    clock.advance(59)
    assert lifetimes.endings() == []
    clock.advance(1)
    (ending,) = lifetimes.endings()
    assert (ending.session, ending.why) == ("a", "drained")
    assert not lifetimes.drained
    registry.remove("a")
    assert lifetimes.drained


def test_draining_ends_what_nobody_watches_but_waits_for_whoever_lost_the_connection() -> None:
    lifetimes, registry, clock = make(idle_timeout_s=1e5)
    run(registry, "a")
    watched(registry, "a")
    clock.advance(1_000)
    lifetimes.drain(10_000)
    registry.leave("a", "v")
    assert lifetimes.may_join(registry.get("a"))
    clock.advance(REJOIN_S - 1)
    assert lifetimes.endings() == []
    watched(registry, "a", "w")
    clock.advance(500)
    assert lifetimes.endings() == []
    registry.leave("a", "w")
    clock.advance(REJOIN_S)
    assert not lifetimes.may_join(registry.get("a"))
    assert [ending.session for ending in lifetimes.endings()] == ["a"]


def test_a_drain_can_be_taken_back() -> None:
    lifetimes, _, _ = make(always_on=["theo"])
    lifetimes.drain(10)
    assert lifetimes.missing() == []
    assert lifetimes.drained
    lifetimes.go_on()
    assert not lifetimes.draining
    assert lifetimes.seconds_left is None
    assert lifetimes.missing() == ["theo"]


def test_what_is_always_on_is_started_and_replaced() -> None:
    lifetimes, registry, clock = make(always_on=["theo", "theo", "vox"])
    assert sorted(lifetimes.missing()) == ["theo", "theo", "vox"]
    assert lifetimes.missing() == []
    for session, avatar in (("a", "theo"), ("b", "theo"), ("c", "vox")):
        run(registry, session, avatar, pinned=True)
        lifetimes.started(avatar)
    run(registry, "d", "theo")
    clock.advance(100)
    assert lifetimes.missing() == []
    registry.remove("b")
    assert lifetimes.missing() == ["theo"]


def test_what_cannot_be_started_is_tried_again_and_not_in_a_frenzy() -> None:
    lifetimes, _, clock = make(always_on=["theo"])
    assert lifetimes.missing() == ["theo"]
    clock.advance(RETRY_S - 1)
    assert lifetimes.missing() == []
    clock.advance(1)
    assert lifetimes.missing() == ["theo"]


def test_what_is_always_on_is_not_idle_and_gives_no_way() -> None:
    _, registry, clock = make(always_on=["theo"], idle_timeout_s=5)
    run(registry, "a", pinned=True)
    watched(registry, "a")
    registry.leave("a", "v", goodbye=True)
    clock.advance(1_000)
    assert registry.idle() == []
    assert registry.yielding() == []
    assert registry.unused("theo") is not None
    assert registry.unused("vox") is None
