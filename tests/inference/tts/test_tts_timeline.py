"""Times of words and visemes."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from avatar_server.inference.tts.phonemes import Phone
from avatar_server.inference.tts.timeline import TimedPhone, build_timeline
from avatar_server.inference.tts.visemes import viseme_of
from renderers.contract import Viseme


def row(symbols: str, each: float = 0.1, first: float = 0.1) -> list[TimedPhone]:
    """One phone after the other; a blank begins the next word."""
    word, timed = 0, []
    for index, symbol in enumerate(symbols):
        word += symbol == " "
        owner = None if symbol in " ,." else word
        start = first + index * each
        timed.append(TimedPhone(Phone(symbol, owner), start, start + each))
    return timed


def visemes(symbols: str) -> list[str]:
    words = symbols.replace(",", "").split()
    spans = build_timeline(words, row(symbols), 5.0).visemes
    return [Viseme(span.viseme).name for span in spans]


@pytest.mark.parametrize(
    ("symbols", "expected"),
    [
        ("pbm", ["SIL", "PP", "SIL"]),
        ("faθ", ["SIL", "FF", "AA", "TH", "SIL"]),
        ("ˈaɪ", ["SIL", "AA", "IH", "SIL"]),
        ("tʃuː", ["SIL", "CH", "OU", "SIL"]),
        ("ta", ["SIL", "DD", "AA", "SIL"]),
        ("haɪ", ["SIL", "AA", "IH", "SIL"]),
        ("A", ["SIL", "E", "IH", "SIL"]),
        ("sa, ma", ["SIL", "SS", "AA", "SIL", "PP", "AA", "SIL"]),
    ],
)
def test_phonemes_become_visemes(symbols: str, expected: list[str]) -> None:
    assert visemes(symbols) == expected


def test_a_diphthong_letter_is_split_late() -> None:
    spans = build_timeline(["I"], row("I", each=0.2), 1.0).visemes
    first, second = spans[1], spans[2]
    assert (Viseme(first.viseme), Viseme(second.viseme)) == (Viseme.AA, Viseme.IH)
    assert first.end - first.start == pytest.approx(0.12)
    assert second.end - second.start == pytest.approx(0.08)


def test_a_length_mark_lengthens_the_sound_before_it() -> None:
    spans = build_timeline(["x"], row("uː"), 1.0).visemes
    assert [Viseme(s.viseme) for s in spans] == [Viseme.SIL, Viseme.OU, Viseme.SIL]
    assert spans[1].end - spans[1].start == pytest.approx(0.2)


def test_words_have_the_times_of_their_phonemes() -> None:
    words = build_timeline(["one", "two"], row("wan tu"), 2.0).words
    assert [(w.text, round(w.start, 3), round(w.end, 3)) for w in words] == [
        ("one", 0.1, 0.4),
        ("two", 0.5, 0.7),
    ]


def test_a_word_without_sound_takes_no_time() -> None:
    timed = [t for t in row("wan tu") if t.phone.word != 1]
    timed += [TimedPhone(Phone("u", 2), 0.8, 0.9)]
    words = build_timeline(["one", "—", "two"], timed, 2.0).words
    assert words[1].start == words[1].end == pytest.approx(words[0].end)


def test_trimming_moves_all_times_and_ends_in_silence() -> None:
    trimmed = build_timeline(["one"], row("wan"), 2.0).trimmed(0.08, 0.6)
    assert trimmed.words[0].start == pytest.approx(0.02)
    assert trimmed.visemes[0].start == 0.0
    assert trimmed.visemes[-1].viseme == Viseme.SIL
    assert trimmed.visemes[-1].end == pytest.approx(0.6)


def test_a_first_sound_that_is_cut_with_the_silence_is_still_shown_before_the_sound() -> None:
    # "f" is soft: what the onset leaves out of it, the lips show ahead.
    timeline = build_timeline(["fa"], row("fa"), 0.5)
    (_, start, end) = timeline.visemes[1]
    trimmed = timeline.trimmed(end, 0.5 - end)
    assert trimmed.visemes[0].viseme == Viseme.FF
    assert trimmed.visemes[0].start == pytest.approx(max(start - end, -0.1))
    assert trimmed.visemes[0].end == pytest.approx(0.0, abs=1e-9)
    assert trimmed.phones[0].start == trimmed.visemes[0].start
    assert [phone.phone.symbol for phone in trimmed.phones] == ["f", "a"]


def test_no_sound_is_silence_from_end_to_end() -> None:
    timeline = build_timeline(["..."], [], 0.3)
    assert timeline.visemes == [(Viseme.SIL, 0.0, 0.3)]
    assert (timeline.words[0].start, timeline.words[0].end) == (0.0, 0.0)


@settings(deadline=None)
@given(st.text("pfθtkʃsnɹaɛɪoʊuˈːhʔ ,.AIOWY", max_size=40), st.floats(0, 0.19))
def test_visemes_have_neither_holes_nor_overlaps(symbols: str, cut: float) -> None:
    timed = row(symbols)
    words = ["w"] * (symbols.count(" ") + 1)
    total = (timed[-1].end if timed else 0.0) + 0.2
    for spans, length in (
        (build_timeline(words, timed, total).visemes, total),
        (build_timeline(words, timed, total).trimmed(cut, total - cut).visemes, total - cut),
    ):
        assert -0.1 <= spans[0].start <= 0.0
        assert spans[0].start == 0.0 or spans[0].viseme != Viseme.SIL
        assert spans[-1].end == pytest.approx(length)
        for left, right in itertools.pairwise(spans):
            assert left.end == pytest.approx(right.start)
            assert left.viseme != right.viseme


def test_every_sound_of_english_has_a_viseme() -> None:
    for symbol in "pbmfvθðtdɾkɡŋʃʒszlnɹɚwjɑæʌɛəɐɜɪiᵻoɔʊuɒeaAIOWYQTʧʤ":
        assert viseme_of(symbol, "a") is not None, symbol
