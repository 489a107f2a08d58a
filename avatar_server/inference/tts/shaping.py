"""From a model's raw sound to what is sent: silence trimmed, level set, resampled, in pieces."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from avatar_server.inference.tts.contract import SAMPLE_RATE_HZ, SpeechPiece
from avatar_server.inference.tts.timeline import Timeline
from avatar_server.resample import Resampler

SENTENCE_PAUSE_S = 0.22
PHRASE_PAUSE_S = 0.12
WORD_PAUSE_S = 0.03
"""Silence after a clause: people pause 150-250 ms between sentences in conversation."""

_LEAD_S = 0.02
"""Kept before the first sound, so that a soft onset is not cut."""
_RELEASE_S = 0.07
"""Kept after the last phoneme's end: its sound dies away."""
_FADE_S = 0.01
_ONSET_LEVEL = 0.006
"""Mean level of 5 ms (full scale 1.0) from which sound counts as begun."""
_SMOOTH_S = 0.005
_LATEST_ONSET_S = 0.12
"""How far behind the model's own first phoneme the onset is looked for."""
_KNEE = 0.7
"""Level from which loud peaks are bent instead of clipped."""


def pause_after(text: str) -> float:
    """Seconds of silence that belong after a clause with this text."""
    for char in reversed(text.rstrip()):
        if char in ".?!…。？！":
            return SENTENCE_PAUSE_S
        if char in ",;:—、，；：":
            return PHRASE_PAUSE_S
        if char.isalnum():
            break
    return WORD_PAUSE_S


def shape(
    chunks: Iterable[NDArray[np.float32]],
    rate_hz: int,
    timeline: Timeline,
    *,
    skipped_s: float,
    total_s: float,
    pause_s: float,
    gain: float,
) -> Iterator[SpeechPiece]:
    """Pieces of speech for the raw `chunks` (float32, mono, `rate_hz`) of one clause.

    The first chunk starts `skipped_s` after the time zero of `timeline`; the model's sound is
    `total_s` long. The clause ends `pause_s` after its last phoneme.
    """
    resampler = Resampler(rate_hz, SAMPLE_RATE_HZ)
    end = round(min(total_s, timeline.end + _RELEASE_S) * rate_hz)
    position = round(skipped_s * rate_hz)
    cut = position
    trimmed: Timeline | None = None
    tail = max(0, round((timeline.end + pause_s) * rate_hz) - end)
    for chunk in chunks:
        sound = chunk[: max(0, end - position)]
        if trimmed is None:
            start = _onset(sound, rate_hz, timeline.start - position / rate_hz)
            cut = position + start
            sound = sound[start:]
            length = round((end - cut + tail) * SAMPLE_RATE_HZ / rate_hz) / SAMPLE_RATE_HZ
            trimmed = timeline.trimmed(cut / rate_hz, length)
        position += chunk.size
        finished = position >= end
        if finished:
            sound = np.concatenate([_faded(sound, rate_hz), np.zeros(tail, np.float32)])
        out = resampler.push(sound)
        if finished:
            out = np.concatenate([out, resampler.flush()])
        piece = SpeechPiece(_to_int16(out, gain), finished)
        if trimmed.words or trimmed.visemes:
            piece.words, piece.visemes = trimmed.words, trimmed.visemes
            piece.phones = trimmed.phones
            trimmed = Timeline([], [], trimmed.start, trimmed.end)
        yield piece
        if finished:
            return


def silence(text: str, seconds: float) -> SpeechPiece:
    """A clause without anything to say: `seconds` of silence, its words without time."""
    from avatar_server.inference.tts.timeline import build_timeline

    samples = round(seconds * SAMPLE_RATE_HZ)
    timeline = build_timeline(text.split(), [], samples / SAMPLE_RATE_HZ)
    return SpeechPiece(np.zeros(samples, np.int16), True, timeline.words, timeline.visemes)


def _onset(sound: NDArray[np.float32], rate_hz: int, expected_s: float) -> int:
    """Samples to drop from the beginning, so that `_LEAD_S` is left before the first sound."""
    width = max(1, round(_SMOOTH_S * rate_hz))
    steps = sound.size // width
    if not steps:
        return 0
    level = np.abs(sound[: steps * width]).reshape(steps, width).mean(axis=1)
    loud = np.flatnonzero(level > _ONSET_LEVEL)
    latest = round(max(0.0, expected_s + _LATEST_ONSET_S) * rate_hz)
    begun = min(int(loud[0]) * width if loud.size else latest, latest)
    return min(max(0, begun - round(_LEAD_S * rate_hz)), sound.size)


def _faded(sound: NDArray[np.float32], rate_hz: int) -> NDArray[np.float32]:
    count = min(sound.size, round(_FADE_S * rate_hz))
    if not count:
        return sound
    result = sound.astype(np.float32, copy=True)
    result[-count:] *= np.linspace(1.0, 0.0, count, dtype=np.float32)
    return result


def _to_int16(sound: NDArray[np.float32], gain: float) -> NDArray[np.int16]:
    level = sound * np.float32(gain)
    over = np.abs(level) > _KNEE
    if over.any():
        beyond = (np.abs(level[over]) - _KNEE) / (1.0 - _KNEE)
        level[over] = np.sign(level[over]) * (_KNEE + (1.0 - _KNEE) * np.tanh(beyond))
    return np.asarray(np.clip(level * 32_767.0, -32_768, 32_767), np.int16)
