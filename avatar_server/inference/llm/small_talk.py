"""Everyday remarks, answered from a list: at once, and better than a small model would."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources

import yaml

from avatar_server.inference.llm.retrieval import Encoder, Fact, FactIndex
from avatar_server.protocol.messages import HistoryItem

REPEAT = "{repeat}"
"""An answer that stands for what the avatar said last."""
AGAIN = "{again}"
"""An answer that stands for another one to what the viewer said before."""


def load_small_talk(encoder: Encoder) -> FactIndex:
    """The shipped remarks (English). They are the same for all avatars: index them once."""
    text = resources.files(__package__).joinpath("small_talk.yaml").read_text(encoding="utf-8")
    return FactIndex(
        (
            Fact(entry["ask"][0], tuple(entry["say"]), tuple(entry["ask"]))
            for entry in yaml.safe_load(text)
        ),
        encoder,
    )


def next_answer(fact: Fact, history: Sequence[HistoryItem], name: str) -> str:
    """The fact's answers in turn, starting over when all have been said."""
    answers = [answer.replace("{name}", name) for answer in fact.answers]
    said = [item.text for item in history if item.role == "assistant"]
    times = [sum(answer.startswith(text[:40]) for text in said if text) for answer in answers]
    return answers[times.index(min(times))]
