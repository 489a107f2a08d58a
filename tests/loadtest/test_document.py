"""Figures and verdict of whole runs."""

from __future__ import annotations

from typing import Any

import pytest

from avatar_server.config import LoadTestSettings
from avatar_server.loadtest.document import document
from avatar_server.loadtest.record import Kill, RunRecord
from avatar_server.loadtest.results import Refused
from avatar_server.loadtest.usage import GpuUse
from avatar_server.loadtest.verdict import verdict
from tests.loadtest.records import START, connection, record, turn, viewer

SETTINGS = LoadTestSettings()


def figures_of(run: RunRecord, settings: LoadTestSettings = SETTINGS) -> dict[str, Any]:
    figures = document(run, settings)
    figures["verdict"] = verdict(figures, settings, budget_ms=1_200)
    return figures


def test_a_clean_run_meets_the_objective() -> None:
    figures = figures_of(record())
    assert figures["verdict"] == {
        "pass": True,
        "reasons": [],
        "binding": "stage:stt",
        "caveats": [],
    }
    assert figures["video"]["fps_p5"] == pytest.approx(30.0, abs=0.05)
    assert figures["turns"]["voice_to_voice_ms"] == {"p50": 800.0, "p95": 900.0, "max": 900.0}
    assert figures["turns"]["stages_ms"]["stt"]["p50"] == 350.0
    assert figures["audio"] == {"gaps": 0, "gap_ms": 0.0, "av_offset_p95_ms": 12.0}


def test_the_published_keys_are_there() -> None:
    run = record()
    for sample in run.usage:
        sample.gpu = [GpuUse(0, "H100", 50.0, 40_000.0, 81_559.0)]
    figures = figures_of(run)
    published = {
        "": {"sessions", "viewers_per_session", "duration_s", "gpu"},
        "video": {"fps_p5", "fps_p50", "freezes", "frame_interval_p99_ms"},
        "audio": {"gaps", "av_offset_p95_ms"},
        "turns": {"count", "answered", "voice_to_voice_ms", "stages_ms"},
        "barge_in_ms": {"p50", "p95"},
        "cpu_ms_per_s": {"gateway", "avatar", "inference", "load"},
        "verdict": {"pass", "reasons", "binding"},
    }
    for key, names in published.items():
        assert names <= set(figures[key] if key else figures), key
    assert figures["gpu"][0]["percent_mean"] == 50.0


def test_cpu_is_added_up_by_kind_of_process() -> None:
    cpu = figures_of(record())["cpu_ms_per_s"]
    assert (cpu["gateway"], cpu["avatar"], cpu["inference"], cpu["load"]) == (10, 400, 400, 70)
    assert cpu["waiting"]["inference"] == 90.0


def test_the_cpu_of_a_server_elsewhere_is_unknown_and_not_zero() -> None:
    run = record()
    for sample in run.usage:
        sample.run = {"load viewers": 50.0}
    cpu = figures_of(run)["cpu_ms_per_s"]
    assert (cpu["gateway"], cpu["avatar"], cpu["inference"], cpu["load"]) == (None, None, None, 50)


def test_a_freeze_of_one_viewer_misses_the_objective() -> None:
    run = record()
    run.finished[1] = viewer(1, connection(10, without=tuple(range(90, 94))))
    figures = figures_of(run)
    assert figures["video"]["freezes"] == 1
    assert figures["video"]["missed_frames"] == 4
    assert figures["video"]["frame_interval_max_ms"] == pytest.approx(5 / 30 * 1e3, abs=0.1)
    assert figures["verdict"]["reasons"] == ["1 freeze(s) of over 100 ms"]


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"min_fps_p5": 31.0}, "below 31"),
        ({"max_voice_to_voice_p95_ms": 850.0}, "above 850 ms"),
    ],
)
def test_the_objective_is_a_setting(changed: dict[str, float], reason: str) -> None:
    figures = figures_of(record(), LoadTestSettings(**changed))  # type: ignore[arg-type]
    assert not figures["verdict"]["pass"]
    assert reason in figures["verdict"]["reasons"][0]


def test_a_turn_without_an_answer_and_a_missed_interruption_are_told() -> None:
    run = record()
    run.turns.append(turn(0, 7.0, None))
    run.turns.append(turn(1, 8.0, None, interruption=True, missed_interruption=True))
    figures = figures_of(run)
    assert (figures["turns"]["count"], figures["turns"]["answered"]) == (6, 4)
    assert figures["verdict"]["reasons"] == [
        "2 of 6 turns not answered",
        "1 interruption(s) not noticed",
    ]


def test_a_viewer_who_was_cut_off_did_not_wait() -> None:
    run = record()
    run.turns.append(turn(0, 7.0, -400.0, cut_off=True))
    turns = figures_of(run)["turns"]
    assert (turns["count"], turns["answered"], turns["cut_off"]) == (5, 5, 1)
    assert turns["voice_to_voice_ms"]["p50"] == 800.0


def test_only_turns_of_the_measured_time_count() -> None:
    run = record()
    run.turns += [turn(0, -3.0, 5_000.0), turn(0, 10.5, 5_000.0)]
    assert figures_of(run)["turns"]["count"] == 4


def test_interruptions_are_measured_from_the_first_word_to_silence() -> None:
    run = record()
    said = turn(0, 7.0, 800.0, interruption=True)
    said.stopped_at = said.said_at + 0.24
    run.turns.append(said)
    barge_in = figures_of(run)["barge_in_ms"]
    assert (barge_in["p50"], barge_in["count"], barge_in["missed"]) == (240.0, 1, 0)


def test_refused_joins_are_counted_and_are_the_binding_resource() -> None:
    run = record()
    run.sessions = 3
    run.refused.append(
        Refused(session=2, viewer=0, status=503, message="Full: no CPU left.", at=START)
    )
    figures = figures_of(run)
    assert figures["joins"]["rejected"] == 1
    assert figures["verdict"]["binding"] == "admission"
    assert "Full: no CPU left." in figures["verdict"]["reasons"][0]


def test_a_run_that_nobody_could_join_says_so() -> None:
    run = RunRecord(1, 1, 1, start=START, end=START + 10)
    run.refused.append(Refused(session=0, viewer=0, status=503, message="Full.", at=START))
    figures = figures_of(run)
    assert not figures["verdict"]["pass"]
    assert "no pictures were received" in figures["verdict"]["reasons"]
    assert figures["cpu_ms_per_s"]["gateway"] is None


def test_the_load_test_says_when_it_is_its_own_limit() -> None:
    run = record()
    run.finished[0] = viewer(0, connection(10), lag_ms=60.0)
    run.finished[1] = viewer(1, connection(10), lag_ms=60.0)
    told = figures_of(run)["verdict"]
    assert told["binding"] == "load"
    assert "60 ms late" in told["caveats"][0]


def test_other_programs_on_a_full_machine_are_told() -> None:
    run = record()
    for sample in run.usage:
        sample.busy, sample.foreign = 1.0, 4_000.0
    told = figures_of(run)["verdict"]
    assert told["binding"] == "foreign"
    assert "Other programs" in told["caveats"][0]


def test_a_full_machine_is_the_binding_resource() -> None:
    run = record()
    for sample in run.usage:
        sample.busy, sample.foreign = 0.97, 0.0
    assert figures_of(run)["verdict"]["binding"] == "cpu"


def test_a_process_that_fills_a_core_is_the_binding_resource() -> None:
    run = record()
    for sample in run.usage:
        sample.run["inference"] = 930.0
    assert figures_of(run)["verdict"]["binding"] == "inference"


def killed(run: RunRecord, **more: Any) -> RunRecord:
    run.kills.append(Kill("avatar 2", 77, START + 4.0, 1, **more))
    return run


def test_a_killed_avatar_is_not_held_against_the_others() -> None:
    run = record()
    before, after = connection(3.0), connection(4.0, start=START + 6.0)
    before.shown = [at for at in before.shown if at < START + 4.0]
    before.pts = before.pts[: len(before.shown)]
    run.finished[1] = viewer(1, before, after)
    run.turns[3] = turn(1, 4.5, None, lost=True)
    figures = figures_of(killed(run, back_at=START + 5.0))
    assert figures["verdict"]["pass"]
    assert figures["turns"]["count"] == 3
    (kill,) = figures["kills"]
    assert kill["back_after_s"] == 1.0
    assert kill["others"] == {
        "sessions": 1,
        "missed_frames": 0,
        "frame_interval_max_ms": pytest.approx(33.33, abs=0.01),
    }
    assert kill["own_longest_still_ms"] > 900


def test_a_frame_that_others_miss_at_a_kill_misses_the_objective() -> None:
    run = killed(record(), back_at=START + 5.0)
    run.finished[0] = viewer(0, connection(10, without=(160,)))
    figures = figures_of(run)
    assert figures["kills"][0]["others"]["missed_frames"] == 1
    assert "1 frame(s) of others missed when avatar 2 was killed" in figures["verdict"]["reasons"]


def test_a_process_that_does_not_come_back_misses_the_objective() -> None:
    reasons = figures_of(killed(record()))["verdict"]["reasons"]
    assert "avatar 2 did not come back" in reasons


def test_turns_that_a_kill_of_inference_disturbed_are_not_judged() -> None:
    run = record()
    run.kills.append(Kill("inference", 77, START + 4.0, None, back_at=START + 7.0))
    run.turns = [turn(0, 1.0, 700.0), turn(0, 4.5, 9_000.0), turn(1, 2.5, 2_000.0)]
    figures = figures_of(run)
    assert figures["turns"]["count"] == 1
    assert figures["kills"][0]["others"]["sessions"] == 2
    assert len(figures["detail"]["turns"]) == 3
