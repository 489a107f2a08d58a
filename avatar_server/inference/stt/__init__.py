"""Speech to text."""

from avatar_server.inference.stt.transcriber import Transcriber, Transcription

__all__ = ["Transcriber", "Transcription"]
