"""What a speech synthesiser is, whatever model is behind it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from avatar_server.inference.memory import MemoryFigure
from avatar_server.inference.tts.timeline import TimedPhone
from avatar_server.protocol.messages import Word
from renderers.contract import VisemeSpan

SAMPLE_RATE_HZ = 48_000
"""Rate of every piece's samples: that of the Opus track."""

SLOWEST, FASTEST = 0.25, 4.0
"""Bounds of the relative speed."""


class TtsError(RuntimeError):
    """Speech cannot be made; the message says why and what to do."""


@dataclass(slots=True)
class SpeechPiece:
    """A part of a clause's sound.

    `pcm` is int16, mono, 48 kHz, of shape (samples,). `words` (one for every blank-separated word
    of the clause's text, as written there) and `visemes` (without holes, from the first sample to
    the last) come whole with a clause's first piece and are empty later; their times are seconds
    from the clause's first sample. `last` closes the clause. `phones` come with the first piece,
    too: the sounds that the visemes were made from, for measuring.
    """

    pcm: NDArray[np.int16]
    last: bool
    words: list[Word] = field(default_factory=list)
    visemes: list[VisemeSpan] = field(default_factory=list)
    phones: list[TimedPhone] = field(default_factory=list)


class Synthesizer(Protocol):
    """A speech model with its voices. One thread at a time may use it."""

    @property
    def name(self) -> str:
        """For logs and the status page, e.g. `piper (joe)`."""
        ...

    def voices(self) -> list[str]:
        """Names that `synthesize` takes."""
        ...

    def synthesize(
        self, text: str, voice: str, speed: float, language: str
    ) -> Iterator[SpeechPiece]:
        """Speak one clause of speakable text.

        The first piece comes as early as the model allows. Closing the generator drops the rest.
        `speed` is relative (1.0: as trained). Raises `TtsError`, at the call, for an unknown
        voice or a speed that is not 0.25-4.
        """
        ...

    def warm_up(self) -> None:
        """Run once, so that the first reply does not pay for lazily allocated memory."""
        ...

    def measure_rtf(self) -> float:
        """Real-time factor here and now: seconds of CPU of this thread per second of sound."""
        ...

    def memory(self) -> MemoryFigure:
        """What the model holds."""
        ...


def check_speed(speed: float) -> None:
    """Raises `TtsError` where `speed` is nothing that speech models were made for."""
    if not SLOWEST <= speed <= FASTEST:
        raise TtsError(f"speed {speed} is not possible: give one from {SLOWEST} to {FASTEST}")
