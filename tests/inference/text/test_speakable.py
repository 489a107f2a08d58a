"""Replies made speakable."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from avatar_server.inference.text.speakable import speakable

_MARKUP = re.compile(r"[*_`#~|<>\[\]{}\\^]")
_BITS = st.sampled_from(
    ["**bold**", "# ", "- ", "1. ", "`x`", "```", "[a](b)", "$3.50", "5%", "2024-13-45", "10:99",
     "99:99", "31/12/2024", "1/0", "0/5", "5°C", "http://", "a@b.c", "1.2.3", "½", "<b>", "&amp;",
     "|", "\n", "😀", "-5", "00", "1e9", "May 99, 2024", "3rd", "90s", "5'10\"", "№", "Ⅷ", "²", "٣"]
)  # fmt: skip
_TEXTS = st.lists(st.one_of(_BITS, st.text(max_size=10)), max_size=15).map(" ".join)
_PLAIN_WORDS = st.lists(
    st.text("abcdefghijklmnopqrstuvwxyz", min_size=2, max_size=9).filter(
        lambda w: w not in ("vs",)
    ),
    min_size=1,
    max_size=12,
)


@settings(deadline=None)
@given(_TEXTS, st.sampled_from(["en", "en-GB", "ja", "fr"]))
@example("1" * 5_000, "en")
def test_any_text_gives_one_line_without_markup(text: str, language: str) -> None:
    spoken = speakable(text, language)
    assert not _MARKUP.search(spoken)
    assert "\n" not in spoken
    if re.search(r"[^\W\d_]", text):
        assert re.search(r"\w", spoken)


@settings(deadline=None)
@given(_PLAIN_WORDS, st.sampled_from([".", "!", "?", ""]))
def test_plain_text_is_left_as_it_is(words: list[str], mark: str) -> None:
    text = " ".join(words).capitalize() + mark
    assert speakable(text, "en") == text


@settings(deadline=None)
@given(_TEXTS)
def test_what_is_speakable_stays_speakable(text: str) -> None:
    spoken = speakable(text, "en")
    again = speakable(spoken, "en")
    assert not re.search(r"[0-9%$]", again)
    assert bool(re.search(r"\w", spoken)) == bool(re.search(r"\w", again))


@pytest.mark.parametrize(
    ("shown", "said"),
    [
        ("**Bold**, `code_here()`, [a link](https://x.org/a) 😀!", "Bold, code here, a link!"),
        ("# Heading\n- item one\n- item two\n", "Heading. item one. item two."),
        ("1. First\n2. Second\n", "one, First. two, Second."),
        ("A line that is\nwrapped.", "A line that is wrapped."),
        ("Use <b>this</b> &amp; that.", "Use this and that."),
        ("Run:\n```\npip install x\n```", "Run: pip install x"),
        ("It costs $3.50.", "It costs three dollars and fifty cents."),
        ("£1,000 or €2m or $1", "one thousand pounds or two million euros or one dollar"),
        ("$3 million", "three million dollars"),
        ("About 25% or 3.5 %", "About twenty-five percent or three point five percent"),
        ("3.5 km, 60 mph", "three point five kilometres, sixty miles per hour"),
        ("1 kg or 10kg", "one kilogram or ten kilograms"),
        ("It is -5°C", "It is minus five degrees Celsius"),
        ("on March 3, 2024", "on March third, twenty twenty-four"),
        ("on 5 May 1999", "on the fifth of May nineteen ninety-nine"),
        ("on the 5th of May", "on the fifth of May"),
        ("2024-03-05", "March fifth twenty twenty-four"),
        ("at 10:30 or 5 p.m.", "at ten thirty or five p.m."),
        ("at 9:05, at 12:00", "at nine oh five, at twelve o'clock"),
        ("in 1862, 1,500 people", "in eighteen sixty-two, one thousand five hundred people"),
        ("the 1990s and the 90s", "the nineteen nineties and the nineties"),
        ("the 2nd and 21st", "the second and twenty-first"),
        ("5-10 people, 2010–2015", "five to ten people, twenty ten to twenty fifteen"),
        ("Call 555-1234", "Call five five five, one two three four"),
        ("version 3.11.2", "version three point eleven point two"),
        ("007", "zero zero seven"),
        ("2 + 2 = 4", "two plus two equals four"),
        ("1/2 cup, ¾ cup", "one half cup, three quarters cup"),
        ("H2O and mp3", "H two O and mp three"),
        ("I met Dr. Smith, e.g. here.", "I met Doctor Smith, for example here."),
        ("St. Mary on Baker St. in town", "Saint Mary on Baker Street in town"),
        ("cats, dogs, etc.", "cats, dogs, et cetera."),
        ("No. 5 vs. fig. 3", "number five versus figure three"),
        ("The FBI uses APIs, in the U.S. too", "The FBI uses APIs, in the U.S. too"),
        ("AWS and its FAQs", "A-W-S and its F-A-Q's"),
        ("STOP THAT RIGHT NOW", "stop that right now"),
        ("C++ and C#", "C plus plus and C sharp"),
        ("A & B, and/or C", "A and B, and or C"),
        ("Visit https://www.example.org/a/b?x=1.", "Visit example dot org."),
        ("Mail jane.doe@example.org", "Mail jane dot doe at example dot org"),
        ("~5 people, #1", "about five people, number one"),
        ("It is 5'10\".", "It is five foot ten."),
        ("Don't worry — it's fine…", "Don't worry — it's fine..."),
    ],
)  # fmt: skip
def test_english_is_put_in_words(shown: str, said: str) -> None:
    assert speakable(shown, "en") == said


def test_a_table_is_read_cell_by_cell() -> None:
    assert speakable("| a | b |\n|---|---|\n| 1 | 2 |", "en") == "a, b. one, two"


def test_long_code_is_named_and_not_read() -> None:
    assert speakable("```python\n" + "x = 1\n" * 20 + "```", "en") == "some code"


def test_text_that_is_all_markup_is_still_said() -> None:
    assert speakable("<b>", "en") == "b"


def test_text_without_letters_may_be_empty() -> None:
    assert speakable("😀 --- ", "en") == ""


def test_japanese_loses_its_markup_only() -> None:
    assert (
        speakable("**こんにちは**、私は`ガイド`です😀。\n- 3個", "ja")
        == "こんにちは、私はガイドです。3個"
    )
