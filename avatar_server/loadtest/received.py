"""What a synthetic viewer received, and what follows from it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

AUDIBLE = 330
"""Samples of this size (of 32,768; -40 dBFS) are heard as sound."""


@dataclass(slots=True)
class AudioPiece:
    """20 ms of received sound: `pcm` int16 mono 48 kHz, from sample `pts` of the stream's clock.

    `arrived` is the monotonic time (s) at which its packet came from the network.
    """

    arrived: float
    pts: int
    pcm: NDArray[np.int16]


@dataclass(slots=True)
class EncodedPicture:
    """One received video frame before decoding. `pts` in 1/90,000 s."""

    arrived: float
    pts: int
    data: bytes


@dataclass(slots=True)
class Received:
    """All that came in, bounded: the last `max_s` seconds."""

    max_s: float = 300.0
    audio: deque[AudioPiece] = field(default_factory=deque)
    video: deque[EncodedPicture] = field(default_factory=deque)

    def add_audio(self, piece: AudioPiece) -> None:
        self.audio.append(piece)
        while self.audio and self.audio[0].arrived < piece.arrived - self.max_s:
            self.audio.popleft()

    def add_video(self, picture: EncodedPicture) -> None:
        self.video.append(picture)
        while self.video and self.video[0].arrived < picture.arrived - self.max_s:
            self.video.popleft()

    def first_audible_after(self, since: float) -> float | None:
        """Arrival time of the first audible sample whose packet came after `since`.

        The sample's place inside its packet is counted, so the answer is finer than 20 ms.
        """
        for piece in self.audio:
            if piece.arrived <= since:
                continue
            loud = np.flatnonzero(np.abs(piece.pcm.astype(np.int32)) >= AUDIBLE)
            if loud.size:
                return piece.arrived + float(loud[0]) / 48_000
        return None

    def last_audible(self) -> float | None:
        """Arrival time of the last audible sample."""
        for piece in reversed(self.audio):
            loud = np.flatnonzero(np.abs(piece.pcm.astype(np.int32)) >= AUDIBLE)
            if loud.size:
                return piece.arrived + float(loud[-1]) / 48_000
        return None

    def sound_since(self, since: float) -> NDArray[np.int16]:
        """All received sound after `since`, int16 mono 48 kHz, in stream order."""
        pieces = [piece.pcm for piece in self.audio if piece.arrived > since]
        return np.concatenate(pieces) if pieces else np.zeros(0, np.int16)

    def frame_rate(self, since: float) -> float:
        """Frames a second by the stream's own timestamps; 0 where there are too few."""
        stamps = [p.pts for p in self.video if p.arrived > since]
        if len(stamps) < 2 or stamps[-1] <= stamps[0]:
            return 0.0
        return (len(stamps) - 1) * 90_000 / (stamps[-1] - stamps[0])

    def intervals_ms(self, since: float) -> NDArray[np.float64]:
        """Milliseconds between arrivals of consecutive frames."""
        times = [p.arrived for p in self.video if p.arrived > since]
        return np.diff(np.array(times)) * 1_000
