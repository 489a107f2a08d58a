"""What the face shows with what is said."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from avatar_server.inference.llm import emotion
from avatar_server.inference.llm.emotion import (
    EMOTIONS,
    emotion_of,
    leading_tag,
    without_marks,
)
from renderers import motion


@pytest.mark.parametrize(
    ("clause", "shown"),
    [
        ("I'm so sorry to hear that.", "sad"),
        ("That must be very hard for you.", "sad"),
        ("I'm sorry, I don't know.", "apologetic"),
        ("I'm afraid the museum is closed.", "apologetic"),
        ("Unfortunately, no.", "apologetic"),
        ("Wow, that is a lot.", "surprised"),
        ("Really? Nobody told me.", "surprised"),
        ("It cost how much?!", "surprised"),
        ("Let me think.", "thinking"),
        ("Hmm, good question.", "thinking"),
        ("It depends on the weather.", "thinking"),
        ("Hi, I'm Theo.", "happy"),
        ("What a day!", "happy"),
        ("It is a lamp.", ""),
        ("He is afraid of dogs.", ""),
        ("They really like it there.", ""),
        ("すみません、わかりません。", "apologetic"),
        ("えっ、本当ですか。", "surprised"),
        ("うーん、むずかしいですね。", "thinking"),
        ("それは悲しいですね。", "sad"),
        ("こんにちは。", "happy"),
        ("青いです。", ""),
    ],
)
def test_words_show_on_the_face(clause: str, shown: str) -> None:
    assert emotion_of(clause) == shown


@pytest.mark.parametrize(
    ("question", "shown"),
    [
        ("My dog died yesterday.", "sad"),
        ("I feel so lonely.", "sad"),
        ("Hello!", "happy"),
        ("I passed the exam", "happy"),
        ("What is that?", ""),
        ("猫が亡くなりました", "sad"),
    ],
)
def test_what_the_viewer_said_shows_where_the_answers_words_do_not(
    question: str, shown: str
) -> None:
    assert emotion_of("You told me about it.", question) == shown
    assert emotion_of("I'm afraid so.", question) == "apologetic"


def test_a_tag_is_taken_off_its_word() -> None:
    mark, rest = leading_tag("[Happy]Hello")
    assert rest == "Hello"
    assert without_marks(f"{mark}Hello there.") == ("Hello there.", "happy")
    assert leading_tag("Hello") == ("", "Hello")
    assert leading_tag("[angry]") == ("", "[angry]")


def test_tags_within_an_operators_own_text_are_not_said_either() -> None:
    assert without_marks("[sad] We are closed. [happy] Come again!") == (
        "We are closed. Come again!",
        "happy",
    )


@given(st.text(max_size=60))
def test_text_without_tags_stays_as_it_is(text: str) -> None:
    clean = emotion._MARK.sub("", emotion._TAG.sub("", text))
    if clean == text:
        assert without_marks(text) == (text, "")


def test_the_faces_know_all_the_emotions_and_no_others() -> None:
    assert set(EMOTIONS) == set(motion.EMOTIONS)
