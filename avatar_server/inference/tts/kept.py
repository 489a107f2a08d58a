"""Speech made before, of words that are the avatar's own: greetings, remarks, facts, small talk.

The same words in the same voice sound the same, so nothing is made twice that will be said again.
Words of a model or a viewer are not kept: they hardly come again, and are nobody else's business.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

from avatar_server.inference.tts.contract import SpeechPiece


class Spoken(NamedTuple):
    """What was spoken, and how."""

    text: str
    voice: str
    speed: float
    language: str
    pitch: float = 1.0


class KeptSpeech:
    """The clauses spoken last, up to `limit_bytes` of samples. One event loop's."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._clauses: OrderedDict[Spoken, tuple[SpeechPiece, ...]] = OrderedDict()
        self.bytes = 0
        """Of the samples that are kept."""
        self.found = 0
        """Clauses that needed no synthesis so far."""

    def get(self, spoken: Spoken) -> Sequence[SpeechPiece]:
        """The clause's pieces; none where it is not kept."""
        if (pieces := self._clauses.get(spoken)) is None:
            return ()
        self._clauses.move_to_end(spoken)
        self.found += 1
        return pieces

    def keep(self, spoken: Spoken, pieces: Sequence[SpeechPiece]) -> None:
        """Keep a clause, where all of it was made; the one not heard for longest goes first."""
        size = _bytes(pieces)
        if not pieces or not pieces[-1].last or size > self._limit or spoken in self._clauses:
            return
        self._clauses[spoken] = tuple(pieces)
        self.bytes += size
        while self.bytes > self._limit:
            _, oldest = self._clauses.popitem(last=False)
            self.bytes -= _bytes(oldest)


def _bytes(pieces: Sequence[SpeechPiece]) -> int:
    return sum(piece.pcm.nbytes for piece in pieces)
