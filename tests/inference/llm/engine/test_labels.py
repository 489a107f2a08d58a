"""From log-probabilities of tokens to scores of labels."""

from __future__ import annotations

import math

import pytest

from avatar_server.inference.llm.engine.labels import LabelScores, chosen, from_text, from_top


def test_single_tokens_take_their_own_log_probability() -> None:
    scores = from_top(("A", "B"), [("A", -0.2), ("The", -1.0), ("B", -2.0)])
    assert scores is not None
    assert dict(scores.logprobs) == {"A": -0.2, "B": -2.0}
    assert scores.mass == pytest.approx(math.exp(-0.2) + math.exp(-2.0))


def test_a_label_below_all_that_is_listed_takes_the_least_as_its_bound() -> None:
    scores = from_top(("A", "B"), [("A", -0.2), ("The", -7.0)])
    assert scores is not None
    assert scores.logprobs["B"] == -7.0


def test_longer_labels_are_told_apart_by_their_first_token() -> None:
    scores = from_top(
        ("small_talk", "question"), [("small", -1.0), ("s", -3.0), ("question", -0.5)]
    )
    assert scores is not None
    assert dict(scores.logprobs) == {"small_talk": -1.0, "question": -0.5}


@pytest.mark.parametrize("top", [[], [("The", -0.1)], [("1", -0.1), ("The", -2.0)]])
def test_tokens_that_cannot_tell_labels_apart_give_no_scores(
    top: list[tuple[str, float]],
) -> None:
    assert from_top(("1", "10"), top) is None


def test_of_tokens_that_print_alike_the_likeliest_counts() -> None:
    scores = from_top(("A", "B"), [("A", -0.2), ("A", -5.0), ("B", -1.0)])
    assert scores is not None
    assert scores.logprobs["A"] == -0.2


def test_a_reply_in_words_chooses_the_longest_label_it_begins_with() -> None:
    for text, label in ((" question.", "question"), ("QUESTION 2", "question 2")):
        scores = from_text(("question", "question 2"), text)
        assert scores is not None
        assert (scores.best, scores.exact) == (label, False)
    assert from_text(("A", "B"), "well, A") is None


def test_a_reply_that_goes_on_chooses_only_what_cannot_become_another_label() -> None:
    labels = ("stop", "stop it")
    assert from_text(labels, "stop", whole=False) is None
    assert from_text(labels, "sto", whole=False) is None
    for text, label in (("stop it now", "stop it"), ("stop, now", "stop")):
        scores = from_text(labels, text, whole=False)
        assert scores is not None
        assert scores.best == label


def test_probabilities_are_among_the_labels_only() -> None:
    scores = LabelScores({"A": math.log(0.03), "B": math.log(0.01)})
    assert scores.probabilities() == pytest.approx({"A": 0.75, "B": 0.25})
    assert chosen(("A", "B"), "B").probabilities() == {"A": 0.0, "B": 1.0}
