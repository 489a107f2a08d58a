"""The ledger accounts for a turn's time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from avatar_server.avatar.ledger import ledger, overran
from avatar_server.config import TurnSettings
from tests.avatar.simulation import Simulation

SHARES = {"endpoint": 0.25, "stt": 0.25, "llm": 0.25, "tts": 0.25}


def test_each_stage_is_granted_its_share_of_what_is_left() -> None:
    path = [("endpoint", 0.1), ("stt", 0.5), ("llm", 0.2), ("tts", 0.1)]
    entries = ledger(path, 1_000.0, SHARES)
    # The 150 ms that the end of turn saves are shared by the three after it.
    assert [round(e.granted_ms) for e in entries] == [250, 300, 200, 200]
    assert [e.took_ms for e in entries] == [100, 500, 200, 100]
    assert overran(entries, 1_000.0) == ""


def test_the_stage_that_took_most_too_much_is_named() -> None:
    path = [("endpoint", 0.2), ("stt", 0.3), ("llm", 0.9), ("tts", 0.4)]
    entries = ledger(path, 1_000.0, SHARES)
    assert overran(entries, 1_000.0) == "llm"


def test_what_did_not_happen_leaves_its_share_to_the_others() -> None:
    entries = ledger([("stt", 0.2), ("tts", 0.2)], 1_000.0, SHARES)
    assert [e.granted_ms for e in entries] == [500, 800]


@given(
    st.lists(
        st.tuples(st.sampled_from(["endpoint", "stt", "llm", "tts", "new"]), st.floats(0, 5)),
        max_size=8,
    )
)
def test_all_the_time_is_accounted_for_once(path: list[tuple[str, float]]) -> None:
    entries = ledger(path, 1_000.0, SHARES)
    assert sum(e.took_ms for e in entries) == pytest.approx(
        sum(seconds for _, seconds in path) * 1e3, abs=1.0
    )
    assert len({e.stage for e in entries}) == len(entries)
    assert all(0 <= e.granted_ms <= 1_000 for e in entries)


@pytest.mark.parametrize(
    ("stt_s", "first_sound_s", "probability", "stage"),
    [(0.9, 0.4, 0.9, "stt"), (0.2, 1.5, 0.9, "llm"), (0.2, 0.3, 0.1, "endpoint")],
)
def test_a_turns_ledger_sums_to_its_latency_and_names_the_slow_stage(
    stt_s: float, first_sound_s: float, probability: float, stage: str
) -> None:
    session = Simulation()
    session.inference.stt_s = stt_s
    session.inference.first_sound_s = first_sound_s
    session.inference.probability = probability
    session.join("ann")
    session.run(0.5)
    session.run(1.5, "ann")
    session.run_until(lambda: session.talk.state == "idle" and bool(session.traces))
    (trace,) = session.traces
    assert trace.voice_to_voice_ms is not None
    assert sum(e.took_ms for e in trace.ledger) == pytest.approx(trace.voice_to_voice_ms, abs=1.0)
    assert trace.budget_ms == TurnSettings().budget_ms
    assert trace.overran == stage


def test_the_whole_budget_is_shared_out() -> None:
    assert sum(TurnSettings().budget_shares.values()) == pytest.approx(1.0)
