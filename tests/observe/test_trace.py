"""Recent turns and what they took."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from avatar_server.observe.trace import TraceRing, percentile, summarise
from avatar_server.protocol.messages import StageSpan, TurnTrace


def turn(number: int, session: str = "a", v2v: float | None = None, **stages: float) -> TurnTrace:
    spans = [StageSpan(stage=name, start=0.0, end=length) for name, length in stages.items()]
    return TurnTrace(
        session=session, turn=number, kind="speech", voice_to_voice_ms=v2v, stages=spans
    )


def test_the_oldest_turns_go_first() -> None:
    ring = TraceRing(3)
    for number in range(5):
        ring.add(turn(number, session="ab"[number % 2]))
    assert [t.turn for t in ring.all()] == [2, 3, 4]
    assert [t.turn for t in ring.of_session("a")] == [2, 4]
    none = TraceRing(0)
    none.add(turn(1))
    assert none.all() == []


def test_a_summary_has_quantiles_of_latency_and_of_each_stage() -> None:
    turns = [turn(i, v2v=100.0 * i, stt=0.01 * i) for i in range(1, 21)]
    turns.append(turn(21, v2v=None, tts=0.5))
    summary = summarise(turns)
    assert summary.turns == 21
    assert summary.voice_to_voice_ms is not None
    assert summary.voice_to_voice_ms.count == 20
    assert summary.voice_to_voice_ms.p50 == 1_000
    assert summary.voice_to_voice_ms.p95 == 1_900
    assert summary.stages_ms["stt"].p50 == pytest.approx(100)
    assert summary.stages_ms["tts"].count == 1


def test_a_stage_that_ran_twice_in_a_turn_counts_with_its_sum() -> None:
    trace = turn(1)
    trace.stages = [
        StageSpan(stage="stt", start=-0.1, end=0.1),
        StageSpan(stage="stt", start=0.3, end=0.4),
    ]
    assert summarise([trace]).stages_ms["stt"].p50 == pytest.approx(300)


def test_no_turns_have_no_latency() -> None:
    summary = summarise([])
    assert summary.voice_to_voice_ms is None
    assert summary.stages_ms == {}
    with pytest.raises(ValueError, match="no values"):
        percentile([], 50)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1), st.floats(0, 100, allow_nan=False))
def test_a_percentile_is_a_value_that_enough_others_do_not_exceed(
    values: list[float], percent: float
) -> None:
    found = percentile(values, percent)
    assert found in values
    assert sum(value <= found for value in values) >= percent / 100 * len(values) - 1e-9
