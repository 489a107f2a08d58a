"""Both sides of a conversation on one clock, as the two channels of a stereo track."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from avatar_server.resample import Resampler

SAMPLE_RATE_HZ = 48_000
VOICE_RATE_HZ = 16_000
_RATIO = SAMPLE_RATE_HZ // VOICE_RATE_HZ

_MOST_AHEAD = 10 * SAMPLE_RATE_HZ
"""Sound that would begin later than this after what was taken last is not kept."""
_RESYNC = SAMPLE_RATE_HZ // 5
"""A voice is written without a seam until its packets come 200 ms off from where it would go on:
less is the network's jitter, more is a pause, a loss, or an hour's drift between two clocks."""


class _Lane:
    """One channel from sample `base` on; what nobody wrote is silence."""

    def __init__(self, base: int) -> None:
        self.base = base
        self._sound: NDArray[np.int32] = np.zeros(0, np.int32)

    def add(self, at: int, pcm: NDArray[np.int32]) -> None:
        """Mix `pcm` in, from sample `at` on, as far as that has not been taken yet."""
        if at < self.base:
            pcm, at = pcm[self.base - at :], self.base
        start = at - self.base
        if not len(pcm) or start > _MOST_AHEAD:
            return
        missing = start + len(pcm) - len(self._sound)
        if missing > 0:
            self._sound = np.concatenate([self._sound, np.zeros(missing, np.int32)])
        self._sound[start : start + len(pcm)] += pcm

    def take(self, count: int) -> NDArray[np.int16]:
        """The next `count` samples."""
        taken = np.zeros(count, np.int32)
        have = min(count, len(self._sound))
        taken[:have] = self._sound[:have]
        self._sound = self._sound[have:]
        self.base += count
        return np.clip(taken, -32_768, 32_767).astype(np.int16)


@dataclass(slots=True)
class _Voice:
    resampler: Resampler
    begun: int
    received: int = 0
    written: int = 0


class Mixer:
    """The avatar left, all viewers right.

    Moments are samples at 48 kHz of media time. Pure logic; used from one thread.
    """

    def __init__(self, start: int) -> None:
        self._left, self._right = _Lane(start), _Lane(start)
        self._voices: dict[str, _Voice] = {}

    @property
    def position(self) -> int:
        """The next sample that `take` gives."""
        return self._left.base

    def add_avatar(self, at: int, pcm: NDArray[np.int16]) -> None:
        """The avatar's sound from sample `at` on: int16, mono, 48 kHz."""
        self._left.add(at, pcm.astype(np.int32))

    def add_viewer(self, viewer: str, until: int, pcm: NDArray[np.int16]) -> None:
        """A piece of a viewer's sound (int16, mono, 16 kHz) that had come at sample `until`."""
        start = until - _RATIO * len(pcm)
        voice = self._voices.get(viewer)
        if voice is None or abs(start - voice.begun - _RATIO * voice.received) > _RESYNC:
            voice = _Voice(Resampler(VOICE_RATE_HZ, SAMPLE_RATE_HZ), start)
            self._voices[viewer] = voice
        voice.received += len(pcm)
        sound = voice.resampler.push(pcm.astype(np.float32))
        self._right.add(voice.begun + voice.written, sound.astype(np.int32))
        voice.written += len(sound)

    def forget(self, viewer: str) -> None:
        """A viewer has gone."""
        self._voices.pop(viewer, None)

    def take(self, until: int) -> NDArray[np.int16]:
        """Sound up to sample `until`: int16, shape (samples, 2); later additions to it are lost."""
        count = max(0, until - self.position)
        return np.stack([self._left.take(count), self._right.take(count)], axis=1)
