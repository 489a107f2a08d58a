"""The wait for a late answer is covered by a remark, which is no answer."""

from __future__ import annotations

import pytest

from avatar_server.protocol import events
from avatar_server.protocol.messages import Respond, Say
from tests.avatar.simulation import WORD_S, Simulation

REMARK_S = 3 * WORD_S
"""Of "Let me think."."""


def ready(**overrides: object) -> Simulation:
    """A session whose remarks have been made."""
    session = Simulation(acknowledge=True, **overrides)
    session.join("ann")
    session.run(10.0)
    assert {job.text for job in session.inference.of_kind(Say)} >= {"Let me think."}  # type: ignore[union-attr]
    return session


def ask(session: Simulation) -> float:
    """Ann asks; returns the moment of her last word."""
    session.run(1.5, "ann")
    return session.clock.now()


def audible(session: Simulation, since: float) -> list[tuple[float, float]]:
    """From when to when something was heard."""
    spans: list[tuple[float, float]] = []
    for at, loud in session.loud:
        if loud and at >= since:
            if spans and at - spans[-1][1] < 0.03:
                spans[-1] = (spans[-1][0], at)
            else:
                spans.append((at, at))
    return spans


def test_remarks_are_made_once_and_ahead_and_nobody_hears_them_made() -> None:
    session = ready()
    says = session.inference.of_kind(Say)
    assert [job.text for job in says] == ["Let me think.", "Hmm, one moment.", "Let me see."]  # type: ignore[union-attr]
    assert all(job.ahead for job in says)  # type: ignore[union-attr]
    assert not any(loud for _, loud in session.loud)


def test_an_answer_foreseen_to_be_late_is_covered_at_once_and_follows() -> None:
    session = ready()
    session.inference.first_sound_s = session.inference.outlook_s = 3.0
    end = ask(session)
    session.run_until(lambda: session.talk.state == "idle")
    remark, answer = audible(session, end)[:2]
    assert remark[0] - end < 0.8
    assert remark[1] - remark[0] < REMARK_S + 0.05
    assert 3.0 < answer[0] - end < 3.7
    (trace,) = session.traces
    assert trace.acknowledged_ms is not None
    assert trace.acknowledged_ms < 800
    assert trace.voice_to_voice_ms is not None
    assert trace.voice_to_voice_ms > 3_000
    assert trace.reply_text == "This is an answer. It has two clauses."
    (done,) = session.of_type(events.TurnDone)
    assert done.acknowledged_ms == trace.acknowledged_ms  # type: ignore[union-attr]
    captions = [c.text for c in session.of_type(events.Caption)]  # type: ignore[union-attr]
    assert captions[0] == "Let me think."
    assert captions[-1] == "It has two clauses."


@pytest.mark.parametrize("first_sound_s", [0.3, 1.0])
def test_an_answer_that_will_be_in_time_or_hardly_late_is_not_covered(
    first_sound_s: float,
) -> None:
    session = ready()
    session.inference.first_sound_s = session.inference.outlook_s = first_sound_s
    ask(session)
    session.run_until(lambda: session.talk.state == "idle")
    assert session.traces[0].acknowledged_ms is None
    assert session.traces[0].outcome == "answered"


def test_an_answer_late_unforeseen_is_covered_once() -> None:
    session = ready()
    session.inference.first_sound_s, session.inference.outlook_s = 8.0, 0.3
    end = ask(session)
    session.run_until(lambda: session.talk.state == "idle")
    remark, answer = audible(session, end)[:2]
    assert 2.1 < remark[0] - end < 2.4
    assert answer[0] - end > 8.0
    assert session.traces[0].overran == "llm"


def test_the_answer_that_comes_during_the_remark_waits_for_its_end() -> None:
    session = ready()
    session.inference.first_sound_s, session.inference.outlook_s = 0.6, 3.0
    end = ask(session)
    session.run_until(lambda: session.talk.state == "idle")
    (heard,) = audible(session, end)[:1]
    trace = session.traces[0]
    assert trace.acknowledged_ms is not None
    assert trace.voice_to_voice_ms is not None
    assert trace.voice_to_voice_ms - trace.acknowledged_ms >= REMARK_S * 1e3 - 30
    assert heard[1] - heard[0] > REMARK_S


def test_consecutive_late_answers_are_covered_by_different_remarks() -> None:
    session = ready()
    session.inference.first_sound_s = session.inference.outlook_s = 3.0
    for _ in range(2):
        ask(session)
        session.run_until(lambda: session.talk.state == "idle")
    asides = [c.text for c in session.of_type(events.Caption) if c.clause < 0]  # type: ignore[union-attr]
    assert list(dict.fromkeys(asides)) == ["Let me think.", "Hmm, one moment."]


def test_interrupting_the_remark_leaves_the_question_open_and_the_remark_out() -> None:
    session = ready()
    session.inference.first_sound_s = session.inference.outlook_s = 3.0
    session.inference.transcripts = ["what is this", "i mean that"]
    end = ask(session)
    session.run_until(lambda: session.talk.state == "speaking")
    session.run(0.2)
    assert len(audible(session, end)) == 1
    session.run(1.0, "ann")
    session.run_until(lambda: session.talk.state == "idle")
    assert [t.outcome for t in session.traces] == ["interrupted", "answered"]
    assert session.traces[0].reply_text == ""
    last = session.inference.of_kind(Respond)[-1]
    assert last.text == "what is this i mean that"  # type: ignore[union-attr]
    assert last.history == []  # type: ignore[union-attr]


def test_what_was_covered_is_not_in_the_history_of_the_next_turn() -> None:
    session = ready()
    session.inference.first_sound_s = session.inference.outlook_s = 3.0
    ask(session)
    session.run_until(lambda: session.talk.state == "idle")
    ask(session)
    session.run_until(lambda: session.talk.state == "idle")
    last = session.inference.of_kind(Respond)[-1]
    assert [h.text for h in last.history] == [  # type: ignore[union-attr]
        "what can you tell me",
        "This is an answer. It has two clauses.",
    ]


def test_it_can_be_switched_off() -> None:
    session = Simulation(acknowledge=False)
    session.join("ann")
    session.run(5.0)
    assert session.inference.of_kind(Say) == []
    session.inference.first_sound_s = session.inference.outlook_s = 3.0
    ask(session)
    session.run_until(lambda: session.talk.state == "idle")
    assert session.traces[0].acknowledged_ms is None


def test_remarks_lost_with_inference_are_made_when_it_is_back() -> None:
    session = Simulation(acknowledge=True)
    session.join("ann")
    session.run(0.4)
    session.inference.kill()
    session.run(1.0)
    session.inference.revive()
    session.run(8.0)
    session.inference.first_sound_s = session.inference.outlook_s = 3.0
    ask(session)
    session.run_until(lambda: session.talk.state == "idle")
    assert session.traces[0].acknowledged_ms is not None
