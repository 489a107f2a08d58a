"""How a voice's melody and stress move brows and head.

Head movement goes with the pitch of the voice, and so do the brows (Munhall et al. 2004; Cavé et
al. 1996: brows rise with the pitch in 71% of cases); stressed syllables are marked by small nods.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

PITCH_RATE_HZ = 100
"""Values a second of pitch."""

_SMOOTH_S = 0.15
_WIDEST_ST = 7.0
"""Semitones from the speaker's middle beyond which nothing more is shown: outliers are errors."""
_VOICE_MEMORY = 0.3
"""Share by which a clause moves what is taken for the speaker's middle pitch."""


class Melody:
    """The pitch of one clause, as semitones from the speaker's middle; filled as sound comes in."""

    __slots__ = ("_pitch", "_tone")

    def __init__(self) -> None:
        self._pitch: NDArray[np.float32] = np.zeros(0, np.float32)
        self._tone: NDArray[np.float32] = np.zeros(0, np.float32)

    def add(self, pitch: NDArray[np.float32], middle_hz: float) -> None:
        """More `pitch` (Hz; 0 where there is none) has become known."""
        self._pitch = np.concatenate((self._pitch, pitch))
        self._tone = tones(self._pitch, middle_hz)

    def at(self, index: int) -> float:
        """Semitones from the middle at value `index`; 0 where nothing is known."""
        return float(self._tone[index]) if 0 <= index < self._tone.size else 0.0


def tones(pitch: NDArray[np.float32], middle_hz: float) -> NDArray[np.float32]:
    """`pitch` (Hz; 0 where there is none) in semitones from `middle_hz`, smooth, gaps bridged."""
    voiced = np.flatnonzero(pitch > 0)
    if not voiced.size or middle_hz <= 0:
        return np.zeros(pitch.size, np.float32)
    semitones = 12 * np.log2(pitch[voiced] / middle_hz)
    semitones = np.clip(semitones, -_WIDEST_ST, _WIDEST_ST)
    filled = np.interp(np.arange(pitch.size), voiced, semitones)
    window = np.hanning(round(_SMOOTH_S * PITCH_RATE_HZ) + 2)[1:-1]
    padded = np.pad(filled, window.size // 2, mode="edge")
    smooth = np.convolve(padded, window / window.sum(), mode="same")
    return smooth[window.size // 2 :][: pitch.size].astype(np.float32)


class MiddlePitch:
    """The speaker's middle pitch (Hz), learned from what was heard; 0 before anything was."""

    def __init__(self) -> None:
        self.hz = 0.0

    def hear(self, pitch: NDArray[np.float32]) -> None:
        """Take up `pitch` (Hz; 0 where there is none)."""
        voiced = pitch[pitch > 0]
        if voiced.size < 10:
            return
        middle = float(np.median(voiced))
        if self.hz <= 0:
            self.hz = middle
        else:
            # In semitones, as ears have it.
            self.hz *= math.exp(_VOICE_MEMORY * math.log(middle / self.hz))
