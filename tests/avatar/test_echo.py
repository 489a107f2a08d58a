from __future__ import annotations

import pytest

from avatar_server.avatar.echo import is_echo
from avatar_server.avatar.short_answers import is_short_answer

SPOKEN = "The library opens at nine on working days, and at ten on Saturdays."


@pytest.mark.parametrize(
    "heard",
    [
        "the library opens at nine on working days",
        "library opened at nine on working",
        "at ten on Saturday's",
        "working days",
    ],
)
def test_the_avatars_own_words_are_an_echo(heard: str) -> None:
    assert is_echo(heard, SPOKEN)


@pytest.mark.parametrize(
    "heard",
    [
        "and what about Sundays",
        "does the library open on holidays too",
        "stop",
        "Yes.",
        "nine days",
        "",
    ],
)
def test_a_viewers_words_are_none(heard: str) -> None:
    assert not is_echo(heard, SPOKEN)


def test_nothing_is_an_echo_of_silence() -> None:
    assert not is_echo("the library opens at nine", "")


@pytest.mark.parametrize("text", ["yes", "No, thanks.", "Stop it!", "Why?", "わかりました。"])
def test_complete_answers(text: str) -> None:
    assert is_short_answer(text)


@pytest.mark.parametrize("text", ["", "what can", "no because", "yes I would like", "the"])
def test_beginnings_are_no_complete_answers(text: str) -> None:
    assert not is_short_answer(text)
