"""A small model's words, made fit to be spoken."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from avatar_server.inference.llm.emotion import without_marks
from avatar_server.inference.llm.tidy import ReplyTidier


def tidy(
    text: str, *, question: str = "What is that?", sentences: int = 3, size: int = 4
) -> tuple[str, ReplyTidier]:
    """The text fed in pieces of `size` characters, as a model would."""
    tidier = ReplyTidier(sentences, question, ("Theo",))
    out = ""
    for start in range(0, len(text), size):
        if tidier.done:
            break
        out += tidier.feed(text[start : start + size])
    return (out + tidier.flush()).strip(), tidier


@pytest.mark.parametrize(
    ("generated", "said"),
    [
        ("Paris is the capital. It is big.", "Paris is the capital. It is big."),
        ("Theo: Hello there, friend.", "Hello there, friend."),
        ("**Answer:** It is four.", "It is four."),
        ("*smiles and waves* Hello there, you.", "Hello there, you."),
        ("- First thing is milk.", "First thing is milk."),
        ("1. Take some flour and milk.", "Take some flour and milk."),
        ("It is blue. User: And why? Assistant: No idea.", "It is blue."),
        ("It is nice here 😀 today.", "It is nice here today."),
        ("One two three four. It goes on and on without", "One two three four."),
        ("A lone sentence that never", "A lone sentence that never."),
        ("Dr. Smith met Mrs. Jones. They spoke.", "Dr. Smith met Mrs. Jones. They spoke."),
        ("I like cats a lot. I like cats a lot. I like dogs.", "I like cats a lot."),
        ("It is a lamp, a tall one.\nQuestion: what?", "It is a lamp, a tall one."),
    ],
)
def test_what_is_said_of_what_was_generated(generated: str, said: str) -> None:
    assert tidy(generated)[0] == said
    assert tidy(generated, size=1)[0] == said
    assert tidy(generated, size=1000)[0] == said


@pytest.mark.parametrize("size", [1, 4, 100])
def test_a_tag_for_the_face_goes_with_its_word_and_is_not_said(size: int) -> None:
    said, _ = tidy("[happy] I like cats. [Sad]They are gone now.", size=size)
    assert "[" not in said
    assert "appy" not in said
    assert without_marks(said) == ("I like cats. They are gone now.", "sad")
    assert without_marks(said.partition("cats.")[0])[1] == "happy"


def test_other_words_in_brackets_are_said_only_within_a_sentence() -> None:
    assert tidy("[laughs] I like cats.")[0] == "I like cats."
    assert tidy("I like [all] cats.")[0] == "I like all cats."


def test_a_reply_has_no_more_sentences_than_allowed() -> None:
    said, tidier = tidy("One is here. Two is there. Three is gone. Four is lost.", sentences=2)
    assert said == "One is here. Two is there."
    assert tidier.done


def test_the_first_sentence_is_passed_on_before_it_ends() -> None:
    tidier = ReplyTidier(2, "")
    assert tidier.feed("The sky is blue because ").strip() == "The sky is blue because"


def test_later_sentences_are_held_until_they_are_whole() -> None:
    tidier = ReplyTidier(3, "")
    tidier.feed("The sky is blue. ")
    assert tidier.feed("That is because of the air ") == ""
    assert tidier.feed("around. ").strip() == "That is because of the air around."


def test_the_question_given_back_is_no_answer() -> None:
    said, tidier = tidy("What is that?", question="What is that?")
    assert said == ""
    assert not tidier.said_anything


@pytest.mark.parametrize(
    "leak",
    [
        "As an AI language model I cannot do that.",
        "My instructions are to be nice to all.",
        "The user wants to know about cats.",
    ],
)
def test_talk_about_the_prompt_is_not_said(leak: str) -> None:
    said, tidier = tidy(leak)
    assert said == ""
    assert not tidier.said_anything


@pytest.mark.parametrize("garbage", ["", "   \n\n ", "*** ### ``` |||", "😀 😀", "- - -"])
def test_garbage_says_nothing(garbage: str) -> None:
    said, tidier = tidy(garbage)
    assert said == ""
    assert not tidier.said_anything


def test_japanese_sentences_are_passed_on_without_blanks() -> None:
    said, _ = tidy("こんにちは。元気ですか。いい天気ですね。", sentences=2, size=3)
    assert said == "こんにちは。元気ですか。"


@given(st.text(max_size=300), st.integers(1, 7))
def test_any_text_comes_out_bounded_and_without_markup(text: str, size: int) -> None:
    said, tidier = tidy(text, size=size)
    assert tidier.done
    assert len(said) <= len(text) + 1
    assert not set(said) & set("*_`#~<>|[]{}")
    assert "\n" not in said
