"""The queue before one resource, in virtual time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from avatar_server.clock import ManualClock
from avatar_server.inference.scheduler import Job, ResourceQueue, Urgency


def make(clock: ManualClock | None = None, **options: float) -> tuple[ManualClock, ResourceQueue]:
    clock = clock or ManualClock(100.0)
    return clock, ResourceQueue(clock, **options)  # type: ignore[arg-type]


def add(queue: ResourceQueue, name: str, session: str = "s", **fields: object) -> Job:
    job = Job(name, session, fields.pop("urgency", Urgency.WAITING), **fields)  # type: ignore[arg-type]
    assert queue.add(job)
    return job


def pop_id(queue: ResourceQueue) -> str | None:
    job = queue.pop()
    return job.id if job else None


def test_an_empty_queue_has_nothing_to_do_and_nothing_to_wait_for() -> None:
    _, queue = make()
    assert queue.pop() is None
    assert queue.next_change_s() is None


def test_a_finished_utterance_goes_before_a_partial_one_that_came_first() -> None:
    _, queue = make()
    add(queue, "partial", urgency=Urgency.BEST_EFFORT)
    add(queue, "final", session="other")
    assert [pop_id(queue), pop_id(queue)] == ["final", "partial"]


def test_jobs_of_sessions_served_alike_go_in_order_of_arrival() -> None:
    _, queue = make()
    for name in "abc":
        add(queue, name, session=name)
    assert [pop_id(queue) for _ in range(3)] == ["a", "b", "c"]


def test_the_first_piece_of_a_reply_goes_before_further_pieces_of_another() -> None:
    clock, queue = make()
    first = add(queue, "one", session="one", stream="r1")
    assert queue.pop() is first
    queue.put_back(first, ran_s=0.1, produced_s=0.5)
    clock.advance(0.6)  # It runs dry, and yet a viewer in silence waits for its first sound.
    add(queue, "two", session="two", stream="r2")
    assert pop_id(queue) == "two"


def test_of_replies_being_heard_the_one_that_runs_dry_first_goes_first() -> None:
    _, queue = make()
    for name, seconds in (("long", 2.5), ("short", 0.5)):
        job = add(queue, name, session=name, stream=name)
        assert queue.pop() is job
        queue.put_back(job, ran_s=0.1, produced_s=seconds)
    assert [pop_id(queue), pop_id(queue)] == ["short", "long"]


def test_a_reply_far_ahead_of_its_listener_waits_until_it_has_drained() -> None:
    clock, queue = make(ahead_s=3.0)
    job = add(queue, "a", stream="r")
    queue.pop()
    queue.put_back(job, ran_s=0.1, produced_s=4.0)
    assert queue.pop() is None
    assert queue.next_change_s() == pytest.approx(1.0)
    clock.advance(1.0)
    assert queue.pop() is job


def test_the_players_report_replaces_the_estimate() -> None:
    clock, queue = make(ahead_s=3.0)
    job = add(queue, "a", stream="r")
    queue.pop()
    queue.put_back(job, ran_s=0.1, produced_s=2.0)
    queue.set_buffered("r", 5.0)
    assert queue.pop() is None
    queue.set_buffered("r", 0.0)
    assert queue.pop() is job
    clock.advance(1.0)


def test_a_report_about_a_reply_that_is_over_leaves_nothing_behind() -> None:
    _, queue = make()
    job = add(queue, "a", stream="r")
    queue.pop()
    queue.finish(job, 0.1, 1.0)
    queue.end_stream("r")
    queue.set_buffered("r", 50.0)
    again = add(queue, "b", stream="r")
    assert queue.pop() is again


def test_a_session_that_used_the_resource_yields_to_one_that_did_not() -> None:
    _, queue = make()
    greedy = add(queue, "first", session="greedy")
    queue.pop()
    queue.finish(greedy, ran_s=2.0)
    add(queue, "second", session="greedy")
    add(queue, "other", session="modest")
    assert pop_id(queue) == "other"


def test_past_use_is_forgiven_with_time() -> None:
    clock, queue = make(memory_s=10.0)
    job = add(queue, "a", session="long-ago")
    queue.pop()
    queue.finish(job, ran_s=2.0)
    clock.advance(100.0)
    job = add(queue, "b", session="just-now")
    queue.pop()
    queue.finish(job, ran_s=0.5)
    add(queue, "c", session="just-now")
    add(queue, "d", session="long-ago")
    assert pop_id(queue) == "d"


def test_a_cancelled_job_is_never_asked_for() -> None:
    _, queue = make()
    add(queue, "a")
    job = add(queue, "b")
    queue.cancel("a")
    queue.cancel("unknown")
    assert queue.pop() is job
    queue.cancel("b")
    queue.put_back(job, 0.1)
    assert queue.pop() is None
    assert len(queue) == 0


def test_a_job_that_waited_too_long_is_handed_out_as_expired_but_a_started_one_is_not() -> None:
    clock, queue = make()
    started = add(queue, "started", expires=clock.now() + 1.0)
    queue.pop()
    queue.put_back(started, 0.1)
    late = add(queue, "late", expires=clock.now() + 1.0)
    assert queue.next_change_s() == pytest.approx(1.0)
    assert queue.take_expired() == []
    clock.advance(1.0)
    assert queue.take_expired() == [late]
    assert queue.pop() is started


def test_a_full_queue_refuses() -> None:
    _, queue = make(limit=2)
    add(queue, "a")
    add(queue, "b")
    assert not queue.add(Job("c", "s", Urgency.WAITING))
    assert len(queue) == 2


def test_the_same_job_twice_is_a_mistake() -> None:
    _, queue = make()
    add(queue, "a")
    with pytest.raises(ValueError, match="queued already"):
        queue.add(Job("a", "s", Urgency.WAITING))


@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.floats(0.01, 0.5), st.floats(0.05, 1.0)),
        min_size=20,
        max_size=60,
    )
)
def test_nothing_is_lost_and_no_reply_gets_further_ahead_than_allowed(
    steps: list[tuple[str, float, float]],
) -> None:
    clock, queue = make(ahead_s=3.0)
    todo: dict[str, list[tuple[float, float]]] = {"a": [], "b": []}
    for name, ran_s, produced_s in steps:
        todo[name].append((ran_s, produced_s))
    ahead_until = dict.fromkeys(todo, clock.now())
    for name, pieces in todo.items():
        if pieces:
            queue.add(Job(name, name, Urgency.WAITING, stream=name))
    while any(todo.values()):
        job = queue.pop()
        if job is None:
            wait_s = queue.next_change_s()
            assert wait_s is not None
            clock.advance(wait_s + 1e-6)
            continue
        assert ahead_until[job.id] - clock.now() <= 3.0 + 1e-3
        ran_s, produced_s = todo[job.id].pop()
        clock.advance(ran_s)
        ahead_until[job.id] = max(clock.now(), ahead_until[job.id]) + produced_s
        if todo[job.id]:
            queue.put_back(job, ran_s, produced_s)
        else:
            queue.finish(job, ran_s, produced_s)
    assert len(queue) == 0
