"""Deadlines are met where they can be, and the policies differ where they should."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from avatar_server.clock import ManualClock
from avatar_server.inference.scheduler import CostModel, Device, Engine, Job, Prior, Scheduler


@dataclass(frozen=True)
class Task:
    """`pieces` steps of `step_s` each, asked for at `released` and due at `due`."""

    released: float
    step_s: float
    pieces: int
    due: float


class Known(CostModel):
    """What each task's step takes is known from the start, exactly."""

    def __init__(self, tasks: list[Task]) -> None:
        super().__init__()
        self._tasks = tasks

    def predict_s(self, stage: str, size: float = 1.0) -> float:
        return self._tasks[int(stage.removesuffix(".next"))].step_s


def lateness(tasks: list[Task], policy: str) -> list[float]:
    """How late each task ends on one engine; negative where it is in time."""
    clock = ManualClock()
    scheduler = Scheduler(clock, [Engine("e")], policy=policy, costs=Known(tasks))
    coming = sorted(enumerate(tasks), key=lambda item: item[1].released)
    late = [0.0] * len(tasks)
    open_jobs = len(tasks)
    while open_jobs:
        while coming and coming[0][1].released <= clock.now():
            number, task = coming.pop(0)
            scheduler.add(
                Job(
                    str(number),
                    str(number),
                    "e",
                    str(number),
                    deadline=task.due,
                    pieces=task.pieces,
                )
            )
        jobs = scheduler.next_step("e")
        if not jobs:
            clock.advance(coming[0][1].released - clock.now())
            continue
        job = jobs[0]
        task = tasks[int(job.id)]
        clock.advance(task.step_s)
        scheduler.step_done("e", jobs, task.step_s)
        if job.steps < task.pieces:
            scheduler.put_back(job)
        else:
            scheduler.finish(job)
            late[int(job.id)] = clock.now() - task.due
            open_jobs -= 1
    return late


LONGEST_STEP_S = 0.3


def feasible(
    random_: random.Random, tasks: int, load: float, slack_s: float = LONGEST_STEP_S
) -> list[Task]:
    """Random tasks that an order exists for: they are laid out one after the other, with pauses,
    and each is asked for some time before its place and due some time after it.

    Everything is due at least `slack_s` after its place. A step that has begun is not interrupted,
    so without the slack of one step only a scheduler that knows the future can meet everything.
    """
    made = []
    now = 0.0
    for _ in range(tasks):
        step_s, pieces = random_.uniform(0.01, LONGEST_STEP_S), random_.choice([1, 1, 2, 4])
        work_s = step_s * pieces
        now += random_.expovariate(1.0) * work_s * (1 / load - 1)
        released = max(0.0, now - random_.expovariate(2.0))
        now += work_s
        made.append(Task(released, step_s, pieces, now + slack_s + random_.expovariate(2.0)))
    random_.shuffle(made)
    return made


@given(seed=st.integers(0, 2**32))
@settings(max_examples=10, deadline=None)
def test_deadlines_are_met_in_95_of_100_feasible_workloads(seed: int) -> None:
    random_ = random.Random(seed)
    met = 0
    for _ in range(100):
        tasks = feasible(random_, tasks=12, load=random_.uniform(0.3, 0.9))
        met += max(lateness(tasks, "laxity")) <= 1e-9
    assert met >= 95


@given(
    st.lists(
        st.tuples(st.floats(0.01, 0.5), st.integers(1, 3), st.floats(0.0, 2.0)),
        min_size=1,
        max_size=12,
    )
)
@settings(max_examples=200)
def test_of_what_waits_at_once_all_is_met_that_can_be(raw: list[tuple[float, int, float]]) -> None:
    """With nothing to come, an order that meets all exists exactly if that of deadlines does."""
    now = 0.0
    tasks = []
    for step_s, pieces, slack in raw:
        now += step_s * pieces
        tasks.append(Task(0.0, step_s, pieces, now + slack))
    assert max(lateness(tasks, "laxity")) <= 1e-6


def test_a_long_step_does_not_start_before_a_short_one_that_it_would_make_late() -> None:
    # The long one can wait 1.0 s, the short one 1.5 s; yet after the long one it is too late.
    tasks = [Task(0.0, 10.0, 1, 11.0), Task(0.0, 1.0, 1, 2.5)]
    assert max(lateness(tasks, "laxity")) <= 1e-9


def test_first_in_first_out_makes_late_what_deadlines_would_have_met() -> None:
    tasks = [Task(0.0, 0.5, 2, 5.0), Task(0.01, 0.1, 1, 0.7)]
    assert max(lateness(tasks, "fifo")) > 0
    assert max(lateness(tasks, "edf")) <= 0
    assert max(lateness(tasks, "laxity")) <= 0


@pytest.mark.parametrize(("policy", "expected"), [("fair", ["b", "a"]), ("edf", ["a", "b"])])
def test_fair_goes_by_use_and_edf_by_deadline(policy: str, expected: list[str]) -> None:
    clock = ManualClock()
    scheduler = Scheduler(clock, [Engine("e")], policy=policy)
    scheduler.add(Job("before", "a", "e"))
    jobs = scheduler.next_step("e")
    scheduler.step_done("e", jobs, 1.0)
    scheduler.finish(jobs[0])
    scheduler.add(Job("a", "a", "e", deadline=1.0))
    scheduler.add(Job("b", "b", "e", deadline=2.0))
    order = []
    for _ in range(2):
        jobs = scheduler.next_step("e")
        scheduler.step_done("e", jobs, 0.1)
        scheduler.finish(jobs[0])
        order.append(jobs[0].id)
    assert order == expected


@pytest.mark.parametrize("slack_s", [0.0, LONGEST_STEP_S])
def test_feasible_workloads_tell_the_policies_apart(slack_s: float) -> None:
    random_ = random.Random(1)
    workloads = [feasible(random_, tasks=12, load=0.8, slack_s=slack_s) for _ in range(200)]
    met = {
        policy: sum(max(lateness(tasks, policy)) <= 1e-9 for tasks in workloads)
        for policy in ("laxity", "edf", "fifo", "fair")
    }
    assert met["laxity"] >= met["edf"] > met["fifo"]
    assert met["edf"] > met["fair"]
    assert met["laxity"] >= 160


def test_what_has_no_laxity_left_gets_a_place_before_an_earlier_deadline_that_can_wait() -> None:
    """On two places the earliest deadlines would take both, and the long work come too late."""
    costs = CostModel({name: Prior(s) for name, s in (("short", 0.1), ("long", 0.9))})
    first = {}
    for policy in ("edf", "laxity"):
        clock = ManualClock()
        engines = [Engine(name, device="cpu") for name in "abc"]
        scheduler = Scheduler(clock, engines, [Device("cpu", 2)], policy=policy, costs=costs)
        for engine, stage, due in (("a", "short", 1.0), ("b", "short", 1.0), ("c", "long", 1.4)):
            scheduler.add(Job(engine, engine, engine, stage, deadline=due))
        first[policy] = [engine for engine in "abc" if scheduler.next_step(engine)]
    assert first == {"edf": ["a", "b"], "laxity": ["a", "c"]}
