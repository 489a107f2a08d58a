"""Numbers that describe an utterance and what was said before it."""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from avatar_server.inference.llm.router.routes import BUILTIN_ROUTES, QUESTION, Turn, asks

FloatArray = NDArray[np.float32]

HASH_SIZE = 1 << 15
"""Places that words and character n-grams are hashed to. CRC-32 is the same everywhere."""

_UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]")
_MARKS = re.compile(r"[^\w\s]")


@dataclass(frozen=True, slots=True)
class Context:
    """What of the history bears on a decision."""

    request: Turn | None
    """The user's latest request, its route known."""
    last_user: Turn | None
    """The user's latest turn, whatever it was."""
    reply: Turn | None
    """What the avatar has just said."""

    @classmethod
    def of(cls, history: Sequence[Turn]) -> Context:
        """`history` is oldest first, its user turns routed."""
        users = [turn for turn in history if turn.role == "user"]
        requests = [turn for turn in users if turn.route is not None and asks(turn.route)]
        return cls(
            requests[-1] if requests else None,
            users[-1] if users else None,
            history[-1] if history and history[-1].role == "assistant" else None,
        )

    @property
    def state(self) -> int:
        """0: no request yet; 1: the latest was a question; 2: it was another request."""
        if self.request is None:
            return 0
        return 1 if self.request.route == QUESTION else 2


def normal(text: str) -> str:
    """Lower case, without punctuation, as speech recognition might have it."""
    return " ".join(_MARKS.sub("", text.lower()).split())


def unspaced(text: str) -> bool:
    """Whether the writing puts no spaces between words (Japanese, Chinese)."""
    return _UNSPACED.search(text) is not None


def word_count(text: str) -> float:
    """Words; where the writing has no spaces, 2.2 characters count as one."""
    plain = normal(text)
    return max(1.0, len(plain) / 2.2 if unspaced(text) else len(plain.split()))


def character_grams(text: str, shortest: int = 2, longest: int = 5) -> list[str]:
    """All runs of characters of the plain text, borders marked by spaces."""
    plain = f" {normal(text)} "
    return [
        plain[start : start + size]
        for size in range(shortest, longest + 1)
        for start in range(len(plain) - size + 1)
    ]


def word_marks(text: str) -> list[str]:
    """Words, pairs of words, and how the utterance begins and ends.

    Where there are no spaces, runs of up to four characters take the words' place.
    """
    if unspaced(text):
        plain = normal(text).replace(" ", "")
        runs = [plain[i : i + n] for n in (1, 2, 3, 4) for i in range(len(plain) - n + 1)]
        marks = [f"c:{run}" for run in runs]
        marks += [f"f{n}:{plain[:n]}" for n in (1, 2, 3, 4)]
        return marks + [f"l{n}:{plain[-n:]}" for n in (1, 2, 3, 4, 5)]
    words = normal(text).split()
    marks = [f"w:{word}" for word in words]
    marks += [f"b:{a}_{b}" for a, b in pairwise(words)]
    if words:
        marks += [f"f:{words[0]}", f"l:{words[-1]}"]
    if len(words) > 1:
        marks += [f"f2:{words[0]}_{words[1]}", f"l2:{words[-2]}_{words[-1]}"]
    return marks


def hashed(marks: Sequence[str]) -> tuple[NDArray[np.int32], FloatArray]:
    """Places (sorted) and weights, log(1 + count), of unit length in all."""
    counts = Counter(zlib.crc32(mark.encode()) % HASH_SIZE for mark in marks)
    places = np.array(sorted(counts), np.int32)
    weights = np.log1p(np.array([counts[int(place)] for place in places], np.float32))
    length = max(float(np.linalg.norm(weights)), 1e-9)
    return places, (weights / length).astype(np.float32)


def measures(
    text: str,
    context: Context,
    vector: FloatArray,
    request_vector: FloatArray | None,
    user_vector: FloatArray | None,
    reply_vector: FloatArray | None,
) -> FloatArray:
    """Lengths, punctuation, routes before, and how near the utterance is to what was said."""
    words, plain = word_count(text), normal(text)
    request, reply, last_user = context.request, context.reply, context.last_user
    has = request is not None
    values: list[float] = [words <= limit for limit in (1, 2, 3, 5, 8)]
    values += [np.log1p(words), np.log1p(len(plain))]
    values += [any(m in text for m in "?？"), any(m in text for m in "!！")]
    values += [last_user is not None, has]
    values += [reply is not None and reply.text.rstrip().endswith(("?", "？"))]
    previous = last_user.route if last_user is not None else None
    values += [previous == route.name for route in BUILTIN_ROUTES]
    values += [context.state == 1, context.state == 2]
    values += [has and words <= 1, has and words <= 3, np.log1p(words) if has else 0.0]
    values += [_shared(text, turn.text) if turn else 0.0 for turn in (request, reply)]
    for other in (request_vector, reply_vector, user_vector):
        values.append(float(vector @ other) if other is not None else 0.0)
    values += [unspaced(text), np.log1p(word_count(reply.text)) if reply else 0.0]
    values += [np.log(words / word_count(request.text)) if request else 0.0]
    return np.array(values, np.float32)


def _shared(text: str, other: str) -> float:
    own, theirs = set(character_grams(text, 3, 3)), set(character_grams(other, 3, 3))
    return len(own & theirs) / max(1, len(own))
