"""A microphone that says what it is given, in real time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from fractions import Fraction

import av
import numpy as np
from aiortc import MediaStreamTrack
from numpy.typing import NDArray

RATE_HZ = 48_000
FRAME = 960
_FLOOR = 6
"""Level of the room noise between utterances (int16): real microphones are never all zero."""


def room_noise(seed: int, blocks: int) -> Iterator[NDArray[np.int16]]:
    """`blocks` pieces of quiet noise, int16, 20 ms each."""
    noise = np.random.default_rng(seed)
    for _ in range(blocks):
        yield noise.integers(-_FLOOR, _FLOOR + 1, FRAME).astype(np.int16)


class Microphone(MediaStreamTrack):
    """An aiortc audio track: silence, and utterances when told."""

    kind = "audio"

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self._queue: list[NDArray[np.int16]] = []
        self._sent = 0
        self._started: float | None = None
        self._noise = np.random.default_rng(seed)

    def say(self, pcm: NDArray[np.int16]) -> tuple[float, float]:
        """Queue an utterance (int16 mono 48 kHz) behind what is queued already.

        Returns the monotonic times at which its first and last samples leave.
        """
        if self._started is None:
            raise RuntimeError("the microphone is not running yet: join first")
        waiting = sum(part.size for part in self._queue)
        first = self._started + (self._sent + waiting) / RATE_HZ
        self._queue.append(pcm)
        return first, first + pcm.size / RATE_HZ

    @property
    def running(self) -> bool:
        """Whether the connection takes sound yet."""
        return self._started is not None

    def hush(self) -> None:
        """Drop what is not said yet."""
        self._queue.clear()

    async def recv(self) -> av.AudioFrame:
        if self._started is None:
            self._started = time.monotonic()
        due = self._started + (self._sent + FRAME) / RATE_HZ
        delay = due - time.monotonic()
        if delay > 0:
            await asyncio.sleep(delay)
        frame = av.AudioFrame.from_ndarray(self._take()[None, :], format="s16", layout="mono")
        frame.sample_rate = RATE_HZ
        frame.pts = self._sent
        frame.time_base = Fraction(1, RATE_HZ)
        self._sent += FRAME
        return frame

    def _take(self) -> NDArray[np.int16]:
        out = self._noise.integers(-_FLOOR, _FLOOR + 1, FRAME).astype(np.int16)
        filled = 0
        while self._queue and filled < FRAME:
            part = self._queue[0][: FRAME - filled]
            out[filled : filled + part.size] = part
            filled += part.size
            if part.size == self._queue[0].size:
                self._queue.pop(0)
            else:
                self._queue[0] = self._queue[0][part.size :]
        return out
