"""What sessions demand of a machine, by measured costs."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from avatar_server.capacity.demand import Corrections, Demand, Resource, Use
from tests.capacity.costs import FRAMES, STAGES, frames, machine, on_gpu, settings, stages


def by_resource(uses: list[Use]) -> dict[Resource, Use]:
    return {use.resource: use for use in uses}


def test_a_speaking_session_takes_its_frames_sound_and_sending() -> None:
    demand = Demand(settings(), machine(), FRAMES)
    # 30 frames of 10 ms, 8 ms of Opus, 60 ms of sending.
    assert demand.speaking_cores() == pytest.approx(0.368)
    assert demand.idle_cores() == pytest.approx(0.158)


def test_few_sessions_may_all_speak_at_once_and_of_many_only_some_do() -> None:
    demand = Demand(settings(), machine(64), FRAMES)
    alone = demand.peak_cores(1, Corrections()) - demand.peak_cores(0, Corrections())
    assert alone == pytest.approx(demand.speaking_cores())
    forty = demand.peak_cores(40, Corrections()) / 40
    mean = 0.45 * demand.speaking_cores() + 0.55 * demand.idle_cores()
    assert mean < forty < 1.2 * mean


def test_inference_gets_what_frames_leave() -> None:
    demand = Demand(settings(), machine(2), FRAMES, STAGES)
    one, four = (by_resource(demand.uses(n))[Resource.INFERENCE] for n in (1, 4))
    assert four.used == pytest.approx(4 * one.used)
    assert four.bound < one.bound


def test_alone_a_turn_takes_the_pause_and_the_stages_that_somebody_waits_for() -> None:
    free = settings(capacity={"generated_share": 0.0})
    assert Demand(free, machine(), FRAMES, STAGES).alone_s() == pytest.approx(
        0.2 + 0.2 + 0.005 + 0.15
    )
    made = settings(capacity={"generated_share": 1.0})
    assert Demand(made, machine(), FRAMES, STAGES).alone_s() == pytest.approx(
        0.555 + 60 / 100 + 9 / 50
    )


def test_nobody_waits_for_others_who_are_not_there() -> None:
    assert Demand(settings(), machine(8), FRAMES, STAGES).wait_s(1) == 0.0


def test_waits_grow_with_every_session_until_they_never_end() -> None:
    demand = Demand(settings(), machine(2), FRAMES, STAGES)
    waits = [demand.wait_s(n) for n in range(1, 14)]
    assert waits == sorted(waits)
    assert 0 < waits[2] < 0.3
    assert waits[-1] == math.inf


def test_where_the_budget_is_gone_already_others_may_still_take_a_quarter_of_it() -> None:
    slow = stages(stt_s=3.0)
    tight = settings(turns={"budget_ms": 1_000})
    use = by_resource(Demand(tight, machine(8), FRAMES, slow).uses(1))[Resource.LATENCY]
    assert use.bound == pytest.approx(0.25)
    assert use.share == 0.0


def test_on_a_gpu_its_time_counts_and_the_cores_are_the_frames() -> None:
    demand = Demand(settings(), machine(16), FRAMES, on_gpu())
    uses = by_resource(demand.uses(4))
    assert uses[Resource.GPU].used == pytest.approx(4 * demand.turn_cost("gpu").total_s / 14)
    assert uses[Resource.INFERENCE].used == pytest.approx(4 * (1.5 * 0.1 + 0.005) / 14)


def test_a_remote_language_model_takes_nothing_of_this_machine_but_time() -> None:
    local = Demand(settings(), machine(), FRAMES, STAGES)
    remote = Demand(settings(), machine(), FRAMES, stages(llm_device="remote"))
    assert remote.turn_cost("cpu").total_s < local.turn_cost("cpu").total_s - 1.0
    assert remote.alone_s() == local.alone_s()


def test_memory_counts_what_was_free_at_the_start() -> None:
    demand = Demand(settings(), machine(8), FRAMES, STAGES, free_bytes=2_000_000_000)
    use = by_resource(demand.uses(4))[Resource.MEMORY]
    assert use.bound == pytest.approx(1.8)
    # Gateway, models, four avatars and one kept ready.
    assert use.used == pytest.approx(0.2097152 + 0.8 + 5 * 0.13)


def test_the_cache_of_the_language_model_is_a_bound_where_it_has_one() -> None:
    demand = Demand(settings(), machine(8), FRAMES, on_gpu(kv_tokens=10_000))
    use = by_resource(demand.uses(4))[Resource.CONTEXT]
    assert (use.used, use.bound) == (4 * 2_048, 10_000)


@given(
    st.floats(0.5, 64),
    st.floats(0.5, 20),
    st.floats(0.01, 3),
    st.floats(0.5, 4),
    st.floats(1, 4),
)
def test_one_more_session_never_needs_less(
    cores: float, render_ms: float, stt_s: float, learned: float, talk: float
) -> None:
    demand = Demand(settings(), machine(cores), frames(render_ms=render_ms), stages(stt_s=stt_s))
    before = demand.uses(1, Corrections(learned, talk))
    for sessions in range(2, 12):
        now = demand.uses(sessions, Corrections(learned, talk))
        for one, more in zip(before, now, strict=True):
            assert more.share >= one.share
        before = now


def test_faces_take_their_share_of_the_gpu_while_avatars_speak() -> None:
    def gpu(sessions: int, **changes: float | str) -> float:
        demand = Demand(settings(), machine(16), FRAMES, on_gpu(**changes))
        return next(u.used for u in demand.uses(sessions) if u.resource is Resource.GPU)

    faces = {"face_s": 0.010, "face_many_s": 0.004, "face_device": "gpu"}
    share = settings().capacity.speaking_share
    assert gpu(1, **faces) - gpu(1) == pytest.approx(share * 30 * 0.010)
    # Those who speak at once share a step.
    assert gpu(8, **faces) - gpu(8) == pytest.approx(8 * share * 30 * 0.004)


def test_faces_on_a_cpu_take_no_more_than_their_threads_core() -> None:
    def cores(sessions: int, **changes: float) -> float:
        demand = Demand(settings(), machine(16), FRAMES, stages(**changes))
        return next(u.used for u in demand.uses(sessions) if u.resource is Resource.INFERENCE)

    small, large = {"face_s": 0.001, "face_many_s": 0.001}, {"face_s": 0.2, "face_many_s": 0.2}
    share = settings().capacity.speaking_share
    assert cores(2, **small) - cores(2) == pytest.approx(2 * share * 30 * 0.001)
    assert cores(2, **large) - cores(2) == pytest.approx(1.0)
