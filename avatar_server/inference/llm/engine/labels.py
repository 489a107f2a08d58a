"""Choosing among labels: from an engine's log-probabilities to scores.

A label is best a single token (`A`, `B`, `1`): one step then tells how likely each is, and the
scores of different requests can be compared. Longer labels are told apart by their first token
where that is possible, and are chosen by constrained decoding where it is not.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LabelScores:
    """How likely each label is as the reply.

    `logprobs` are natural logarithms over the whole vocabulary, so they need not sum to one.
    `exact` is false where the engine only told which label it chose: that one then has 0 and the
    others minus infinity, and nothing is known of how sure it was.
    """

    logprobs: Mapping[str, float]
    exact: bool = True

    @property
    def best(self) -> str:
        """The likeliest label, the first of equals."""
        return max(self.logprobs, key=lambda label: self.logprobs[label])

    @property
    def mass(self) -> float:
        """Probability that the reply is any of the labels: low where the model wants to say
        something else, and the question should be asked differently."""
        return min(1.0, math.fsum(math.exp(value) for value in self.logprobs.values()))

    def probabilities(self) -> dict[str, float]:
        """The same among the labels only: sums to 1."""
        top = max(self.logprobs.values())
        weights = {label: math.exp(value - top) for label, value in self.logprobs.items()}
        total = math.fsum(weights.values())
        return {label: weight / total for label, weight in weights.items()}


def check_labels(labels: Sequence[str]) -> None:
    """Raises `ValueError` for labels that nothing can be chosen among."""
    if len(labels) < 2 or len(set(labels)) != len(labels) or not all(labels):
        raise ValueError(f"labels must be two or more different, not empty words: {list(labels)}")


def chosen(labels: Sequence[str], label: str) -> LabelScores:
    """What is known where only the choice is: `label`."""
    return LabelScores({name: 0.0 if name == label else -math.inf for name in labels}, exact=False)


def from_text(labels: Sequence[str], text: str, *, whole: bool = True) -> LabelScores | None:
    """The label that a reply begins with, the longest of several; None where there is none.

    With `whole` false more of the reply may come: None, too, where it may become another label.
    """
    said = text.strip().casefold()
    if not whole and any(
        label.casefold().startswith(said) and len(label) > len(said) for label in labels
    ):
        return None
    found = [label for label in labels if said.startswith(label.casefold())]
    return chosen(labels, max(found, key=len)) if found else None


def from_top(labels: Sequence[str], top: Iterable[tuple[str, float]]) -> LabelScores | None:
    """Scores from the likeliest first tokens (text, log-probability) of a reply.

    Each label takes the longest token that it begins with; a label that none leads to was less
    likely than all of `top`, and takes the least of them as its bound. None where no label is
    found, or where a token leads to more than one, so that it cannot tell them apart.
    """
    tokens: dict[str, float] = {}
    for text, logprob in top:
        # Different tokens may print alike; the likeliest comes first.
        tokens.setdefault(text, logprob)
    if not tokens:
        return None
    floor = min(tokens.values())
    scores: dict[str, float] = {}
    taken: set[str] = set()
    for label in labels:
        token = next((label[:n] for n in range(len(label), 0, -1) if label[:n] in tokens), None)
        if token is None:
            scores[label] = floor
        elif token in taken:
            return None
        else:
            taken.add(token)
            scores[label] = tokens[token]
    return LabelScores(scores) if taken else None
