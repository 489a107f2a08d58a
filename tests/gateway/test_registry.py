"""Sessions and viewers as bookkeeping, in virtual time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from avatar_server.clock import ManualClock
from avatar_server.config import SessionSettings
from avatar_server.gateway.registry import (
    JOIN_SETTLES_S,
    YIELD_AFTER_S,
    Full,
    NotRunning,
    Registry,
    SessionState,
    UnknownSession,
    UnknownViewer,
)
from avatar_server.protocol.messages import AvatarStatus


def registry(clock: ManualClock, **limits: float) -> Registry:
    return Registry(SessionSettings(**limits), clock)  # type: ignore[arg-type]


def status(session: str, *viewers: str, count: int | None = None) -> AvatarStatus:
    number = len(viewers) if count is None else count
    return AvatarStatus(session=session, state="idle", viewers=number, viewer_ids=list(viewers))


def test_a_place_is_taken_from_the_start_and_free_at_the_end() -> None:
    places = registry(ManualClock(), max_sessions=1)
    places.add("a", "ana")
    with pytest.raises(Full, match="All 1 sessions"):
        places.add("b", "ana")
    places.remove("a")
    places.remove("a")
    assert places.free == 1
    places.add("b", "ana")


def test_nobody_joins_before_the_avatar_is_ready_or_while_it_is_replaced() -> None:
    places = registry(ManualClock())
    places.add("a", "ana")
    with pytest.raises(NotRunning):
        places.begin_join("a", "v")
    places.ready("a")
    places.begin_join("a", "v")
    places.lost("a")
    assert places.get("a").state is SessionState.RESTARTING
    with pytest.raises(NotRunning):
        places.begin_join("a", "w")


def test_a_join_that_the_restart_overtook_takes_no_place() -> None:
    places = registry(ManualClock())
    places.add("a", "ana")
    places.ready("a")
    places.begin_join("a", "v")
    places.lost("a")
    places.ready("a")
    assert not places.joined("a", "v")
    assert places.get("a").viewer_count == 0


def test_unknown_sessions_and_viewers_are_told_apart() -> None:
    places = registry(ManualClock())
    with pytest.raises(UnknownSession):
        places.require_viewer("a", "v")
    places.add("a", "ana")
    with pytest.raises(UnknownViewer):
        places.require_viewer("a", "v")
    assert not places.leave("a", "v")
    assert not places.leave("b", "v")


def test_a_viewer_missing_from_a_status_loses_its_place_once_its_join_has_settled() -> None:
    clock = ManualClock()
    places = registry(clock)
    places.add("a", "ana")
    places.ready("a")
    for viewer in ("v", "w"):
        places.begin_join("a", viewer)
        places.joined("a", viewer)
    places.status(status("a", "w"))
    places.require_viewer("a", "v")
    clock.advance(JOIN_SETTLES_S)
    places.status(status("a", "w"))
    with pytest.raises(UnknownViewer):
        places.require_viewer("a", "v")
    places.require_viewer("a", "w")


def test_a_status_whose_names_do_not_match_its_count_removes_nobody() -> None:
    clock = ManualClock()
    places = registry(clock)
    places.add("a", "ana")
    places.ready("a")
    places.begin_join("a", "v")
    places.joined("a", "v")
    clock.advance(60)
    places.status(status("a", count=1))
    places.require_viewer("a", "v")


def test_a_session_is_idle_only_after_the_whole_timeout_without_viewers() -> None:
    clock = ManualClock()
    places = registry(clock, idle_timeout_s=30)
    places.add("a", "ana")
    clock.advance(100)
    assert places.idle() == [], "one that is starting is not idle"
    places.ready("a")
    clock.advance(29)
    assert places.idle() == []
    places.begin_join("a", "v")
    places.joined("a", "v")
    clock.advance(100)
    assert places.idle() == []
    places.leave("a", "v")
    clock.advance(29)
    assert places.idle() == []
    clock.advance(1)
    assert places.idle() == ["a"]


def test_viewers_of_a_replaced_avatar_get_the_whole_timeout_to_come_back() -> None:
    clock = ManualClock()
    places = registry(clock, idle_timeout_s=30)
    places.add("a", "ana")
    places.ready("a")
    clock.advance(20)
    places.lost("a")
    clock.advance(20)
    assert places.idle() == []
    places.ready("a")
    clock.advance(29)
    assert places.idle() == []


def test_a_viewer_who_connects_anew_keeps_its_place_in_a_full_session() -> None:
    clock = ManualClock()
    places = registry(clock, max_viewers=1)
    running(places, "a", "v")
    clock.advance(JOIN_SETTLES_S)
    places.begin_return("a", "v")
    places.status(status("a"))
    assert places.get("a").viewer_count == 1
    assert places.joined("a", "v")
    places.status(status("a"))
    places.require_viewer("a", "v")
    with pytest.raises(UnknownViewer, match="Join again"):
        places.begin_return("a", "w")
    places.lost("a")
    with pytest.raises(UnknownViewer):
        places.begin_return("a", "v")


def running(places: Registry, session: str, *viewers: str) -> None:
    places.add(session, "ana")
    places.ready(session)
    for viewer in viewers:
        places.begin_join(session, viewer)
        places.joined(session, viewer)


def test_a_session_everybody_said_goodbye_to_gives_way_at_once() -> None:
    clock = ManualClock()
    places = registry(clock, max_sessions=1, idle_timeout_s=30)
    running(places, "a", "v", "w")
    places.leave("a", "v", goodbye=True)
    clock.advance(YIELD_AFTER_S)
    assert (places.free, places.give_way()) == (0, None), "somebody is still there"
    places.leave("a", "w", goodbye=True)
    assert places.free == 0, "a page that is loaded anew comes back"
    clock.advance(YIELD_AFTER_S)
    assert places.free == 1
    with pytest.raises(Full):
        places.add("b", "ana")
    assert places.give_way() == "a"
    places.remove("a")
    places.add("b", "ana")
    assert places.idle() == []


def test_a_session_is_kept_while_there_is_another_place() -> None:
    clock = ManualClock()
    places = registry(clock, max_sessions=2)
    running(places, "a", "v")
    places.leave("a", "v", goodbye=True)
    clock.advance(YIELD_AFTER_S)
    assert places.give_way() is None
    assert places.free == 2


def test_the_session_longest_empty_gives_way_first() -> None:
    clock = ManualClock()
    places = registry(clock, max_sessions=2)
    running(places, "a", "v")
    running(places, "b", "w")
    places.leave("b", "w", goodbye=True)
    clock.advance(1)
    places.leave("a", "v", goodbye=True)
    clock.advance(YIELD_AFTER_S)
    assert places.yielding() == ["b", "a"]


def test_who_comes_back_keeps_the_session() -> None:
    clock = ManualClock()
    places = registry(clock, max_sessions=1)
    running(places, "a", "v")
    places.leave("a", "v", goodbye=True)
    places.begin_join("a", "w")
    clock.advance(YIELD_AFTER_S)
    assert places.free == 0
    places.leave("a", "w")
    clock.advance(YIELD_AFTER_S)
    assert places.free == 0, "a join that failed is no goodbye"


def test_sessions_whose_viewers_vanished_or_are_yet_to_come_are_kept() -> None:
    clock = ManualClock()
    places = registry(clock, max_sessions=2, idle_timeout_s=30)
    running(places, "fresh")
    running(places, "vanished", "v")
    clock.advance(JOIN_SETTLES_S)
    places.status(status("vanished"))
    clock.advance(29)
    assert places.free == 0
    places.lost("vanished")
    places.ready("vanished")
    clock.advance(29)
    assert places.yielding() == []


def test_a_goodbye_that_only_the_avatar_heard_counts() -> None:
    clock = ManualClock()
    places = registry(clock, max_sessions=1)
    running(places, "a", "v")
    clock.advance(JOIN_SETTLES_S)
    said = status("a")
    said.abandoned = True
    places.status(said)
    clock.advance(YIELD_AFTER_S)
    assert places.give_way() == "a"


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["begin", "joined", "leave", "status", "lost", "ready", "wait"]),
            st.sampled_from("uvwxyz"),
        ),
        max_size=60,
    )
)
def test_never_more_viewers_than_allowed_whatever_happens(steps: list[tuple[str, str]]) -> None:
    clock = ManualClock()
    places = registry(clock, max_viewers=3)
    places.add("a", "ana")
    present: set[str] = set()
    for step, viewer in steps:
        entry = places.get("a")
        if step == "begin" and viewer not in entry.joining and viewer not in entry.viewers:
            try:
                places.begin_join("a", viewer)
            except (Full, NotRunning):
                continue
        elif step == "joined" and places.joined("a", viewer):
            present.add(viewer)
        elif step == "leave":
            places.leave("a", viewer)
            present.discard(viewer)
        elif step == "status":
            places.status(status("a", *present))
        elif step == "lost":
            places.lost("a")
            present.clear()
        elif step == "ready":
            places.ready("a")
        elif step == "wait":
            clock.advance(2)
        assert len(entry.viewers) + len(entry.joining) <= 3
        assert present <= set(entry.viewers)


def test_when_a_place_will_be_free_is_known_where_a_session_is_empty() -> None:
    clock = ManualClock()
    places = registry(clock, max_sessions=3, idle_timeout_s=30)
    assert places.free_in_s() is None
    places.add("always-on", "ana", pinned=True)
    places.ready("always-on")
    assert places.free_in_s() is None, "one that is always on does not end"
    places.add("a", "ana")
    assert places.free_in_s() is None, "one that starts is not empty"
    places.ready("a")
    clock.advance(12)
    assert places.free_in_s() == 18
    places.begin_join("a", "v")
    assert places.free_in_s() is None
    places.leave("a", "v")
    clock.advance(100)
    assert places.free_in_s() == 0.0


def test_places_may_become_fewer_while_sessions_run() -> None:
    fit = 2
    places = Registry(SessionSettings(), ManualClock(), lambda: fit)
    places.add("a", "ana")
    places.add("b", "ana")
    fit = 1
    assert places.free == 0
    with pytest.raises(Full, match="All 1 sessions"):
        places.add("c", "ana")
    places.remove("a")
    assert places.free == 0
    places.remove("b")
    assert places.free == 1
