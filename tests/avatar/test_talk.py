from __future__ import annotations

from itertools import groupby
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from avatar_server.avatar.endings import ending_words
from avatar_server.avatar.playout import Playout
from avatar_server.protocol import events
from avatar_server.protocol.messages import Respond, Say, Transcribe
from renderers.contract import Attitude
from tests.avatar.simulation import Simulation


@pytest.fixture
def session() -> Simulation:
    simulation = Simulation()
    simulation.join("ann")
    simulation.run(0.5)
    return simulation


def ask(session: Simulation, viewer: str = "ann", seconds: float = 1.5) -> None:
    session.run(seconds, viewer)
    session.run_until(lambda: session.talk.state == "speaking")


def test_a_spoken_question_is_heard_answered_and_traced(session: Simulation) -> None:
    ask(session)
    session.run_until(lambda: session.talk.state == "idle")

    states = [state for state, _ in groupby(session.states())]
    assert states == ["idle", "hearing", "thinking", "speaking", "idle"]
    final = [e for e in session.of_type(events.Heard) if e.final]
    assert [e.text for e in final] == ["what can you tell me"]
    captions = session.of_type(events.Caption)
    assert captions[-1].spoken == "It has two clauses."
    assert [c.spoken for c in captions if c.clause == 0] == [
        "",
        "This",
        "This is",
        "This is an",
        "This is an answer.",
    ]
    (trace,) = session.traces
    assert trace.outcome == "answered"
    assert trace.reply_text == "This is an answer. It has two clauses."
    assert {s.stage for s in trace.stages} == {
        "endpoint",
        "stt",
        "end_of_turn",
        "route",
        "facts",
        "llm",
        "tts",
        "playout",
    }
    # 200 ms of pause, 200 ms of recognition, 300 ms to the first sound, and rounding to frames.
    assert 690 <= trace.voice_to_voice_ms <= 800
    (done,) = session.of_type(events.TurnDone)
    assert done.voice_to_voice_ms == trace.voice_to_voice_ms


def test_the_reply_is_prepared_in_the_pause_and_asked_for_once(session: Simulation) -> None:
    ask(session)
    session.run_until(lambda: session.talk.state == "idle")
    assert len(session.inference.of_kind(Respond)) == 1
    assert not session.inference.cancelled


def test_a_prepared_reply_is_told_when_its_turn_is_certain(session: Simulation) -> None:
    session.inference.end_of_turn_s = 0.5
    session.run(1.5, "ann")
    session.run_until(lambda: bool(session.inference.of_kind(Respond)))
    (asked,) = session.inference.of_kind(Respond)
    assert asked.speculative
    assert not session.inference.committed
    session.run_until(lambda: session.talk.state == "speaking")
    assert session.inference.committed == {asked.job}


def test_going_on_after_a_pause_is_one_turn_with_all_the_words(session: Simulation) -> None:
    session.inference.transcripts = ["what can", "what can you tell me"]
    session.inference.probability = 0.1
    session.run(1.0, "ann")
    session.run(0.5)
    session.run(1.0, "ann")
    session.run_until(lambda: session.talk.state == "idle")
    (trace,) = session.traces
    assert trace.viewer_text == "what can you tell me"
    jobs = session.inference.of_kind(Transcribe)
    assert len(jobs) == 2
    assert len(jobs[1].pcm) > len(jobs[0].pcm)
    assert all(not loud for at, loud in session.loud if at < 102.9)


def test_speaking_over_the_reply_stops_it_and_keeps_only_the_words_heard(
    session: Simulation,
) -> None:
    ask(session)
    session.run(0.5)
    onset = session.clock.now()
    session.run(0.6, "ann")
    (interrupted,) = session.of_type(events.Interrupted)
    assert session.silent_since() - onset <= 0.35
    assert interrupted.heard == "This is"
    session.run_until(lambda: session.talk.state == "idle")
    second = session.inference.of_kind(Respond)[-1]
    assert [(h.role, h.text) for h in second.history] == [
        ("user", "what can you tell me"),
        ("assistant", "This is —"),
    ]
    assert [t.outcome for t in session.traces] == ["interrupted", "answered"]


def test_sound_ends_within_40_ms_of_the_interruption(session: Simulation) -> None:
    ask(session)
    session.run(0.6)
    while not session.of_type(events.Interrupted):
        session.run(0.02, "ann")
    cut_at = next(at for at, e, _ in session.events if isinstance(e, events.Interrupted))
    session.run(0.5, "ann")
    assert session.silent_since() - cut_at <= 0.04


def test_a_sound_shorter_than_the_barge_in_time_does_not_stop_the_reply(
    session: Simulation,
) -> None:
    ask(session)
    session.run(0.4)
    session.run(0.12, "ann")
    session.run_until(lambda: session.talk.state == "idle")
    assert not session.of_type(events.Interrupted)
    assert session.traces[0].outcome == "answered"


def test_fifty_interruptions_in_a_row_leave_a_session_that_answers(session: Simulation) -> None:
    for number in range(50):
        session.inference.transcripts = [f"question number {number}"]
        ask(session, seconds=0.8)
        session.run(0.1 + number % 7 * 0.11)
    session.run_until(lambda: session.talk.state == "idle")
    assert len(session.traces) == 50
    assert [t.outcome for t in session.traces] == ["interrupted"] * 49 + ["answered"]
    assert not session.inference.open
    assert session.talk.speaker is None


def test_noise_without_words_is_no_turn(session: Simulation) -> None:
    session.inference.default_transcript = ""
    session.run(0.7, "ann")
    session.run(3.0)
    assert session.talk.state == "idle"
    assert not session.traces
    assert not session.inference.of_kind(Respond)


def test_noise_that_cut_a_reply_lets_it_go_on(session: Simulation) -> None:
    ask(session)
    session.run(0.5)
    session.inference.transcripts = [""]
    session.run(0.4, "ann")
    session.run_until(lambda: session.talk.state == "speaking")
    session.run_until(lambda: session.talk.state == "idle")
    (again,) = session.inference.of_kind(Say)
    assert again.text == "an answer. It has two clauses."


def test_speaking_on_while_the_avatar_thinks_is_answered_as_one_question(
    session: Simulation,
) -> None:
    session.inference.first_sound_s = 2.0
    session.inference.transcripts = ["tell me about", "the opening hours"]
    session.run(1.0, "ann")
    session.run_until(lambda: session.talk.state == "thinking")
    session.run(0.2)
    session.run(0.8, "ann")
    session.run_until(lambda: session.talk.state == "idle")
    last = session.inference.of_kind(Respond)[-1]
    assert last.text == "tell me about the opening hours"
    assert last.history == []
    assert sum(t.outcome == "answered" for t in session.traces) == 1


def test_the_avatar_does_not_answer_its_own_voice(session: Simulation) -> None:
    session.inference.reply = ["The library opens at nine on every working day of the week."]
    ask(session)
    session.run(2.0)
    session.inference.transcripts = ["library opens at nine"]
    session.run(0.5, "ann")
    session.run_until(lambda: session.talk.state == "idle")
    assert len(session.inference.of_kind(Respond)) == 1


def test_typed_text_is_answered_and_interrupts(session: Simulation) -> None:
    session.talk.on_event("ann", events.Text(text="  hello \n there "))
    session.run_until(lambda: session.talk.state == "speaking")
    session.run(0.5)
    session.talk.on_event("ann", events.Text(text="another"))
    session.run_until(lambda: session.talk.state == "idle")
    assert [job.text for job in session.inference.of_kind(Respond)] == ["hello there", "another"]
    assert [t.outcome for t in session.traces] == ["interrupted", "answered"]
    assert {t.kind for t in session.traces} == {"text"}


def test_stop_silences_the_avatar_and_begins_nothing(session: Simulation) -> None:
    ask(session)
    session.run(0.5)
    session.talk.on_event("ann", events.Stop())
    stopped = session.clock.now()
    session.run(2.0)
    assert session.silent_since() - stopped <= 0.04
    assert session.talk.state == "idle"
    assert len(session.inference.of_kind(Respond)) == 1


def test_the_second_of_two_viewers_is_not_heard_until_the_turn_is_over(
    session: Simulation,
) -> None:
    session.join("bob")
    session.run(0.3, "ann")
    session.run(1.0, "ann", "bob")
    assert session.talk.speaker == "ann"
    session.talk.on_event("bob", events.Text(text="me too"))
    session.run_until(lambda: session.talk.state == "speaking")
    session.run(0.5, "bob")
    assert not session.of_type(events.Interrupted)
    session.run_until(lambda: session.talk.state == "idle")
    assert len(session.traces) == 1
    assert [(e.code, v) for _, e, v in session.events if isinstance(e, events.Notice)] == [
        ("floor_taken", "bob")
    ]
    session.run(1.0, "bob")
    assert session.talk.speaker == "bob"
    session.run_until(lambda: session.talk.state == "idle")
    assert len(session.traces) == 2


def test_a_viewer_who_leaves_while_speaking_frees_the_floor(session: Simulation) -> None:
    session.join("bob")
    session.run(1.0, "ann")
    session.leave("ann")
    assert session.talk.state == "idle"
    ask(session, "bob")
    assert session.talk.speaker == "bob"


def test_when_the_last_viewer_leaves_the_reply_ends(session: Simulation) -> None:
    ask(session)
    session.leave("ann")
    left = session.clock.now()
    session.run(1.0)
    assert session.silent_since() - left <= 0.04
    assert not session.inference.open


def test_a_reply_goes_on_for_a_viewer_who_vanished_and_is_heard_on_return(
    session: Simulation,
) -> None:
    ask(session)
    before = len(session.traces)
    session.leave("ann", goodbye=False)
    session.run(0.5)
    assert session.talk.state == "speaking"
    session.join("ann2")
    session.run_until(lambda: session.talk.state == "idle")
    assert session.traces[before].outcome == "answered"


def test_a_reply_ends_where_nobody_comes_back() -> None:
    session = Simulation(greeting="one two three four five six seven eight nine ten " * 6)
    session.join("ann")
    session.run_until(lambda: session.talk.state == "speaking")
    session.leave("ann", goodbye=False)
    session.run(9.0)
    assert session.talk.state == "speaking"
    session.run(2.0)
    assert session.talk.state == "idle"
    assert not session.inference.open


def test_a_viewer_who_connects_anew_keeps_the_floor_and_what_was_said(session: Simulation) -> None:
    session.run(1.0, "ann")
    assert session.talk.speaker == "ann"
    told = len(session.events)
    session.talk.on_return("ann", True)
    assert session.talk.speaker == "ann"
    assert session.talk.state == "hearing"
    hello, state = (event for _, event, to in session.events[told:] if to == "ann")
    assert isinstance(hello, events.Hello)
    assert (hello.viewer, hello.title, hello.can_speak) == ("ann", "Test", True)
    assert isinstance(state, events.State)
    session.run(0.5, "ann")
    session.run_until(lambda: session.talk.state == "idle" and bool(session.traces))
    assert session.traces[-1].outcome == "answered"


def test_who_only_watches_is_not_heard() -> None:
    session = Simulation()
    session.join("eve", can_speak=False)
    session.run(1.0, "eve")
    session.talk.on_event("eve", events.Text(text="hello"))
    session.run(1.0)
    assert session.talk.state == "idle"
    assert [e.code for e in session.of_type(events.Notice)] == ["watching"]


def test_the_first_viewer_is_greeted_once() -> None:
    session = Simulation(greeting="Hello and welcome.")
    session.join("ann")
    session.run_until(lambda: session.talk.state == "speaking")
    session.run_until(lambda: session.talk.state == "idle")
    session.join("bob")
    session.run(2.0)
    assert [job.text for job in session.inference.of_kind(Say)] == ["Hello and welcome."]
    assert [t.kind for t in session.traces] == ["greeting"]
    assert session.traces[0].voice_to_voice_ms is None


def test_the_greeting_can_be_interrupted() -> None:
    session = Simulation(greeting="Hello and welcome to this rather long greeting of mine.")
    session.join("ann")
    session.run_until(lambda: session.talk.state == "speaking")
    session.run(0.5)
    ask(session)
    session.run_until(lambda: session.talk.state == "idle")
    assert [(t.kind, t.outcome) for t in session.traces] == [
        ("greeting", "interrupted"),
        ("speech", "answered"),
    ]


def test_the_end_of_the_session_is_announced_after_what_is_being_said() -> None:
    session = Simulation()
    session.join("ann")
    ask(session)
    session.run_until(lambda: session.talk.state == "speaking")
    session.talk.announce_ending(60)
    session.run(0.2)
    assert session.of_type(events.Notice)[-1].code == "ending"
    assert session.inference.of_kind(Say) == [], "it does not interrupt the answer"
    session.run_until(lambda: len(session.traces) == 2)
    assert [job.text for job in session.inference.of_kind(Say)] == ["We have about a minute left."]
    assert [t.outcome for t in session.traces] == ["answered", "answered"]


@pytest.mark.parametrize(
    ("language", "seconds", "words"),
    [
        ("en", 120, "We have about 2 minutes left."),
        ("en", 70, "We have about a minute left."),
        ("en", 5, "We have to end in a moment. It was good to talk to you."),
        ("ja", 60, "あと1分ほどで終了します。"),
        ("ja-JP", 5, "まもなく終了します。お話しできてよかったです。"),
        ("fr", 60, "We have about a minute left."),
    ],
)
def test_how_the_end_is_announced(language: str, seconds: float, words: str) -> None:
    assert ending_words(language)(seconds) == words


def test_a_reply_lost_with_inference_is_given_once_it_is_back(session: Simulation) -> None:
    session.inference.first_sound_s = 1.0
    session.run(1.0, "ann")
    session.run_until(lambda: session.talk.state == "thinking")
    session.inference.kill()
    session.run(0.1)
    assert session.talk.state == "unavailable"
    session.run(4.0)
    session.inference.revive()
    session.run_until(lambda: session.talk.state == "speaking")
    session.run_until(lambda: session.talk.state == "idle")
    assert session.traces[-1].outcome == "answered"
    codes = [e.code for e in session.of_type(events.Notice)]
    assert codes == ["inference_unavailable", "inference_back"]


def test_a_reply_that_broke_off_is_played_as_far_as_it_came(session: Simulation) -> None:
    session.inference.clause_s = 1.0
    ask(session)
    session.run(1.3)
    session.inference.kill()
    session.run(4.0)
    assert session.talk.state == "unavailable"
    (trace,) = session.traces
    assert trace.outcome == "failed"
    assert trace.reply_text.startswith("This is an answer.")
    session.inference.revive()
    ask(session)
    session.run_until(lambda: session.talk.state == "idle")
    assert session.traces[-1].outcome == "answered"


def test_speech_recognised_while_inference_is_away_is_answered_after_its_return(
    session: Simulation,
) -> None:
    session.inference.kill()
    session.run(1.0, "ann")
    session.run(4.0)
    session.inference.revive()
    session.run_until(lambda: session.talk.state == "idle", 30)
    assert [t.outcome for t in session.traces] == ["answered"]


def test_a_short_loss_of_inference_that_nobody_waits_for_is_not_told(session: Simulation) -> None:
    session.inference.kill()
    session.run(0.6)
    session.inference.revive()
    session.run(1.0)
    assert not session.of_type(events.Notice)
    session.inference.kill()
    session.run(1.5)
    session.inference.revive()
    codes = [e.code for e in session.of_type(events.Notice)]
    assert codes == ["inference_unavailable", "inference_back"]


def test_after_ten_seconds_without_inference_the_viewer_is_told(session: Simulation) -> None:
    session.inference.kill()
    session.run(1.0, "ann")
    session.run(14.0)
    codes = [e.code for e in session.of_type(events.Notice)]
    assert codes == ["inference_unavailable", "not_heard"]
    session.inference.revive()
    session.run(3.0)
    assert session.talk.state == "idle"
    ask(session)


def test_text_typed_while_inference_is_away_is_given_up_after_ten_seconds(
    session: Simulation,
) -> None:
    session.inference.kill()
    session.talk.on_event("ann", events.Text(text="hello"))
    session.run(12.0)
    codes = [e.code for e in session.of_type(events.Notice)]
    assert codes == ["inference_unavailable", "gave_up"]
    assert session.traces[-1].outcome == "failed"


def test_a_one_word_answer_ends_soon_though_the_check_misses_it(session: Simulation) -> None:
    session.inference.probability = 0.05
    session.inference.transcripts = ["Yes."]
    session.run(0.4, "ann")
    took = session.run_until(lambda: session.talk.state == "speaking")
    assert took < 0.8


def test_the_face_shows_each_clauses_emotion_from_where_it_sounds(session: Simulation) -> None:
    ask(session)
    session.run_until(lambda: session.talk.state == "idle")
    felt = [call[1:] for call in session.mouth.calls if call[0] == "emotion"]
    begun = [call[1] for call in session.mouth.calls if call[0] == "add"]
    assert [name for name, _ in felt] == ["happy", "happy"]
    assert [at for _, at in felt] == pytest.approx(begun, abs=0.05)


def test_the_face_is_told_when_the_viewer_it_listens_to_is_heard(session: Simulation) -> None:
    session.run(1.0, "ann")
    session.run(0.4)
    heard = [call[1:] for call in session.mouth.calls if call[0] == "hear"]
    voiced = [at for is_voiced, at in heard if is_voiced]
    assert 0.7 < voiced[-1] - voiced[0] < 1.2
    assert not heard[-1][0]
    assert heard[-1][1] > voiced[-1] + 0.15


def test_the_face_knows_the_pitch_of_all_that_is_played(session: Simulation) -> None:
    ask(session)
    session.run_until(lambda: session.talk.state == "idle")
    calls = session.mouth.calls
    energies = sum(len(call[-1]) for call in calls if call[0] in ("add", "extend"))
    pitches = sum(len(call[-1]) for call in calls if call[0] == "pitch")
    assert energies == pitches > 100


def test_partial_transcripts_are_shown_while_the_viewer_speaks() -> None:
    session = Simulation(partial_interval_ms=500)
    session.join("ann")
    session.run(0.5)
    session.inference.transcripts = ["tell", "tell me", "tell me all", "tell me all about it"]
    session.run(1.9, "ann")
    session.run_until(lambda: session.talk.state == "idle")
    partial = [job for job in session.inference.of_kind(Transcribe) if job.purpose == "partial"]
    assert len(partial) == 3
    shown = [(e.text, e.final) for e in session.of_type(events.Heard)]
    assert shown == [
        ("tell", False),
        ("tell me", False),
        ("tell me all", False),
        ("tell me all about it", False),
        ("tell me all about it", True),
    ]


def test_under_overload_only_whole_utterances_are_recognised_and_replies_are_short() -> None:
    session = Simulation(partial_interval_ms=500)
    session.join("ann")
    session.run(0.5)
    session.talk.economise(partials=False, brief=True)
    session.run(1.9, "ann")
    session.run_until(lambda: session.talk.state == "idle")
    jobs = session.inference.of_kind(Transcribe)
    assert jobs
    assert all(job.purpose != "partial" for job in jobs)
    assert [job.brief for job in session.inference.of_kind(Respond)] == [True]
    session.talk.economise(partials=True, brief=False)
    session.run(1.9, "ann")
    session.run_until(lambda: session.talk.state == "idle")
    assert any(job.purpose == "partial" for job in session.inference.of_kind(Transcribe))
    assert not session.inference.of_kind(Respond)[-1].brief


def test_the_attitude_follows_the_talk(session: Simulation) -> None:
    assert session.talk.attitude is Attitude.IDLE
    session.run(0.5, "ann")
    assert session.talk.attitude is Attitude.LISTENING
    session.run_until(lambda: session.talk.attitude is Attitude.THINKING)
    session.run_until(lambda: session.talk.attitude is Attitude.SPEAKING)


def test_speech_longer_than_the_limit_is_cut_into_turns() -> None:
    session = Simulation(max_utterance_s=3.0)
    session.join("ann")
    session.run(0.5)
    session.inference.first_sound_s = 2.0
    session.inference.transcripts = ["the first part", "the second part"]
    session.run(5.0, "ann")
    session.run_until(lambda: session.talk.state == "idle")
    last = session.inference.of_kind(Respond)[-1]
    assert last.text == "the first part the second part"
    first, second = session.inference.of_kind(Transcribe)[:2]
    total = (len(first.pcm) + len(second.pcm)) / 2 / 16_000
    # All that was said is in one of the two, none of it in both.
    assert total == pytest.approx(5.0 + 0.3 + 0.2, abs=0.1)


def test_playout_and_conversation_agree_on_the_default_clock() -> None:
    assert Playout().pull(10).tolist() == [0] * 10


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("speak"), st.sampled_from(["ann", "bob", "both"]), st.integers(1, 100)),
        st.tuples(st.just("quiet"), st.integers(1, 150)),
        st.tuples(st.just("type"), st.sampled_from(["ann", "bob"])),
        st.tuples(st.just("stop"), st.sampled_from(["ann", "bob"])),
        st.tuples(st.just("kill")),
        st.tuples(st.just("revive")),
        st.tuples(st.just("noise")),
        st.tuples(st.just("rejoin"), st.sampled_from(["ann", "bob"])),
        st.tuples(st.just("slow"), st.floats(0.05, 4.0)),
        st.tuples(st.just("unsure"), st.floats(0, 1)),
    ),
    max_size=16,
)


@settings(max_examples=25, deadline=None)
@given(STEPS)
def test_whatever_happens_every_job_ends_and_the_session_answers_again(
    steps: list[tuple[str, Any]],
) -> None:
    session = Simulation(greeting="Hello there.")
    session.join("ann", "bob")
    for step in steps:
        match step:
            case ("speak", "both", int(count)):
                session.run(count * 0.02, "ann", "bob")
            case ("speak", str(viewer), int(count)):
                session.run(count * 0.02, viewer)
            case ("quiet", int(count)):
                session.run(count * 0.02)
            case ("type", str(viewer)):
                session.talk.on_event(viewer, events.Text(text="typed words"))
            case ("stop", str(viewer)):
                session.talk.on_event(viewer, events.Stop())
            case ("kill",) if session.inference.available:
                session.inference.kill()
            case ("revive",) if not session.inference.available:
                session.inference.revive()
            case ("noise",):
                session.inference.transcripts = [""]
            case ("rejoin", str(viewer)):
                session.leave(viewer)
                session.join(viewer)
            case ("slow", float(seconds)):
                session.inference.stt_s = session.inference.first_sound_s = seconds
            case ("unsure", float(probability)):
                session.inference.probability = probability
    if not session.inference.available:
        session.inference.revive()
    session.inference.transcripts = []
    session.run(0.5)
    session.run_until(lambda: session.talk.state == "idle", 40)
    assert not session.inference.open
    ended = session.inference.done | session.inference.cancelled | session.inference.lost
    assert {job.job for job in session.inference.submitted} == ended
    turns = [trace.turn for trace in session.traces]
    assert len(turns) == len(set(turns)), "two endings of one turn"
    assert session.talk.speaker is None

    session.inference.stt_s = session.inference.first_sound_s = 0.2
    session.inference.probability = 0.9
    before = len(session.traces)
    ask(session)
    session.run_until(lambda: session.talk.state == "idle")
    assert [t.outcome for t in session.traces[before:]] == ["answered"]
