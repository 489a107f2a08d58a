"""A microphone that sends Opus packets made beforehand, for a tenth of the CPU of live encoding."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections import deque
from dataclasses import dataclass

import numpy as np
from aiortc import RTCRtpTransceiver
from numpy.typing import NDArray

from avatar_server.avatar.encoder import OpusEncoder
from avatar_server.avatar.pacing import MediaTimeline
from avatar_server.avatar.rtc_internals import replace_sender
from avatar_server.clock import MonotonicClock
from avatar_server.config import AudioSettings
from avatar_server.loadtest.microphone import FRAME, RATE_HZ, room_noise
from avatar_server.loadtest.speech import Utterance

_BLOCK_S = FRAME / RATE_HZ
_NOISE_BLOCKS = 250
"""Room noise of 5 s, over and over."""


@dataclass(frozen=True, slots=True)
class EncodedUtterance:
    """An `Utterance` as Opus packets of 20 ms."""

    text: str
    packets: tuple[bytes, ...]
    voiced_start: float
    voiced_end: float


def encode_utterance(utterance: Utterance) -> EncodedUtterance:
    """Encode once what is said many times."""
    return EncodedUtterance(
        utterance.text, _encode(utterance.pcm), utterance.voiced_start, utterance.voiced_end
    )


def _encode(pcm: NDArray[np.int16]) -> tuple[bytes, ...]:
    encoder = OpusEncoder(AudioSettings())
    blocks = -(-pcm.size // FRAME)
    padded = np.zeros(blocks * FRAME, np.int16)
    padded[: pcm.size] = pcm
    encoded = (encoder.encode(block, n) for n, block in enumerate(padded.reshape(blocks, FRAME)))
    return tuple(packet.payload for packet in encoded if packet is not None)


class PacketMicrophone:
    """Takes the place of a transceiver's audio sender; room noise, and utterances when told.

    Make it before the offer. `close` ends its task.
    """

    def __init__(self, transceiver: RTCRtpTransceiver, seed: int = 0) -> None:
        self._clock = MonotonicClock()
        self._timeline = MediaTimeline.starting(self._clock.now())
        self._sender = replace_sender(transceiver, self._timeline, self._clock, str(uuid.uuid4()))
        self._sender.started = self._start
        self._noise = _encode(np.concatenate(list(room_noise(seed, _NOISE_BLOCKS))))
        self._queue: deque[bytes] = deque()
        self._sent = 0
        self._started: float | None = None
        self._task: asyncio.Task[None] | None = None

    def say(self, utterance: EncodedUtterance) -> float:
        """Queue an utterance behind what is queued already.

        Returns the monotonic time of its first sample. A packet leaves when its last sample is
        there, 20 ms after its first, as with any microphone.
        """
        if self._started is None:
            raise RuntimeError("the microphone is not running yet: join first")
        first = self._started + (self._sent + len(self._queue)) * _BLOCK_S
        self._queue.extend(utterance.packets)
        return first

    async def close(self) -> None:
        """May be called twice."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    def _start(self) -> None:
        if self._task is None:
            self._started = self._clock.now()
            self._task = asyncio.create_task(self._run(self._started))

    async def _run(self, started: float) -> None:
        offset = round(self._timeline.media_time(started) * RATE_HZ)
        while True:
            delay = started + (self._sent + 1) * _BLOCK_S - self._clock.now()
            if delay > 0:
                await asyncio.sleep(delay)
            noise = self._noise[self._sent % len(self._noise)]
            payload = self._queue.popleft() if self._queue else noise
            self._sender.send_payload(payload, offset + self._sent * FRAME, False)
            self._sent += 1
