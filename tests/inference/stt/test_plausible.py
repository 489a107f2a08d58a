"""Which transcripts are believed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from avatar_server.inference.stt.plausible import (
    compression_ratio,
    is_speech,
    repeats_itself,
    without_loop,
)


def _ids(text: str) -> list[int]:
    words = text.split()
    return [sorted(set(words)).index(word) for word in words]


@pytest.mark.parametrize(
    "text",
    [
        "in being modern, in being modern, in being modern, in being modern,",
        "it is of the first importance here. it is of the first importance here.",
        "well la la la la la la la la",
    ],
)
def test_a_decoder_in_a_loop_is_noticed(text: str) -> None:
    assert repeats_itself(_ids(text), text)


@pytest.mark.parametrize(
    "text",
    ["no no no", "yes yes", "it was very very very good", "one two three one two three", "hm", ""],
)
def test_people_may_repeat_themselves(text: str) -> None:
    assert not repeats_itself(_ids(text), text)


@given(st.lists(st.integers(0, 10_000), max_size=60, unique=True))
def test_tokens_without_repetition_are_no_loop(ids: list[int]) -> None:
    assert not repeats_itself(ids, "some words")


def test_compression_ratio_grows_with_repetition() -> None:
    assert compression_ratio("") == 0.0
    assert compression_ratio("again and again. " * 20) > 2.4 > compression_ratio("once more")


@pytest.mark.parametrize(
    ("text", "no_speech", "logprob", "voiced_s"),
    [
        ("you", 0.98, -0.67, 0.1),
        ("You", 0.91, -1.44, 0.3),
        ("I'm", 0.78, -1.9, 1.0),
        ("Thank you.", 0.5, -0.8, 0.1),
        (" . ", 0.1, -0.1, 2.0),
        ("", 0.0, 0.0, 2.0),
    ],
)
def test_inventions_on_noise_are_dropped(
    text: str, no_speech: float, logprob: float, voiced_s: float
) -> None:
    assert not is_speech(text, no_speech, logprob, voiced_s)


@pytest.mark.parametrize(
    ("text", "no_speech", "logprob", "voiced_s"),
    [
        ("Thank you.", 0.02, -0.3, 0.5),
        ("You.", 0.3, -0.5, 0.3),
        ("What is your name?", 0.7, -0.4, 1.0),
        ("こんにちは", 0.1, -0.4, 1.0),
    ],
)
def test_what_people_say_is_kept(
    text: str, no_speech: float, logprob: float, voiced_s: float
) -> None:
    assert is_speech(text, no_speech, logprob, voiced_s)


@pytest.mark.parametrize(
    ("text", "voiced_s", "said"),
    [
        ("What is your name? What is your name? What is", 1.0, "What is your name?"),
        ("who made you, who made you, who made you, who made", 0.7, "who made you"),
        ("which one do you want? Which one do you want?", 1.2, "which one do you want?"),
        ("今日は何をしますか。今日は何をしますか。今日は", 1.2, "今日は何をしますか。"),
        ("No, no, no.", 0.9, "No, no, no."),
        ("Yes. Yes.", 0.6, "Yes. Yes."),
        ("It is nine, nine, nine.", 1.3, "It is nine, nine, nine."),
        ("We said hello and they said hello.", 1.0, "We said hello and they said hello."),
        ("", 0.5, ""),
    ],
)
def test_what_is_said_over_and_over_faster_than_a_person_can_is_said_once(
    text: str, voiced_s: float, said: str
) -> None:
    assert without_loop(text, voiced_s) == said
