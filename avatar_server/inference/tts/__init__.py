"""Text to speech: clauses in, sound with word and viseme times out."""

from avatar_server.inference.tts.build import build_synthesizer, choose_voice
from avatar_server.inference.tts.contract import (
    SAMPLE_RATE_HZ,
    SpeechPiece,
    Synthesizer,
    TtsError,
)

__all__ = [
    "SAMPLE_RATE_HZ",
    "SpeechPiece",
    "Synthesizer",
    "TtsError",
    "build_synthesizer",
    "choose_voice",
]
