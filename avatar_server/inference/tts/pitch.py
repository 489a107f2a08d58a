"""One voice made to sound like another person's, by playing it faster or slower than it was made.

That moves pitch and resonances together, as between people of different size; the speech itself is
made slower or faster by as much, so that it keeps its pace. It costs a resampling.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from avatar_server.inference.tts.contract import SAMPLE_RATE_HZ, SpeechPiece, Synthesizer
from avatar_server.protocol.messages import Word
from avatar_server.resample import Resampler
from renderers.contract import VisemeSpan


def synthesize_pitched(
    synthesizer: Synthesizer, text: str, voice: str, speed: float, language: str, pitch: float
) -> Iterator[SpeechPiece]:
    """As `Synthesizer.synthesize`, `pitch` times as high (1.0: as the voice is)."""
    if pitch == 1.0:
        return synthesizer.synthesize(text, voice, speed, language)
    return _shifted(synthesizer.synthesize(text, voice, speed / pitch, language), pitch)


def _shifted(pieces: Iterator[SpeechPiece], pitch: float) -> Iterator[SpeechPiece]:
    resampler = Resampler(round(SAMPLE_RATE_HZ * pitch), SAMPLE_RATE_HZ)
    for piece in pieces:
        samples = resampler.push(piece.pcm.astype(np.float32))
        if piece.last:
            samples = np.concatenate([samples, resampler.flush()])
        yield SpeechPiece(
            np.clip(np.rint(samples), -32_768, 32_767).astype(np.int16),
            piece.last,
            [Word(text=w.text, start=w.start / pitch, end=w.end / pitch) for w in piece.words],
            [VisemeSpan(v.viseme, v.start / pitch, v.end / pitch) for v in piece.visemes],
        )
