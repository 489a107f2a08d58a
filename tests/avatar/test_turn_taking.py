from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from avatar_server.avatar.turn_actions import (
    Action,
    BargeIn,
    CancelSpeculation,
    CommitTurn,
    Discard,
    Prepare,
    Speculate,
    UtteranceStarted,
)
from avatar_server.avatar.turn_taking import TurnTaking
from avatar_server.config import TurnSettings

FRAME = 512
FRAME_S = 0.032


class Voice:
    """Feeds frames of one viewer, and keeps what was to be done, with its moment."""

    def __init__(self, talk: TurnTaking, viewer: str = "ann") -> None:
        self.talk, self.viewer = talk, viewer
        self.frames = 0
        self.actions: list[tuple[float, Action]] = []

    @property
    def now(self) -> float:
        return self.frames * FRAME_S

    def frame(self, probability: float) -> list[Action]:
        self.frames += 1
        done = self.talk.on_frame(self.viewer, self.frames * FRAME, self.now, probability)
        return self.note(done)

    def note(self, actions: list[Action] | None) -> list[Action]:
        self.actions += [(self.now, action) for action in actions or []]
        return actions or []

    def speak(self, ms: float, probability: float = 0.95) -> None:
        for _ in range(round(ms / 32)):
            self.frame(probability)

    def pause(self, ms: float) -> None:
        self.speak(ms, 0.01)

    def of(self, kind: type[Action]) -> list[Action]:
        return [action for _, action in self.actions if isinstance(action, kind)]

    def when(self, kind: type[Action]) -> float:
        return next(at for at, action in self.actions if isinstance(action, kind))

    def transcript(self, text: str, echo: bool = False) -> None:
        check = self.of(Speculate)[-1].check
        self.note(self.talk.on_transcript(check, text, self.now, echo))

    def judged(self, probability: float) -> None:
        check = self.of(Speculate)[-1].check
        self.note(self.talk.on_end_of_turn(check, probability, self.now))


@pytest.fixture
def voice() -> Voice:
    return Voice(TurnTaking(TurnSettings()))


def answered(voice: Voice, text: str = "what time is it") -> int:
    """A turn up to the first sound of its reply; returns its number."""
    voice.speak(960)
    voice.pause(224)
    voice.judged(0.9)
    voice.transcript(text)
    voice.pause(128)
    turn = voice.of(CommitTurn)[-1].turn
    voice.talk.on_reply_started(turn)
    return turn


def test_speech_shorter_than_the_start_time_opens_nothing(voice: Voice) -> None:
    voice.speak(64)
    voice.pause(2_000)
    assert not voice.actions


def test_an_utterance_reaches_back_before_it_was_noticed(voice: Voice) -> None:
    voice.pause(960)
    voice.speak(320)
    voice.pause(224)
    (started,) = voice.of(UtteranceStarted)
    assert started.at == pytest.approx(0.96)
    (check,) = voice.of(Speculate)
    assert check.start == 960 * 16 - 300 * 16
    assert check.at == pytest.approx(1.28)


def test_recognition_begins_at_the_pause_and_only_once(voice: Voice) -> None:
    voice.speak(960)
    voice.pause(1_500)
    assert len(voice.of(Speculate)) == 1
    assert voice.when(Speculate) == pytest.approx(0.96 + 0.224)


def test_a_complete_turn_ends_at_the_short_pause(voice: Voice) -> None:
    voice.speak(960)
    voice.pause(224)
    voice.judged(0.9)
    voice.transcript("what time is it")
    assert [type(a) for a in voice.of(Prepare)] == [Prepare]
    voice.pause(320)
    assert voice.when(CommitTurn) == pytest.approx(0.96 + 0.320)
    assert voice.of(CommitTurn)[0].text == "what time is it"
    assert voice.talk.state == "thinking"


def test_an_incomplete_turn_waits_for_the_long_pause(voice: Voice) -> None:
    voice.speak(1_600)
    voice.pause(224)
    voice.judged(0.1)
    voice.transcript("i would like to know whether")
    voice.pause(900)
    assert not voice.of(CommitTurn)
    voice.pause(128)
    assert voice.when(CommitTurn) == pytest.approx(1.6 + 1.216)


def test_the_reply_to_an_incomplete_turn_is_prepared_only_late_in_the_pause(voice: Voice) -> None:
    voice.speak(1_600)
    voice.pause(224)
    voice.judged(0.1)
    voice.transcript("i would like to know whether")
    assert not voice.of(Prepare)
    voice.pause(448)
    assert len(voice.of(Prepare)) == 1


def test_a_transcript_that_comes_after_the_pause_is_over_commits_at_once(voice: Voice) -> None:
    voice.speak(960)
    voice.pause(224)
    voice.judged(0.9)
    voice.pause(640)
    assert voice.talk.state == "thinking"
    voice.transcript("what time is it")
    assert voice.of(CommitTurn)


def test_going_on_cancels_what_was_begun_and_keeps_the_beginning(voice: Voice) -> None:
    voice.speak(960)
    voice.pause(256)
    voice.judged(0.9)
    voice.speak(320)
    voice.pause(256)
    first, second = voice.of(Speculate)
    assert [c.check for c in voice.of(CancelSpeculation)] == [first.check]
    assert second.start == first.start
    assert second.end > first.end
    assert not voice.of(CommitTurn)


def test_one_stray_frame_in_the_pause_does_not_cancel(voice: Voice) -> None:
    voice.speak(960)
    voice.pause(224)
    voice.frame(0.9)
    voice.judged(0.9)
    voice.transcript("what time is it")
    voice.pause(96)
    assert not voice.of(CancelSpeculation)
    assert voice.of(CommitTurn)


def test_late_results_of_a_cancelled_check_are_ignored(voice: Voice) -> None:
    voice.speak(960)
    voice.pause(224)
    old = voice.of(Speculate)[-1].check
    voice.speak(320)
    assert voice.talk.on_transcript(old, "what", voice.now) == []
    assert voice.talk.on_end_of_turn(old, 1.0, voice.now) == []
    assert voice.talk.on_check_failed(old) == []
    assert voice.talk.state == "hearing"


@pytest.mark.parametrize("text", ["Yes.", "Stop!", "no thanks", "はい"])
def test_short_answers_do_not_wait_for_the_long_pause(voice: Voice, text: str) -> None:
    voice.speak(320)
    voice.pause(224)
    voice.judged(0.05)
    voice.transcript(text)
    voice.pause(320)
    assert voice.when(CommitTurn) <= 0.32 + 0.48


@pytest.mark.parametrize(
    ("text", "after_s"),
    [
        ("Is my voice recorded anywhere?", 0.75),
        ("\u3053\u308c\u306f\u4f55\u3067\u3059\u304b\uff1f", 0.75),
        ("What about?", 1.2),
        ("I would like to know whether you are open.", 1.2),
    ],
)
def test_a_whole_question_that_the_check_misses_waits_half_as_long(
    voice: Voice, text: str, after_s: float
) -> None:
    voice.speak(1_600)
    voice.pause(224)
    voice.judged(0.05)
    voice.transcript(text)
    voice.pause(1_200)
    # The voice is heard in frames of 32 ms.
    assert voice.when(CommitTurn) == pytest.approx(1.6 + after_s, abs=0.033)


def test_the_beginning_of_a_sentence_is_no_short_answer(voice: Voice) -> None:
    voice.speak(640)
    voice.pause(224)
    voice.judged(0.05)
    voice.transcript("what can")
    voice.pause(448)
    assert not voice.of(CommitTurn)


def test_an_empty_transcript_is_no_turn(voice: Voice) -> None:
    voice.speak(320)
    voice.pause(224)
    voice.transcript("  ")
    voice.pause(128)
    (discard,) = voice.of(Discard)
    assert discard.reason == "noise"
    assert voice.talk.state == "idle"
    assert voice.talk.floor is None


def test_an_echo_is_no_turn_and_makes_the_next_interruption_harder(voice: Voice) -> None:
    answered(voice)
    voice.speak(192)
    assert len(voice.of(BargeIn)) == 1
    voice.pause(224)
    voice.transcript("it is nine", echo=True)
    assert voice.of(Discard)[-1].reason == "echo"
    answered(voice)
    voice.speak(192)
    assert len(voice.of(BargeIn)) == 1
    voice.speak(160)
    assert len(voice.of(BargeIn)) == 2


def test_speech_stops_a_reply_after_the_barge_in_time(voice: Voice) -> None:
    turn = answered(voice)
    voice.pause(320)
    onset = voice.now
    voice.speak(320)
    (barge,) = voice.of(BargeIn)
    assert (barge.turn, barge.reason) == (turn, "speech")
    assert barge.onset == pytest.approx(onset)
    assert voice.when(BargeIn) - onset == pytest.approx(0.16)
    assert voice.talk.state == "hearing"


def test_a_backchannel_does_not_stop_a_reply(voice: Voice) -> None:
    answered(voice)
    voice.speak(128)
    voice.pause(96)
    voice.speak(128)
    voice.pause(96)
    assert not voice.of(BargeIn)
    assert voice.talk.state == "speaking"


def test_faint_speech_does_not_stop_a_reply(voice: Voice) -> None:
    answered(voice)
    voice.speak(640, probability=0.6)
    assert not voice.of(BargeIn)


def test_typed_text_replaces_an_utterance_and_a_reply(voice: Voice) -> None:
    turn = answered(voice)
    voice.note(voice.talk.on_text("ann", "next", voice.now))
    assert [b.turn for b in voice.of(BargeIn)] == [turn]
    assert voice.of(CommitTurn)[-1].text == "next"
    voice.talk.on_reply_over(turn + 1)
    voice.speak(640)
    voice.note(voice.talk.on_text("ann", "typed after all", voice.now))
    assert voice.of(Discard)[-1].reason == "replaced"
    assert voice.talk.floor == "ann"


def test_others_are_not_heard_while_somebody_has_the_floor(voice: Voice) -> None:
    other = Voice(voice.talk, "bob")
    voice.speak(320)
    other.speak(960)
    assert not other.actions
    assert voice.talk.on_text("bob", "hello", 1.0) is None
    assert voice.talk.on_stop("bob", 1.0) == []
    assert voice.talk.floor == "ann"


def test_frames_that_stop_coming_are_a_pause(voice: Voice) -> None:
    voice.speak(960)
    voice.note(voice.talk.on_tick(voice.now + 0.4))
    assert not voice.of(Speculate)
    voice.note(voice.talk.on_tick(voice.now + 0.7))
    assert voice.of(Speculate)
    voice.transcript("what time is it")
    voice.note(voice.talk.on_tick(voice.now + 1.3))
    assert voice.of(CommitTurn)


def test_a_transcript_that_never_comes_is_given_up(voice: Voice) -> None:
    voice.speak(960)
    voice.pause(2_000)
    voice.note(voice.talk.on_tick(voice.now + 20))
    assert voice.of(Discard)[-1].reason == "failed"
    assert voice.talk.state == "idle"


def test_speech_without_end_is_cut_into_turns() -> None:
    voice = Voice(TurnTaking(TurnSettings(max_utterance_s=4.0)))
    voice.speak(4_800)
    (check,) = voice.of(Speculate)
    voice.transcript("so it goes on")
    assert voice.of(CommitTurn)[0].text == "so it goes on"
    assert voice.talk.state == "hearing"
    voice.pause(224)
    first, second = voice.of(Speculate)
    assert second.start == first.end == check.end


def test_a_greeting_is_not_begun_over_somebody(voice: Voice) -> None:
    voice.speak(320)
    assert voice.talk.begin_reply() is None
    voice.note(voice.talk.on_leave("ann"))
    assert voice.talk.begin_reply() == 1
    assert voice.talk.begin_reply() is None
    assert voice.talk.floor is None


EVENTS = st.one_of(
    st.tuples(st.just("voice"), st.sampled_from(["ann", "bob"]), st.integers(1, 60)),
    st.tuples(st.just("quiet"), st.sampled_from(["ann", "bob"]), st.integers(1, 60)),
    st.tuples(st.just("mixed"), st.sampled_from(["ann", "bob"]), st.integers(1, 60)),
    st.tuples(st.just("gap"), st.integers(1, 100)),
    st.tuples(st.just("transcript"), st.sampled_from(["", "yes", "what time is it now"])),
    st.tuples(st.just("echo")),
    st.tuples(st.just("judged"), st.floats(0, 1)),
    st.tuples(st.just("failed")),
    st.tuples(st.just("stale"), st.integers(0, 10)),
    st.tuples(st.just("started")),
    st.tuples(st.just("over")),
    st.tuples(st.just("text"), st.sampled_from(["ann", "bob"])),
    st.tuples(st.just("stop"), st.sampled_from(["ann", "bob"])),
    st.tuples(st.just("leave"), st.sampled_from(["ann", "bob"])),
    st.tuples(st.just("greet")),
)


class World:
    """Drives the machine with anything, and holds it to its promises."""

    def __init__(self) -> None:
        self.talk = TurnTaking(TurnSettings(max_utterance_s=3.0))
        self.now = 0.0
        self.ends = {"ann": 0, "bob": 0}
        self.open_checks: set[int] = set()
        self.last_check = 0
        self.replies: set[int] = set()
        self.committed: set[int] = set()

    def take(self, actions: list[Action] | None) -> None:
        for action in actions or []:
            match action:
                case Speculate(check=check, start=start, end=end):
                    assert not self.open_checks, "a second check while one is open"
                    assert 0 <= start < end
                    assert check == self.last_check + 1
                    self.last_check = check
                    self.open_checks.add(check)
                case CancelSpeculation(check=check):
                    self.open_checks.remove(check)
                case Prepare(check=check, text=text):
                    assert check in self.open_checks
                    assert text
                case CommitTurn(turn=turn, text=text, check=number):
                    assert text
                    assert not self.replies, "two replies"
                    assert turn not in self.committed
                    self.committed.add(turn)
                    self.replies.add(turn)
                    if number is not None:
                        self.open_checks.remove(number)
                case Discard(check=number):
                    if number is not None:
                        self.open_checks.remove(number)
                case BargeIn(turn=turn):
                    self.replies.remove(turn)
        assert self.replies == ({self.talk.reply_turn} if self.talk.reply_turn else set())

    def frames(self, viewer: str, probabilities: Iterator[float]) -> None:
        for probability in probabilities:
            self.now += FRAME_S
            self.ends[viewer] += FRAME
            self.take(self.talk.on_frame(viewer, self.ends[viewer], self.now, probability))
            self.take(self.talk.on_tick(self.now))

    def step(self, event: tuple[object, ...]) -> None:
        talk = self.talk
        match event:
            case ("voice", str(viewer), int(count)):
                self.frames(viewer, iter([0.95] * count))
            case ("quiet", str(viewer), int(count)):
                self.frames(viewer, iter([0.02] * count))
            case ("mixed", str(viewer), int(count)):
                self.frames(viewer, iter([0.1 + i * 37 % 9 / 10 for i in range(count)]))
            case ("gap", int(count)):
                for _ in range(count):
                    self.now += 0.05
                    self.take(talk.on_tick(self.now))
            case ("transcript", str(text)):
                self.take(talk.on_transcript(self.last_check, text, self.now))
            case ("echo",):
                self.take(talk.on_transcript(self.last_check, "it is", self.now, echo=True))
            case ("judged", float(probability)):
                self.take(talk.on_end_of_turn(self.last_check, probability, self.now))
            case ("failed",):
                self.take(talk.on_check_failed(self.last_check))
            case ("stale", int(back)):
                self.take(talk.on_transcript(self.last_check - 1 - back, "old", self.now))
            case ("started",):
                talk.on_reply_started(talk.reply_turn or 0)
            case ("over",):
                self.replies.discard(talk.reply_turn or 0)
                talk.on_reply_over(talk.reply_turn or 0)
            case ("text", str(viewer)):
                self.take(talk.on_text(viewer, "typed", self.now))
            case ("stop", str(viewer)):
                self.take(talk.on_stop(viewer, self.now))
            case ("leave", str(viewer)):
                self.take(talk.on_leave(viewer))
                self.ends[viewer] = 0
            case ("greet",):
                turn = talk.begin_reply()
                if turn is not None:
                    self.replies.add(turn)
                self.take([])


@settings(max_examples=300, deadline=None)
@given(st.lists(EVENTS, max_size=40))
def test_whatever_happens_the_machine_comes_to_rest_with_nothing_open(
    happened: list[tuple[object, ...]],
) -> None:
    world = World()
    for event in happened:
        world.step(event)
    # Quiet, an inference that answers nothing, and a reply that ends.
    for _ in range(2):
        world.step(("gap", 400))
        world.step(("over",))
    assert world.talk.state == "idle"
    assert world.talk.floor is None
    assert not world.open_checks
    # And it still works.
    world.step(("voice", "ann", 30))
    world.step(("quiet", "ann", 8))
    world.step(("transcript", "are you there"))
    world.step(("quiet", "ann", 40))
    assert len(world.committed) >= 1
