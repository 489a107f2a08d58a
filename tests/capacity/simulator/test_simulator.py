"""The simulator: the server's scheduler in virtual time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from avatar_server.capacity.machine import Machine
from avatar_server.capacity.simulator.cli import parse_policies, parse_sessions
from avatar_server.capacity.simulator.devices import SharedDevice, Timeline
from avatar_server.capacity.simulator.measured import build_profile
from avatar_server.capacity.simulator.profile import (
    Profile,
    ProfileError,
    load_profile,
    parse_profile,
)
from avatar_server.capacity.simulator.simulate import (
    ComparisonError,
    compare,
    most_sessions,
    simulate,
    sweep,
)
from avatar_server.capacity.simulator.workload import Workload, turns
from avatar_server.cli import app
from avatar_server.config import Settings
from avatar_server.paths import configs_dir
from tests.capacity.costs import frames, stages

SHIPPED = sorted(path.stem for path in (configs_dir() / "profiles").glob("*.yaml"))
CALM = Workload(interrupts=0.0, complete=1.0, spread=0.0, pause_within=0.0)


def exact(name: str = "cpu2", **changes: dict[str, Any]) -> Profile:
    """A shipped profile without chance, and with changes to its parts."""
    values = load_profile(name).model_dump()
    for stage in ("stt", "endpoint", "retrieve", "tts_first", "tts_next"):
        values[stage]["spread"] = 0.0
    for part, change in changes.items():
        values[part] |= change
    return parse_profile(values, name)


# --- virtual hardware -----------------------------------------------------------------------


def test_steps_that_run_at_once_share_a_device_and_none_is_faster_than_alone() -> None:
    timeline = Timeline()
    device = SharedDevice(timeline, 2.0)
    ends: dict[str, float] = {}
    for name, seconds in (("a", 1.0), ("b", 1.0), ("c", 2.0)):
        device.start(seconds, lambda name=name: ends.setdefault(name, timeline.now()))
    timeline.run(10.0, lambda: None)
    # Three on two cores run at 2/3; then the last one alone, at full speed.
    assert ends == pytest.approx({"a": 1.5, "b": 1.5, "c": 2.5})
    device.settle()
    assert device.busy_s == pytest.approx(4.0)


def test_what_frames_take_is_missing_to_steps() -> None:
    timeline = Timeline()
    device = SharedDevice(timeline, 2.0)
    ends: list[float] = []
    device.start(1.0, lambda: ends.append(timeline.now()))
    timeline.at(0.5, lambda: device.set_background(1.5))
    timeline.run(10.0, lambda: None)
    # Each core is free for a quarter of the time, and one of the two for 1 - 0.75 ** 2 of it.
    assert ends == pytest.approx([0.5 + 0.5 / 0.4375])


def test_more_steps_than_free_cores_share_all_that_frames_leave() -> None:
    timeline = Timeline()
    device = SharedDevice(timeline, 2.0)
    device.set_background(1.0)
    ends: list[float] = []
    for _ in range(2):
        device.start(1.0, lambda: ends.append(timeline.now()))
    timeline.run(10.0, lambda: None)
    assert ends == pytest.approx([2.0, 2.0])
    device.settle()
    # The background ran on for the other 8 s.
    assert device.busy_s == pytest.approx(2 + 10.0)


# --- what is simulated ----------------------------------------------------------------------


def test_a_lone_turns_latency_is_the_sum_of_its_stages() -> None:
    """An answer known word for word: pause, recognition, facts, first piece, playout."""
    profile = exact(
        frames={"draw_ms": 0, "encode_ms": 0, "idle_ms": 0, "session_cores": 0},
        turn={"gateway_cores": 0},
        devices={"cpu": {"capacity": 2, "places": 2, "source": "a test"}},
    )
    workload = Workload(made=0.0, interrupts=0, complete=1, spread=0, pause_within=0)
    outcome = simulate(profile, 1, workload=workload)
    stt_ms = profile.stt.fixed_ms + workload.utterance_s * profile.stt.per_unit_ms
    tts_ms = profile.tts_first.fixed_ms + workload.clause_chars * profile.tts_first.per_unit_ms
    whole = 240 + stt_ms + profile.retrieve.fixed_ms + tts_ms + profile.turn.playout_ms
    assert outcome.p50_ms == pytest.approx(whole, abs=2)
    assert outcome.answered == outcome.turns > 20


def test_a_question_that_the_check_misses_waits_half_of_the_longest_silence_more() -> None:
    profile = exact()
    workload = Workload(made=0.0, interrupts=0, complete=0, spread=0, pause_within=0)
    outcome = simulate(profile, 1, workload=workload)
    assert outcome.p50_ms == pytest.approx(40 + 750 + profile.turn.playout_ms, abs=2)


def test_the_language_model_adds_its_reading_and_its_first_clause() -> None:
    profile = exact(
        frames={"draw_ms": 0, "encode_ms": 0, "idle_ms": 0, "session_cores": 0},
        devices={"cpu": {"capacity": 4, "places": 4, "source": "a test"}},
        tts_first={"per_unit_ms": 0},
    )
    known = simulate(profile, 1, workload=Workload(made=0, interrupts=0, complete=1, spread=0))
    made = simulate(profile, 1, workload=Workload(made=1, interrupts=0, complete=1, spread=0))
    llm, w = profile.llm, Workload()
    extra = w.new_tokens * llm.read_ms_per_token + w.clause_tokens * llm.step_ms
    assert known.p50_ms is not None
    assert made.p50_ms is not None
    assert made.p50_ms - known.p50_ms == pytest.approx(extra, abs=25)


def test_the_same_seed_gives_the_same_result_and_another_seed_another() -> None:
    profile = load_profile("cpu2")
    assert simulate(profile, 3, duration_s=60, seed=5) == simulate(
        profile, 3, duration_s=60, seed=5
    )
    assert simulate(profile, 3, duration_s=60, seed=5) != simulate(
        profile, 3, duration_s=60, seed=6
    )


def test_conversations_are_the_same_under_every_policy_and_beside_others() -> None:
    first = [next(turns(Workload(), 1, 0)) for _ in range(2)]
    assert first[0] == first[1]
    assert first[0] != next(turns(Workload(), 1, 1))


@pytest.mark.parametrize("policy", ["laxity", "edf", "fifo", "fair"])
def test_nothing_is_left_behind_when_all_was_said(policy: str) -> None:
    from avatar_server.capacity.simulator.host import Host
    from avatar_server.capacity.simulator.session import SimSession

    profile, workload = load_profile("cpu2"), Workload(interrupts=0.5)
    host = Host(profile, policy, 1)
    for number in range(4):
        few = iter([*(turn for turn, _ in zip(turns(workload, 1, number), range(5), strict=False))])
        session = SimSession(host, number, _then_nothing(few), workload)
        session.start(0.0)
    host.timeline.run(300.0, host.dispatch)
    assert host.scheduler.idle
    assert not host._tasks
    assert not host._llm
    assert not host._speaking


def _then_nothing(few: Any) -> Any:
    """After the last turn a very long pause."""
    from dataclasses import replace

    last = None
    for turn in few:
        last = turn
        yield turn
    assert last is not None
    yield replace(last, wait_s=1e6)


def test_more_sessions_use_more_and_wait_longer() -> None:
    outcomes = sweep(load_profile("cpu2"), [1, 2, 4], ["laxity"], duration_s=120)
    used = [o.utilisation["cpu"] for o in outcomes]
    assert used == sorted(used)
    p50 = [o.p50_ms or 0 for o in outcomes]
    assert p50[0] < p50[-1]
    assert outcomes[-1].binding == "cpu"


def test_under_load_the_policies_differ_as_they_should() -> None:
    """On a busy GPU speech does not break off under `laxity`, and arrival order has the longest
    tail."""
    found = {
        o.policy: o
        for o in sweep(load_profile("h100"), [16], ["laxity", "edf", "fifo"], duration_s=150)
    }
    laxity, edf, fifo = found["laxity"], found["edf"], found["fifo"]
    assert laxity.p95_ms is not None
    assert fifo.p95_ms is not None
    assert fifo.p95_ms > 1.3 * laxity.p95_ms
    assert laxity.gaps <= edf.gaps
    assert laxity.answered == laxity.turns


def test_faces_drawn_on_the_gpu_are_late_when_it_has_too_many() -> None:
    few, many = (simulate(load_profile("h100-neural"), n, duration_s=60) for n in (1, 12))
    assert few.late_frames < 0.001
    assert many.late_frames > 0.2
    assert "frames" in many.why_not


def test_the_most_sessions_are_those_before_the_first_break() -> None:
    outcomes = sweep(load_profile("h100"), [1, 2], ["laxity", "fifo"], workload=CALM, duration_s=60)
    assert most_sessions(outcomes) == {"laxity": 2, "fifo": 2}
    assert most_sessions(sweep(exact(stt={"fixed_ms": 5_000}), [1, 2], ["edf"], duration_s=60)) == {
        "edf": 0
    }


# --- profiles -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_profiles_name_the_source_of_every_number(name: str) -> None:
    profile = load_profile(name)
    values = profile.model_dump()
    parts = [*values["devices"].values()]
    parts += [v for key, v in values.items() if isinstance(v, dict) and key != "devices"]
    assert len(parts) >= 9
    assert all(len(part["source"]) > 10 for part in parts)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"stt": {"device": "tpu", "fixed_ms": 1, "source": "none"}}, "'tpu' is used and not"),
        ({"stt": {"device": "cpu", "fixed_ms": 1}}, "stt.source"),
        ({"budget_ms": -1}, "budget_ms"),
        ({"surprise": 1}, "surprise"),
    ],
)
def test_a_profile_that_cannot_be_used_says_why(change: dict[str, Any], message: str) -> None:
    values = {**load_profile("cpu2").model_dump(), **change}
    with pytest.raises(ProfileError, match=message):
        parse_profile(values, "mine")


def test_an_unknown_profile_names_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match=r"cpu2, h100"):
        load_profile("h200")
    broken = tmp_path / "broken.yaml"
    broken.write_text("a: [")
    with pytest.raises(ProfileError, match="is not YAML"):
        load_profile(broken)


def test_a_profile_is_made_of_what_the_server_measured(tmp_path: Path) -> None:
    drawn = frames(render_ms=2.8, encode_ms=2.5, idle_frame_ms=1.5, audio_ms_per_s=7.0, rss_bytes=1)
    thought = stages(retrieve_s=0.01, tts_first_s=0.1, tts_rtf=0.13, rss_bytes=1)
    machine = Machine(cpu="test", cores=2, memory_bytes=1 << 33)
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(build_profile(Settings(), machine, drawn, thought)))
    profile = load_profile(path)
    assert profile.stt.fixed_ms + 3 * profile.stt.per_unit_ms == pytest.approx(200, abs=0.1)
    assert profile.llm.read_ms_per_token == 10
    # One thread decodes for all: four at once take four times as long.
    assert profile.llm.step_ms == profile.llm.step_ms_per_sequence == 20
    assert simulate(profile, 1).answered > 0


def test_faces_that_the_gpu_draws_are_drawn_there_in_the_simulation(tmp_path: Path) -> None:
    drawn = frames(render_ms=1.0, encode_ms=2.5, idle_frame_ms=1.5, audio_ms_per_s=7.0, rss_bytes=1)
    thought = stages(rss_bytes=1, face_s=0.010, face_many_s=0.004, face_device="gpu")
    machine = Machine(cpu="test", cores=2, memory_bytes=1 << 33)
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(build_profile(Settings(), machine, drawn, thought)))
    profile = load_profile(path)
    assert profile.frames.draw_device == "gpu"
    # One face takes 10 ms, four take 16.
    assert (profile.frames.draw_ms, profile.frames.draw_ms_per_face) == (10, 2)
    assert profile.frames.encode_ms == 3.5
    assert simulate(profile, 1).answered > 0


# --- beside a load test ---------------------------------------------------------------------


def load_result(p50: float, sessions: int = 4) -> dict[str, Any]:
    latency = {"p50": p50, "p95": 2 * p50, "max": 3 * p50}
    return {
        "sessions": sessions,
        "duration_s": 120.0,
        "turns": {"count": 40, "answered": 40, "voice_to_voice_ms": latency},
        "cpu_ms_per_s": {"avatar": 500.0, "load": 200.0, "other": None},
    }


def test_a_load_test_is_predicted_with_its_own_rate_of_turns() -> None:
    profile = load_profile("cpu2")
    found = compare(profile, load_result(1_000.0), duration_s=60.0)
    assert found.error == pytest.approx(found.predicted_p50_ms / 1_000 - 1)
    rare = load_result(1_000.0) | {"duration_s": 1_200.0}
    assert compare(profile, rare, duration_s=300.0).predicted_p50_ms <= found.predicted_p50_ms


def test_a_load_tests_questions_are_simulated_as_it_had_them() -> None:
    known = {"llm": [0.0, 12.0], "tts": [12.0, 110.0]}
    again = {"llm": [0.0, 9.0], "tts": [9.0, 9.0]}
    made = {"llm": [0.0, 400.0], "tts": [400.0, 500.0]}
    predicted = []
    for turns_ms in ([known] * 4, [known] * 2 + [again] * 2, [made] * 4):
        detail = {"turns": [{"stages_ms": stages_ms} for stages_ms in turns_ms]}
        load = load_result(1_000.0) | {"detail": detail}
        found = compare(exact(), load, duration_s=60.0)
        predicted.append(found.predicted_p50_ms)
    assert predicted[1] < predicted[0] < predicted[2]
    # A turn that was not answered says nothing of the mix.
    detail = {"turns": [{"stages_ms": known}, {"stages_ms": {}}]}
    found = compare(exact(), load_result(1_000.0) | {"detail": detail}, duration_s=60.0)
    assert found.predicted_p50_ms == predicted[0]


@pytest.mark.parametrize("broken", [{}, [], {"sessions": 4}, load_result(0.0)])
def test_what_is_no_load_test_cannot_be_compared_with(broken: Any) -> None:
    with pytest.raises(ComparisonError):
        compare(load_profile("cpu2"), broken)


# --- the command ----------------------------------------------------------------------------


def test_sessions_are_written_as_numbers_and_ranges() -> None:
    assert parse_sessions("4") == [4]
    assert parse_sessions("1-3, 8") == [1, 2, 3, 8]
    for wrong in ("", "0", "3-1", "a", "1-", "1-9999"):
        with pytest.raises(ProfileError, match="--sessions"):
            parse_sessions(wrong)
    assert parse_policies("fifo, laxity,fifo") == ["fifo", "laxity"]
    with pytest.raises(ProfileError, match="choose from laxity, edf, fifo, fair"):
        parse_policies("best")


def test_the_command_writes_a_table_figures_and_a_diagram(tmp_path: Path) -> None:
    figures, diagram = tmp_path / "out.json", tmp_path / "out.png"
    arguments = ["simulate", "--profile", "cpu2", "--sessions", "1-2", "--policy", "laxity,fifo"]
    result = CliRunner().invoke(
        app, [*arguments, "--duration", "60", "--json", str(figures), "--plot", str(diagram)]
    )
    assert result.exit_code == 0, result.output
    assert "laxity: the objective holds for up to" in result.output
    written = json.loads(figures.read_text())
    assert [(o["sessions"], o["policy"]) for o in written["outcomes"]] == [
        (1, "laxity"),
        (1, "fifo"),
        (2, "laxity"),
        (2, "fifo"),
    ]
    assert written["profile"]["stt"]["source"]
    assert diagram.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--profile", "nowhere"], "no profile 'nowhere'"),
        (["--sessions", "none"], "--sessions 'none'"),
        (["--json", "/nowhere/out.json"], "there is no folder /nowhere"),
        (["--compare", "/nowhere.json"], "cannot read /nowhere.json"),
        (["--plot", "out.surprise", "--sessions", "1", "--duration", "30"], "--plot out.surprise"),
    ],
)
def test_wrong_use_is_told_in_a_sentence(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(app, ["simulate", *arguments])
    assert result.exit_code == 2
    assert message in result.output
    assert "Traceback" not in result.output


def test_the_comparison_fails_where_the_prediction_is_far_off(tmp_path: Path) -> None:
    path, figures = tmp_path / "load.json", tmp_path / "found.json"
    command = ["simulate", "--profile", "cpu2", "--policy", "laxity", "--duration", "30"]
    predicted = compare(
        load_profile("cpu2"), load_result(1_000.0), duration_s=30.0
    ).predicted_p50_ms
    for measured, code in ((predicted * 1.1, 0), (predicted * 2, 1)):
        path.write_text(json.dumps(load_result(measured)))
        result = CliRunner().invoke(app, [*command, "--compare", str(path), "--json", str(figures)])
        assert result.exit_code == code, result.output
        assert json.loads(figures.read_text())["within"] is (code == 0)
