"""A voice made higher or lower."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from avatar_server.inference.tts.contract import SAMPLE_RATE_HZ, SpeechPiece
from avatar_server.inference.tts.pitch import synthesize_pitched
from avatar_server.protocol.messages import Word
from renderers.contract import Viseme, VisemeSpan

TONE_HZ = 200.0
PIECE = 14_400


class Tone:
    """Hums at 200 Hz for 1 s at speed 1, in pieces."""

    def __init__(self) -> None:
        self.speeds: list[float] = []

    def synthesize(
        self, text: str, voice: str, speed: float, language: str
    ) -> Iterator[SpeechPiece]:
        self.speeds.append(speed)
        count = round(SAMPLE_RATE_HZ / speed)
        hum = 8_000 * np.sin(2 * np.pi * TONE_HZ * np.arange(count) / SAMPLE_RATE_HZ)
        pcm = hum.astype(np.int16)
        seconds = count / SAMPLE_RATE_HZ
        for start in range(0, count, PIECE):
            first = start == 0
            yield SpeechPiece(
                pcm[start : start + PIECE],
                start + PIECE >= count,
                [Word(text=text, start=0.1, end=seconds)] if first else [],
                [VisemeSpan(Viseme.AA, 0.0, seconds)] if first else [],
            )


@pytest.mark.parametrize("pitch", [0.8, 1.0, 1.28])
def test_the_tone_is_higher_and_the_pace_the_same(pitch: float) -> None:
    voice = Tone()
    pieces = list(synthesize_pitched(voice, "hum", "v", 1.0, "en", pitch))  # type: ignore[arg-type]
    pcm = np.concatenate([piece.pcm for piece in pieces])
    assert len(pcm) == pytest.approx(SAMPLE_RATE_HZ, abs=1)
    spectrum = np.abs(np.fft.rfft(pcm * np.hanning(len(pcm))))
    assert np.argmax(spectrum) == pytest.approx(TONE_HZ * pitch, abs=1.5)
    assert [piece.last for piece in pieces] == [False] * (len(pieces) - 1) + [True]
    (word,) = pieces[0].words
    assert (word.start, word.end) == pytest.approx((0.1 / pitch, 1.0), abs=1e-3)
    (span,) = pieces[0].visemes
    assert (span.viseme, span.start) == (Viseme.AA, 0.0)
    assert span.end == pytest.approx(1.0, abs=1e-3)


def test_closing_it_closes_the_voice() -> None:
    voice = Tone()
    pieces = synthesize_pitched(voice, "hum", "v", 1.0, "en", 1.2)  # type: ignore[arg-type]
    assert next(pieces).pcm.size == pytest.approx(PIECE / 1.2, abs=200)
    pieces.close()  # type: ignore[attr-defined]
    assert voice.speeds == [pytest.approx(1 / 1.2)]
