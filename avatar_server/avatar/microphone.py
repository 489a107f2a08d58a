"""A viewer's microphone: decoded frames in, mono 16 kHz pieces of 20 ms out."""

from __future__ import annotations

from collections.abc import Iterator

import av
import numpy as np
from numpy.typing import NDArray

SPEECH_RATE_HZ = 16_000
PIECE = 320
"""Samples of a 20 ms piece at 16 kHz."""


class Microphone:
    """Resamples and cuts. One per viewer; keeps the filter's state between frames."""

    def __init__(self) -> None:
        self._resampler = self._new_resampler()
        self._format: tuple[str, str, int] | None = None
        self._rest = np.zeros(0, np.int16)

    def feed(self, frame: av.AudioFrame) -> Iterator[NDArray[np.int16]]:
        """The pieces (int16, shape (320,)) that are complete with this frame."""
        kind = (frame.format.name, frame.layout.name, frame.sample_rate)
        if kind != self._format:
            self._resampler = self._new_resampler()
            self._format = kind
        # Frames carry the sender's time stamps, whose gaps the resampler would refuse.
        frame.pts = None
        parts = [self._rest]
        for converted in self._resampler.resample(frame):
            parts.append(converted.to_ndarray().reshape(-1).astype(np.int16, copy=False))
        joined = np.concatenate(parts)
        whole = len(joined) // PIECE * PIECE
        self._rest = joined[whole:]
        for start in range(0, whole, PIECE):
            yield joined[start : start + PIECE]

    @staticmethod
    def _new_resampler() -> av.AudioResampler:
        return av.AudioResampler(format="s16", layout="mono", rate=SPEECH_RATE_HZ)
