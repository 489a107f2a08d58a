"""A clause as a whole, for those who do not play it while it is made."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from avatar_server.inference.tts.contract import SAMPLE_RATE_HZ, SpeechPiece
from avatar_server.inference.tts.timeline import TimedPhone
from avatar_server.protocol.messages import Word
from renderers.contract import VisemeSpan


class WholeClause(NamedTuple):
    """All pieces of a clause in one. Times are seconds from its first sample."""

    pcm: NDArray[np.int16]
    words: list[Word]
    visemes: list[VisemeSpan]
    phones: list[TimedPhone]

    @property
    def seconds(self) -> float:
        return len(self.pcm) / SAMPLE_RATE_HZ


def whole_clause(pieces: Iterable[SpeechPiece]) -> WholeClause:
    """`pieces` of one clause, joined."""
    parts = list(pieces)
    return WholeClause(
        np.concatenate([piece.pcm for piece in parts] or [np.zeros(0, np.int16)]),
        [word for piece in parts for word in piece.words],
        [span for piece in parts for span in piece.visemes],
        [phone for piece in parts for phone in piece.phones],
    )
