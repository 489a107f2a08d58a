"""An utterance and what was said before it, read together by the adapted encoder."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from avatar_server.inference.llm.router.head import softmax
from avatar_server.inference.llm.router.routes import Turn
from avatar_server.inference.llm.router.transformer import AdaptedEncoder
from avatar_server.inference.llm.router.weights import Weights

MOST_UTTERANCE, MOST_BEFORE = 40, 16
"""Pieces taken of an utterance, and of each text before it."""

UTTERANCE, OF_UNKNOWN_ROUTE, OF_QUESTION, OF_COMMAND, OF_OTHER, REPLY, QUESTION_BACK = range(7)
"""Kinds of segments."""

_KINDS = {None: OF_UNKNOWN_ROUTE, "question": OF_QUESTION, "command": OF_COMMAND} | dict.fromkeys(
    ("small_talk", "stop", "repeat", "goodbye", "unclear"), OF_OTHER
)
_MARKS = re.compile(r"[^\w\s'’]")


class JointReader:
    """Chances of the built-in labels. One thread at a time may use it."""

    def __init__(self, weights: Path, adapter: Path) -> None:
        """Takes a second. Raises `WeightsError`."""
        self._weights = Weights(weights)
        self.encoder = AdaptedEncoder(self._weights, adapter)
        self.labels = self.encoder.labels

    def chances(self, text: str, history: Sequence[Turn]) -> Mapping[str, float]:
        """Probability of each label; `history` is oldest first, its routes where they are known."""
        scores = self.encoder.scores(*self.sequence(text, history))
        return dict(zip(self.labels, map(float, softmax(scores[None])[0]), strict=True))

    def sequence(self, text: str, history: Sequence[Turn]) -> tuple[list[int], list[int]]:
        """Pieces, and the kind of segment of each: the utterance, the reply before it, the user's
        last turn, and what they asked for last, if that was before."""
        end = self._weights.end
        ids = [self._weights.start, *self._ids(text)[:MOST_UTTERANCE], end]
        kinds = [UTTERANCE] * len(ids)

        def add(pieces: list[int], kind: int) -> None:
            ids.extend([*pieces, end])
            kinds.extend([kind] * (len(pieces) + 1))

        if history and history[-1].role == "assistant":
            reply = history[-1].text
            asks = reply.rstrip().endswith(("?", "？"))
            add(self._ids(reply)[-MOST_BEFORE:], QUESTION_BACK if asks else REPLY)
        for turn in told(history):
            add(self._ids(turn.text)[:MOST_BEFORE], _KINDS.get(turn.route, OF_UNKNOWN_ROUTE))
        return ids, kinds

    def _ids(self, text: str) -> list[int]:
        return self._weights.pieces.ids(_MARKS.sub(" ", text.lower()))


def told(history: Sequence[Turn]) -> list[Turn]:
    """The user's last turn, and before it the last that asked for something, or any."""
    users = [turn for turn in history if turn.role == "user"]
    if not users:
        return []
    last = users[-1]
    request = next((turn for turn in reversed(users) if _may_ask(turn)), None)
    if request is not None and request is not last:
        return [last, request]
    return [last, *users[-2:-1]]


def _may_ask(turn: Turn) -> bool:
    return _KINDS.get(turn.route, OF_UNKNOWN_ROUTE) != OF_OTHER
