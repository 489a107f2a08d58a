"""The captions of a recording, made of what the pages are told."""

from __future__ import annotations

from avatar_server.protocol import events
from avatar_server.recording.captions import CaptionMaker, Cue, webvtt_cue


def caption(clause: int, text: str, spoken: str = "", turn: int = 1) -> events.Caption:
    return events.Caption(turn=turn, clause=clause, text=text, spoken=spoken)


def done(turn: int = 1) -> events.TurnDone:
    return events.TurnDone(turn=turn, voice_to_voice_ms=None, stages_ms={})


def cues(maker: CaptionMaker, *said: tuple[float, events.Event]) -> list[Cue]:
    return [cue for at, event in said for cue in maker.take(at, event)]


def test_question_and_answer_stand_where_they_were_said() -> None:
    found = cues(
        CaptionMaker("Theo", viewers=True),
        (1.0, events.State(state="hearing")),
        (1.5, events.Heard(turn=1, text="What is", final=False)),
        (3.0, events.Heard(turn=1, text="What is your name?", final=True)),
        (4.0, caption(0, "I am Theo.")),
        (4.5, caption(0, "I am Theo.", "I am")),
        (5.0, caption(1, "Ask me anything.")),
        (6.5, done()),
    )
    assert found == [
        Cue(1.0, 3.0, "Viewer", "What is your name?"),
        Cue(4.0, 5.0, "Theo", "I am Theo."),
        Cue(5.0, 6.5, "Theo", "Ask me anything."),
    ]


def test_of_an_interrupted_clause_only_what_was_said_is_written() -> None:
    found = cues(
        CaptionMaker("Theo", viewers=True),
        (1.0, caption(0, "One two three four.")),
        (1.5, caption(0, "One two three four.", "One two")),
        (2.0, events.Interrupted(turn=1, heard="One two")),
        (2.0, done()),
    )
    assert found == [Cue(1.0, 2.0, "Theo", "One two –")]


def test_viewers_words_are_left_out_where_they_may_not_be_kept() -> None:
    found = cues(
        CaptionMaker("Theo", viewers=False),
        (1.0, events.Heard(turn=1, text="My secret", final=True)),
        (2.0, caption(0, "I see.")),
        (3.0, done()),
    )
    assert found == [Cue(2.0, 3.0, "Theo", "I see.")]


def test_cues_never_overlap_nor_are_too_short_to_be_seen() -> None:
    found = cues(
        CaptionMaker("Theo", viewers=True),
        (1.0, events.Heard(turn=1, text="Hi", final=True)),
        (1.1, caption(0, "Hello.")),
        (1.2, done()),
    )
    assert found == [Cue(1.0, 3.0, "Viewer", "Hi"), Cue(3.0, 3.3, "Theo", "Hello.")]


def test_a_webvtt_cue_names_the_speaker_and_cannot_be_broken_by_words() -> None:
    block = webvtt_cue(Cue(3_661.5, 3_662.25, "Theo", "a <b> & --> c"))
    assert block == ("01:01:01.500 --> 01:01:02.250\n<v Theo>a &lt;b&gt; &amp; --&gt; c\n\n")
