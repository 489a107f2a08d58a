"""Who may start a session, in virtual time."""

from __future__ import annotations

from typing import Any

import pytest

from avatar_server.capacity.admission import LEARN_S, Admission, Report
from avatar_server.capacity.demand import Demand, Resource
from avatar_server.capacity.machine import Machine
from avatar_server.clock import ManualClock
from avatar_server.protocol.costs import FrameCosts, StageCosts
from tests.capacity.costs import FRAMES, STAGES, frames, machine, on_gpu, settings, stages


def admission(
    on: Machine | None = None,
    frame_costs: FrameCosts = FRAMES,
    stage_costs: StageCosts | None = STAGES,
    **sections: Any,
) -> tuple[Admission, ManualClock]:
    clock = ManualClock()
    values = settings(**sections)
    policy = Admission(values, clock)
    policy.demand = Demand(values, on or machine(), frame_costs, stage_costs)
    return policy, clock


def heartbeats(
    policy: Admission,
    clock: ManualClock,
    seconds: int,
    *,
    cores: float,
    speaking: bool = True,
    late: int = 0,
    session: str = "a",
) -> None:
    for second in range(seconds + 1):
        report = Report(speaking, second * cores, second * (30 - late), second * late)
        policy.report(session, report)
        clock.advance(1.0)


# --- how many ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("on", "frame_costs", "stage_costs", "binding"),
    [
        (machine(2), frames(render_ms=25.0), stages(stt_s=0.02), Resource.CPU),
        (machine(2), frames(render_ms=0.5, encode_ms=0.5, idle_frame_ms=1), stages(tts_rtf=0.6),
         Resource.INFERENCE),
        (machine(64, 2.0), FRAMES, STAGES, Resource.MEMORY),
        (machine(64), FRAMES, on_gpu(llm_decode_many_per_s=60.0, tts_rtf=0.1), Resource.GPU),
        (machine(64), FRAMES, on_gpu(kv_tokens=9_000), Resource.CONTEXT),
    ],
)  # fmt: skip
def test_the_resource_that_runs_out_first_is_named(
    on: Machine, frame_costs: FrameCosts, stage_costs: StageCosts, binding: Resource
) -> None:
    policy, _ = admission(on, frame_costs, stage_costs)
    found = policy.capacity()
    assert found.binding is binding
    assert found.measured
    assert policy.demand is not None
    assert all(use.share <= 1 for use in policy.demand.uses(found.fits))
    assert any(use.share > 1 for use in policy.demand.uses(found.fits + 1))


def test_the_setting_is_an_upper_bound_and_no_promise() -> None:
    large = machine(64, 256)
    assert admission(large, sessions={"max_sessions": 3})[0].capacity().fits == 3
    assert admission(large, sessions={"max_sessions": 3})[0].capacity().binding is Resource.LIMIT
    small, _ = admission(machine(2), sessions={"max_sessions": 30})
    assert small.capacity().fits < 10


def test_a_machine_that_is_too_slow_still_serves_one() -> None:
    policy, _ = admission(machine(0.2), frames(render_ms=60.0), stages(stt_s=9.0))
    assert policy.capacity().fits == 1
    assert policy.refusal(0) is None
    assert policy.refusal(1) is not None


def test_without_measured_costs_the_setting_counts_alone() -> None:
    for setting, fits in ((7, 7), ("auto", 2)):
        policy = Admission(settings(sessions={"max_sessions": setting}), ManualClock())
        assert policy.capacity().fits == fits
        assert not policy.capacity().measured
        assert policy.refusal(fits - 1) is None
        assert policy.refusal(fits) is not None


def test_a_refusal_is_a_sentence_that_names_what_is_missing() -> None:
    policy, _ = admission(sessions={"max_sessions": 1})
    refusal = policy.refusal(1)
    assert refusal is not None
    assert refusal.resource is Resource.LIMIT
    assert "room for 1 session" in refusal.reason
    assert "sessions.max_sessions" in refusal.reason
    assert refusal.detail == f"{refusal.reason} Try again when a session has ended."


# --- what running sessions teach --------------------------------------------------------------


def test_sessions_that_cost_more_than_measured_leave_room_for_fewer() -> None:
    policy, clock = admission(machine(4))
    before = policy.capacity().fits
    heartbeats(policy, clock, 120, cores=0.9)
    assert policy.corrections.frames == pytest.approx(0.9 / 0.368, rel=0.15)
    assert policy.capacity().fits < before


def test_sessions_that_cost_less_leave_room_for_more() -> None:
    policy, clock = admission(machine(4), frames(render_ms=20.0))
    before = policy.capacity().fits
    heartbeats(policy, clock, 200, cores=0.36)
    assert policy.capacity().fits > before


def test_one_bad_second_hardly_counts() -> None:
    policy, clock = admission(machine(4))
    before = policy.capacity().fits
    heartbeats(policy, clock, 1, cores=1.0)
    assert policy.corrections.frames == pytest.approx(1 + (1.0 / 0.368 - 1) / LEARN_S)
    assert policy.capacity().fits == before


def test_a_resting_avatar_does_not_make_speech_look_cheap() -> None:
    policy, clock = admission(machine(4))
    assert policy.demand is not None
    heartbeats(policy, clock, 300, cores=policy.demand.idle_cores(), speaking=False)
    assert policy.corrections.frames == pytest.approx(1.0)


def test_a_session_without_viewers_draws_nothing_and_teaches_nothing() -> None:
    policy, clock = admission(machine(4))
    for second in range(300):
        policy.report("a", Report(False, second * 0.01, 0, 0))
        clock.advance(1.0)
    assert policy.corrections.frames == 1.0


def test_a_replaced_process_counts_from_zero_again() -> None:
    policy, clock = admission(machine(4))
    heartbeats(policy, clock, 20, cores=0.368)
    heartbeats(policy, clock, 20, cores=0.368)
    assert policy.corrections.frames == pytest.approx(1.0)
    assert policy.late_share() == 0.0


def test_people_who_talk_more_than_expected_leave_room_for_fewer() -> None:
    policy, clock = admission(machine(4))
    before = policy.capacity().fits
    for second in range(200):
        policy.report_inference(second * 1.2, running=2)
        clock.advance(1.0)
    assert policy.corrections.inference > 2
    assert policy.capacity().fits < before
    for _ in range(700):
        policy.report_inference(200 * 1.2, running=2)
        clock.advance(1.0)
    assert policy.corrections.inference == pytest.approx(1.0, abs=0.02)


# --- what forbids a session now ---------------------------------------------------------------


def test_late_frames_of_anybody_forbid_another_session_until_they_are_over() -> None:
    policy, clock = admission(machine(8))
    heartbeats(policy, clock, 12, cores=0.368, late=3)
    assert policy.late_share() == pytest.approx(0.1)
    refusal = policy.refusal(1)
    assert refusal is not None
    assert refusal.resource is Resource.CPU
    assert "10%" in refusal.reason
    policy.forget("a")
    assert policy.refusal(1) is None


def test_a_single_stall_is_over_sooner_in_a_shorter_window() -> None:
    policy, clock = admission(machine(8))
    heartbeats(policy, clock, 10, cores=0.368)
    policy.report("a", Report(True, 12.0, 320, 20))
    assert policy.late_share(3.5) > policy.late_share() > 0.05
    for second in range(1, 5):
        clock.advance(1.0)
        policy.report("a", Report(True, 12.0 + second, 320 + 30 * second, 20))
    assert policy.late_share(3.5) == 0.0
    assert policy.late_share() > 0.05


def test_late_frames_of_a_session_that_just_began_say_nothing_yet() -> None:
    policy, clock = admission(machine(8))
    heartbeats(policy, clock, 1, cores=0.368, late=15)
    assert policy.refusal(1) is None


def test_without_memory_for_its_process_no_session_starts() -> None:
    policy, _ = admission(machine(8))
    refusal = policy.refusal(1, free_bytes=50_000_000)
    assert refusal is not None
    assert refusal.resource is Resource.MEMORY
    assert "50 MB" in refusal.reason
    assert policy.refusal(1, free_bytes=500_000_000) is None
