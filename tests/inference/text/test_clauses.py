"""Cutting replies into clauses."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from avatar_server.inference.text.clauses import ClauseCutter, limit_sentences, spoken_size

_SPICE = st.sampled_from(
    [
        "3.5",
        "1,000",
        "Dr. ",
        "e.g. ",
        "`a, b. C` ",
        "```\nx. Y\n```",
        "。",
        "、",
        "! ",
        ", ",
        ".\n",
        " ",
    ]
)
_TEXTS = st.lists(st.one_of(_SPICE, st.text(max_size=12)), max_size=40).map("".join)


def cut(text: str, size: int = 4, **options: int) -> list[str]:
    cutter = ClauseCutter(**options)
    clauses: list[str] = []
    for at in range(0, len(text), size):
        clauses += cutter.feed(text[at : at + size])
    return clauses + cutter.flush()


@settings(deadline=None)
@given(_TEXTS, st.integers(1, 50))
def test_the_clauses_joined_are_the_text(text: str, size: int) -> None:
    joined = "".join(cut(text, size))
    assert text.startswith(joined)
    assert not text[len(joined) :].strip()


@settings(deadline=None)
@given(_TEXTS, st.integers(1, 50))
def test_no_clause_is_longer_than_the_bound(text: str, size: int) -> None:
    clauses = cut(text, size, min_chars=20, max_chars=30, hard_max_chars=40)
    assert all(spoken_size(clause) <= 40 for clause in clauses)


@settings(deadline=None)
@given(_TEXTS)
def test_where_text_is_cut_does_not_depend_on_how_it_comes(text: str) -> None:
    assert cut(text, 1) == cut(text, 7)


def test_the_first_clause_ends_at_the_first_comma() -> None:
    assert cut("Of course, I can tell you more about that garden today.") == [
        "Of course, ",
        "I can tell you more about that garden today.",
    ]


def test_a_first_clause_without_marks_is_cut_before_a_phrase() -> None:
    first = cut("I would be very happy to tell you all about the garden that we have here.")[0]
    assert first == "I would be very happy "


def test_the_first_clause_is_there_before_the_sentence_is_complete() -> None:
    cutter = ClauseCutter()
    assert cutter.feed("The museum opens every day") == []
    assert cutter.feed(" at nine in") == ["The museum opens every day "]


def test_later_clauses_are_longer_than_the_first() -> None:
    clauses = cut(
        "Yes, we do, and then, as you know, there is a lake, a hill, a small wood, "
        "and a house that was built long ago, by the sea, for a captain."
    )
    assert all(len(clause) >= 40 for clause in clauses[1:])


@pytest.mark.parametrize(
    "kept",
    [
        "3.5",
        "1,000",
        "10:30",
        "Dr. Smith",
        "e.g. this",
        "i.e. that",
        "at 5 p.m. today",
        "the U.S. Army",
        "J. R. Smith",
        "No. 5",
        "vs. them",
        "https://example.org/a.b?c=d,e",
        "`run a, b. Then C`",
        "[a, b. C](https://example.org)",
        "1. First",
        "(incl. 20% tax, as ever)",
    ],
)
def test_these_are_never_cut(kept: str) -> None:
    for before in ("", "We see that ", "This is, as one says, "):
        for clause_size in (1, 3, 100):
            clauses = cut(
                f"{before}{kept} and more.", clause_size, first_min_words=9, first_max_words=20
            )
            assert any(kept in clause for clause in clauses), clauses


def test_code_blocks_are_not_cut() -> None:
    block = "```python\nprint('a, b. C')\nx = 1\n```"
    assert any(block in clause for clause in cut(f"Run this:\n{block}\nThen stop."))


def test_sentences_are_cut_at_their_ends() -> None:
    assert cut("It is big. Really! Is it? Yes.") == ["It is big. ", "Really! ", "Is it? ", "Yes."]


def test_japanese_is_cut_at_its_own_marks() -> None:
    assert cut("こんにちは、私は案内役です。今日は良い天気ですね！") == [
        "こんにちは、",
        "私は案内役です。",
        "今日は良い天気ですね！",
    ]


def test_a_sentence_limit_drops_the_rest_and_says_so() -> None:
    cutter = ClauseCutter(max_sentences=2)
    clauses = cutter.feed("One is here. Two, with 3.5 more, is here. Three is not. ")
    assert "".join(clauses).strip() == "One is here. Two, with 3.5 more, is here."
    assert cutter.finished
    assert cutter.feed("Four.") == []
    assert cutter.flush() == []


def test_limit_sentences_keeps_whole_sentences() -> None:
    assert limit_sentences("Dr. Lee came at 5 p.m. today. She left. Then it rained.", 2) == (
        "Dr. Lee came at 5 p.m. today. She left."
    )
    assert limit_sentences("Only one", 3) == "Only one"


def test_sizes_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ValueError, match="hard_max_chars"):
        ClauseCutter(max_chars=500, hard_max_chars=100)
    with pytest.raises(ValueError, match="first_max_words"):
        ClauseCutter(first_min_words=9, first_max_words=3)


def test_a_cut_between_words_leaves_no_leaning_word_behind() -> None:
    text = "Many people who visited us last summer said our little cafe makes the best cake ever"
    first = cut(text)[0]
    assert re.search(r"\b(the|our|who|a|of)\s$", first) is None
