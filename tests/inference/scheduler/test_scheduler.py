"""What the scheduler guarantees whatever the policy, in virtual time."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from avatar_server.clock import ManualClock
from avatar_server.inference.scheduler import (
    POLICIES,
    CostModel,
    Device,
    Engine,
    Job,
    Prior,
    Scheduler,
)

ENGINE = "tts"


def make(**options: Any) -> tuple[ManualClock, Scheduler]:
    clock = ManualClock(100.0)
    engine = Engine(ENGINE, limit=options.pop("limit", 64), batch=options.pop("batch", 1))
    return clock, Scheduler(clock, [engine], **options)


def add(scheduler: Scheduler, name: str, session: str = "s", **fields: Any) -> Job:
    job = Job(name, session, fields.pop("engine", ENGINE), **fields)
    assert scheduler.add(job)
    return job


def run_step(
    scheduler: Scheduler,
    clock: ManualClock,
    ran_s: float = 0.1,
    produced_s: float = 0.0,
    *,
    last: bool = True,
    engine: str = ENGINE,
) -> list[str]:
    """One step of the engine: which jobs it was for."""
    jobs = scheduler.next_step(engine)
    if jobs:
        clock.advance(ran_s)
        scheduler.step_done(engine, jobs, ran_s)
    for job in jobs:
        if last:
            scheduler.finish(job, produced_s)
        else:
            scheduler.put_back(job, produced_s)
    return [job.id for job in jobs]


def test_an_empty_scheduler_has_nothing_to_do_and_nothing_to_wait_for() -> None:
    _, scheduler = make()
    assert scheduler.next_step(ENGINE) == []
    assert scheduler.next_change_s(ENGINE) is None
    assert scheduler.idle


def test_what_ends_after_it_was_due_counts_once_and_best_effort_never() -> None:
    clock, scheduler = make()
    add(scheduler, "in time", deadline=clock.now() + 0.2)
    run_step(scheduler, clock, 0.1)
    assert scheduler.missed() == {ENGINE: 0}
    add(scheduler, "late", deadline=clock.now() + 0.2)
    run_step(scheduler, clock, 0.3, last=False)
    run_step(scheduler, clock, 0.3)
    add(scheduler, "partial", deadline=clock.now() + 0.1, best_effort=True)
    run_step(scheduler, clock, 0.3)
    assert scheduler.missed() == {ENGINE: 1}


def test_speech_that_is_heard_is_late_when_its_sound_has_run_dry() -> None:
    clock, scheduler = make()
    add(scheduler, "clause", stream="reply", deadline=clock.now() + 0.2)
    run_step(scheduler, clock, 0.1, 2.0, last=False)
    # After its deadline, but 1.5 s of sound were still to be played.
    run_step(scheduler, clock, 0.5, 0.5, last=False)
    assert scheduler.missed() == {ENGINE: 0}
    run_step(scheduler, clock, 2.5, 0.5)
    assert scheduler.missed() == {ENGINE: 1}


def test_what_runs_is_counted_until_it_is_done() -> None:
    _, scheduler = make(batch=2)
    for name in "ab":
        add(scheduler, name, key="k")
    assert scheduler.running(ENGINE) == 0
    jobs = scheduler.next_step(ENGINE)
    assert scheduler.running(ENGINE) == len(jobs) == 2
    scheduler.step_done(ENGINE, jobs, 0.1)
    for job in jobs:
        scheduler.finish(job)
    assert scheduler.running(ENGINE) == 0


def test_a_finished_utterance_goes_before_a_partial_one_that_came_first() -> None:
    clock, scheduler = make()
    add(scheduler, "partial", best_effort=True)
    add(scheduler, "final", session="other")
    assert run_step(scheduler, clock) + run_step(scheduler, clock) == ["final", "partial"]


def test_jobs_alike_go_in_order_of_arrival() -> None:
    clock, scheduler = make()
    for name in "abc":
        add(scheduler, name, session=name)
    assert [run_step(scheduler, clock, 0.01)[0] for _ in range(3)] == ["a", "b", "c"]


def test_the_first_piece_of_a_reply_goes_before_further_pieces_of_one_with_sound_left() -> None:
    clock, scheduler = make()
    add(scheduler, "one", session="one", stream="r1")
    run_step(scheduler, clock, 0.1, 2.0, last=False)
    add(scheduler, "two", session="two", stream="r2")
    assert run_step(scheduler, clock, 0.1) == ["two"]


def test_speech_that_is_about_to_break_off_goes_before_the_first_piece_of_another() -> None:
    clock, scheduler = make()
    add(scheduler, "one", session="one", stream="r1")
    run_step(scheduler, clock, 0.1, 0.3, last=False)
    clock.advance(0.15)
    add(scheduler, "two", session="two", stream="r2")
    assert run_step(scheduler, clock, 0.1) == ["one"]


def test_a_reply_that_is_late_for_long_is_not_kept_out_by_those_being_heard() -> None:
    clock, scheduler = make()
    add(scheduler, "heard", session="one", stream="r1")
    run_step(scheduler, clock, 0.1, 0.05, last=False)
    add(scheduler, "late", session="two", stream="r2", deadline=clock.now() + 0.5)
    served = []
    while "late" not in served:
        # Each piece takes longer than it is heard: this reply is always about to break off.
        served += run_step(scheduler, clock, 0.1, 0.05, last=False)
        assert len(served) < 80
    assert 5.0 < 0.1 * len(served) < 6.0


def test_another_reply_is_begun_only_while_those_being_heard_have_a_reserve() -> None:
    clock, scheduler = make()
    add(scheduler, "heard", session="one", stream="r1")
    run_step(scheduler, clock, 0.05, 0.8, last=False)
    add(scheduler, "new", session="two", stream="r2", deadline=clock.now() + 2.0)
    served = [run_step(scheduler, clock, 0.05, 0.8, last=False)[0] for _ in range(3)]
    assert served[0] == "heard"
    assert "new" in served


def test_of_replies_being_heard_the_one_that_runs_dry_first_goes_first() -> None:
    clock, scheduler = make()
    for name, seconds in (("long", 2.5), ("short", 0.5)):
        add(scheduler, name, session=name, stream=name)
        assert run_step(scheduler, clock, 0.0, seconds, last=False) == [name]
    order = [run_step(scheduler, clock, 0.1, last=True)[0] for _ in range(2)]
    assert order == ["short", "long"]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_reply_far_ahead_of_its_listener_waits_until_it_has_drained(policy: str) -> None:
    clock, scheduler = make(ahead_s=3.0, policy=policy)
    add(scheduler, "a", stream="r")
    run_step(scheduler, clock, 0.0, 4.0, last=False)
    assert scheduler.next_step(ENGINE) == []
    assert scheduler.next_change_s(ENGINE) == pytest.approx(1.0)
    clock.advance(1.0)
    assert run_step(scheduler, clock) == ["a"]


def test_sound_that_needed_no_step_counts_as_made() -> None:
    clock, scheduler = make(ahead_s=3.0)
    scheduler.add_sound("r", 1.5)
    scheduler.add_sound("r", 2.5)
    add(scheduler, "a", stream="r")
    assert scheduler.next_step(ENGINE) == []
    assert scheduler.next_change_s(ENGINE) == pytest.approx(1.0)
    clock.advance(1.0)
    assert run_step(scheduler, clock) == ["a"]
    scheduler.end_stream("r")
    assert scheduler.idle


def test_the_players_report_replaces_the_estimate() -> None:
    clock, scheduler = make(ahead_s=3.0)
    add(scheduler, "a", stream="r")
    run_step(scheduler, clock, 0.1, 2.0, last=False)
    scheduler.set_buffered("r", 5.0)
    assert scheduler.next_step(ENGINE) == []
    scheduler.set_buffered("r", 0.0)
    assert run_step(scheduler, clock) == ["a"]


def test_a_report_about_a_reply_that_is_over_leaves_nothing_behind() -> None:
    clock, scheduler = make()
    add(scheduler, "a", stream="r")
    run_step(scheduler, clock, 0.1, 1.0)
    scheduler.end_stream("r")
    scheduler.set_buffered("r", 50.0)
    add(scheduler, "b", stream="r")
    assert run_step(scheduler, clock) == ["b"]
    assert scheduler.idle


def test_where_not_all_can_be_met_a_session_that_used_much_yields() -> None:
    clock, scheduler = make()
    add(scheduler, "first", session="greedy")
    run_step(scheduler, clock, 2.0)
    for name in ("greedy", "modest"):
        add(scheduler, name, session=name, deadline=clock.now() + 0.01)
    assert run_step(scheduler, clock) == ["modest"]


def test_past_use_is_forgiven_with_time() -> None:
    clock, scheduler = make()
    add(scheduler, "a", session="long-ago")
    run_step(scheduler, clock, 2.0)
    clock.advance(100.0)
    add(scheduler, "b", session="just-now")
    run_step(scheduler, clock, 0.5)
    for name in ("just-now", "long-ago"):
        add(scheduler, name, session=name, deadline=clock.now() + 0.01)
    assert run_step(scheduler, clock) == ["long-ago"]


def test_a_cancelled_job_is_never_asked_for_and_its_place_is_free_at_once() -> None:
    clock, scheduler = make(limit=2)
    first, second = add(scheduler, "a"), add(scheduler, "b")
    assert not scheduler.add(Job("c", "s", ENGINE))
    scheduler.cancel(first)
    add(scheduler, "c")
    scheduler.cancel(second)
    assert run_step(scheduler, clock) == ["c"]
    assert scheduler.idle


def test_a_job_cancelled_in_a_step_makes_no_sound_and_does_not_come_back() -> None:
    clock, scheduler = make()
    job = add(scheduler, "a", stream="r")
    jobs = scheduler.next_step(ENGINE)
    scheduler.cancel(job)
    assert not scheduler.idle
    scheduler.step_done(ENGINE, jobs, 0.1)
    scheduler.put_back(job, 1.0)
    assert scheduler.idle
    assert clock.now() == 100.0


def test_a_job_that_waited_too_long_is_handed_out_as_expired_but_a_started_one_is_not() -> None:
    clock, scheduler = make()
    add(scheduler, "started", expires=clock.now() + 1.0)
    run_step(scheduler, clock, 0.0, last=False)
    late = add(scheduler, "late", expires=clock.now() + 1.0)
    assert scheduler.next_change_s(ENGINE) == pytest.approx(1.0)
    assert scheduler.take_expired(ENGINE) == []
    clock.advance(1.0)
    assert scheduler.take_expired(ENGINE) == [late]
    assert run_step(scheduler, clock) == ["started"]


def test_a_full_queue_refuses() -> None:
    _, scheduler = make(limit=2)
    add(scheduler, "a")
    add(scheduler, "b")
    assert not scheduler.add(Job("c", "s", ENGINE))
    assert scheduler.depth(ENGINE) == 2


def test_the_same_job_twice_is_a_mistake() -> None:
    _, scheduler = make()
    add(scheduler, "a")
    with pytest.raises(ValueError, match="queued already"):
        add(scheduler, "a")


def test_mistakes_are_told() -> None:
    clock = ManualClock()
    with pytest.raises(ValueError, match="choose one of laxity, edf, fifo, fair"):
        Scheduler(clock, [], policy="best")
    with pytest.raises(ValueError, match="unknown device 'tpu'"):
        Scheduler(clock, [Engine("a", device="tpu")])
    _, scheduler = make()
    add(scheduler, "a")
    scheduler.next_step(ENGINE)
    with pytest.raises(ValueError, match="in the middle of a step"):
        scheduler.next_step(ENGINE)


# --- devices and batches --------------------------------------------------------------------


def shared(places: int, policy: str = "laxity") -> tuple[ManualClock, Scheduler]:
    clock = ManualClock(100.0)
    engines = [
        Engine("stt", device="gpu"),
        Engine("tts", device="gpu"),
        Engine("frames", 8, "gpu", reserved=True),
    ]
    return clock, Scheduler(clock, engines, [Device("gpu", places)], policy=policy)


def test_the_engine_with_the_more_urgent_job_gets_a_devices_last_place() -> None:
    clock, scheduler = shared(1)
    add(scheduler, "speech", engine="tts", deadline=clock.now() + 5)
    add(scheduler, "words", engine="stt", deadline=clock.now() + 0.5)
    assert scheduler.next_step("tts") == []
    assert run_step(scheduler, clock, engine="stt") == ["words"]
    assert run_step(scheduler, clock, engine="tts") == ["speech"]


def test_a_busy_devices_place_is_free_again_after_the_step() -> None:
    clock, scheduler = shared(1)
    add(scheduler, "speech", engine="tts")
    jobs = scheduler.next_step("tts")
    add(scheduler, "words", engine="stt", deadline=clock.now())
    assert scheduler.next_step("stt") == []
    scheduler.step_done("tts", jobs, 0.1)
    assert run_step(scheduler, clock, engine="stt") == ["words"]


def test_what_decides_its_own_steps_takes_a_place_but_never_the_last() -> None:
    clock, scheduler = shared(2)
    scheduler.hold("gpu")
    scheduler.hold("gpu")
    add(scheduler, "speech", engine="tts")
    add(scheduler, "words", engine="stt", deadline=clock.now() + 0.1)
    assert scheduler.next_step("tts") == []
    jobs = scheduler.next_step("stt")
    assert [job.id for job in jobs] == ["words"]
    assert scheduler.next_step("tts") == []
    scheduler.release("gpu")
    scheduler.release("gpu")
    assert [job.id for job in scheduler.next_step("tts")] == ["speech"]


def test_frames_due_in_one_tick_are_drawn_together_and_never_wait_for_a_place() -> None:
    clock, scheduler = shared(1)
    add(scheduler, "speech", engine="tts")
    scheduler.next_step("tts")
    due = clock.now() + 0.033
    for session in "abc":
        add(scheduler, session, session=session, engine="frames", key="tick-1", deadline=due)
    add(scheduler, "next", engine="frames", key="tick-2", deadline=due + 0.033)
    assert run_step(scheduler, clock, 0.005, engine="frames") == ["a", "b", "c"]
    assert run_step(scheduler, clock, 0.005, engine="frames") == ["next"]


def test_a_batch_is_no_larger_than_the_backend_takes() -> None:
    clock, scheduler = make(batch=2)
    for name in "abc":
        add(scheduler, name, session=name, key="k")
    assert run_step(scheduler, clock) == ["a", "b"]
    assert run_step(scheduler, clock) == ["c"]


def test_company_does_not_make_a_job_late_that_would_be_in_time_alone() -> None:
    costs = CostModel({ENGINE: Prior(0.0, 0.1)})
    clock, scheduler = make(batch=4, costs=costs)
    # A size of 1 takes 0.15 s at the 95th percentile while nothing was seen.
    add(scheduler, "soon", key="k", deadline=clock.now() + 0.2)
    add(scheduler, "later", key="k", deadline=clock.now() + 9)
    assert run_step(scheduler, clock) == ["soon"]


# --- whatever happens -----------------------------------------------------------------------


@given(
    steps=st.lists(
        st.tuples(st.sampled_from("ab"), st.floats(0.01, 0.5), st.floats(0.05, 1.0)),
        min_size=20,
        max_size=60,
    ),
    policy=st.sampled_from(sorted(POLICIES)),
)
def test_nothing_is_lost_and_no_reply_gets_further_ahead_than_allowed(
    steps: list[tuple[str, float, float]], policy: str
) -> None:
    clock, scheduler = make(ahead_s=3.0, policy=policy)
    todo: dict[str, list[tuple[float, float]]] = {"a": [], "b": []}
    for name, ran_s, produced_s in steps:
        todo[name].append((ran_s, produced_s))
    ahead_until = dict.fromkeys(todo, clock.now())
    for name, pieces in todo.items():
        if pieces:
            add(scheduler, name, session=name, stream=name)
    while any(todo.values()):
        jobs = scheduler.next_step(ENGINE)
        if not jobs:
            wait_s = scheduler.next_change_s(ENGINE)
            assert wait_s is not None
            clock.advance(wait_s + 1e-6)
            continue
        (job,) = jobs
        assert ahead_until[job.id] - clock.now() <= 3.0 + 1e-3
        ran_s, produced_s = todo[job.id].pop()
        clock.advance(ran_s)
        scheduler.step_done(ENGINE, jobs, ran_s)
        ahead_until[job.id] = max(clock.now(), ahead_until[job.id]) + produced_s
        if todo[job.id]:
            scheduler.put_back(job, produced_s)
        else:
            scheduler.finish(job, produced_s)
            scheduler.end_stream(job.id)
    assert scheduler.idle


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.sampled_from("abc"), st.floats(0.0, 2.0)),
        st.tuples(st.just("step"), st.sampled_from(["stt", "tts", "frames"]), st.floats(0.0, 0.3)),
        st.tuples(st.just("cancel"), st.integers(0, 30), st.just(0.0)),
        st.tuples(st.just("wait"), st.just(""), st.floats(0.0, 3.0)),
    ),
    max_size=80,
)


@given(actions=ACTIONS, policy=st.sampled_from(sorted(POLICIES)))
def test_cancelling_at_any_moment_leaks_nothing(actions: list[Any], policy: str) -> None:
    clock, scheduler = shared(2, policy)
    jobs: list[Job] = []
    gone: set[str] = set()
    steps: dict[str, list[Job]] = {}
    for number, (what, which, value) in enumerate(actions):
        if what == "add":
            engine = ("stt", "tts", "frames")[number % 3]
            job = Job(f"{number}", which, engine, stream=which, key="k")
            job.deadline, job.expires = clock.now() + value, clock.now() + 2 * value
            assert scheduler.add(job)
            jobs.append(job)
        elif what == "cancel" and jobs:
            job = jobs[which % len(jobs)]
            scheduler.cancel(job)
            gone.add(job.id)
        elif what == "wait":
            clock.advance(value)
        elif what == "step":
            if which in steps:
                step = steps.pop(which)
                scheduler.step_done(which, step, value)
                for job in step:
                    (scheduler.finish if number % 2 else scheduler.put_back)(job, value)
            else:
                gone.update(job.id for job in scheduler.take_expired(which))
                step = scheduler.next_step(which)
                assert not gone & {job.id for job in step}
                if step:
                    steps[which] = step
    for engine, step in steps.items():
        scheduler.step_done(engine, step, 0.1)
    for job in jobs:
        scheduler.cancel(job)
    for session in "abc":
        scheduler.end_stream(session)
        scheduler.forget_session(session)
    assert scheduler.idle
    assert all(scheduler.depth(engine) == 0 for engine in ("stt", "tts", "frames"))


@pytest.mark.parametrize("policy", POLICIES)
def test_no_job_starves_while_others_keep_coming(policy: str) -> None:
    """Three sessions ask for 90 % of an engine for a minute; best effort gets its turn, too."""
    clock, scheduler = make(policy=policy)
    waited: dict[str, float] = {}
    arrivals = [(0.1 * n, f"{n % 3}", False) for n in range(600)]
    arrivals += [(0.05 + n, "quiet", True) for n in range(50)]
    arrivals.sort()
    start = clock.now()
    for at, session, best_effort in arrivals:
        while clock.now() - start < at:
            jobs = scheduler.next_step(ENGINE)
            if not jobs:
                clock.advance(at - (clock.now() - start) + 1e-9)
                break
            clock.advance(0.085)
            scheduler.step_done(ENGINE, jobs, 0.085)
            for job in jobs:
                waited[job.id] = clock.now() - job.added_at
                scheduler.finish(job)
        add(scheduler, f"{session}-{at}", session, best_effort=best_effort)
    while run_step(scheduler, clock, 0.085):
        pass
    quiet = [wait for name, wait in waited.items() if name.startswith("quiet")]
    assert len(quiet) >= 45
    assert max(waited.values()) < 7.0
