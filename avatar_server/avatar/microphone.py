"""A viewer's microphone: RTP packets in, mono 16 kHz pieces of 20 ms out, without added delay."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import NamedTuple

import av
import numpy as np
from numpy.typing import NDArray

from avatar_server.avatar.pacing import AUDIO_BLOCK, AUDIO_RATE_HZ

SPEECH_RATE_HZ = 16_000
PIECE = 320
"""Samples of a 20 ms piece at 16 kHz."""

_MAX_HELD = 3
"""Packets that arrive after a missing one before it is given up: 60 ms of patience."""
_MAX_GAP = AUDIO_RATE_HZ
"""Longer holes in a stream's time are a restart, not a loss: no more than 1 s is filled."""
_RESTART = 200
"""A jump of so many packets is a new stream."""


class Gap(NamedTuple):
    """Sound that never came: its length in samples at 48 kHz."""

    samples: int


class ReorderBuffer:
    """Puts packets in order. One in its place goes on at once; a missing one is waited for
    until three later ones have come. Pure logic; sequence numbers and time stamps may wrap.
    """

    def __init__(self) -> None:
        self._next: int | None = None
        self._next_time = 0
        self._held: dict[int, tuple[int, bytes]] = {}
        self.lost = 0

    def push(self, sequence: int, timestamp: int, payload: bytes) -> list[bytes | Gap]:
        """What can go on now that this packet is here, in order."""
        if self._next is None or abs(_difference(sequence, self._next, 16)) > _RESTART:
            self._held.clear()
            self._next, self._next_time = sequence, timestamp
        if _difference(sequence, self._next, 16) < 0:
            return []
        self._held[sequence] = (timestamp, payload)
        ready = self._release()
        while len(self._held) >= _MAX_HELD:
            at = self._next
            following = min(self._held, key=lambda number: _difference(number, at, 16))
            self.lost += _difference(following, at, 16)
            self._next = following
            ready += self._release()
        return ready

    def _release(self) -> list[bytes | Gap]:
        ready: list[bytes | Gap] = []
        while self._next is not None and (item := self._held.pop(self._next, None)) is not None:
            timestamp, payload = item
            missing = _difference(timestamp, self._next_time, 32)
            if missing > 0:
                ready.append(Gap(min(missing, _MAX_GAP)))
            ready.append(payload)
            self._next = (self._next + 1) & 0xFFFF
            self._next_time = (timestamp + AUDIO_BLOCK) & 0xFFFF_FFFF
        return ready


class Microphone:
    """Orders, decodes, resamples and cuts one viewer's Opus packets."""

    def __init__(self) -> None:
        self._buffer = ReorderBuffer()
        decoder = av.CodecContext.create("libopus", "r")
        decoder.sample_rate = AUDIO_RATE_HZ
        decoder.layout = "mono"
        decoder.format = "s16"
        self._decoder = decoder
        self._resampler = av.AudioResampler(format="s16", layout="mono", rate=SPEECH_RATE_HZ)
        self._rest = np.zeros(0, np.int16)
        self._last = np.zeros(PIECE, np.int16)

    @property
    def lost(self) -> int:
        """Packets given up so far."""
        return self._buffer.lost

    def feed(self, sequence: int, timestamp: int, payload: bytes) -> Iterator[NDArray[np.int16]]:
        """The pieces (int16, shape (320,), 20 ms) that are complete with this packet."""
        for item in self._buffer.push(sequence, timestamp, payload):
            sound = self._conceal(item.samples) if isinstance(item, Gap) else self._decode(item)
            joined = np.concatenate((self._rest, sound))
            whole = len(joined) // PIECE * PIECE
            self._rest = joined[whole:]
            for start in range(0, whole, PIECE):
                self._last = joined[start : start + PIECE]
                yield self._last

    def _decode(self, payload: bytes) -> NDArray[np.int16]:
        packet = av.Packet(payload)
        packet.time_base = Fraction(1, AUDIO_RATE_HZ)
        try:
            frames = self._decoder.decode(packet)
        except av.FFmpegError:
            return self._conceal(AUDIO_BLOCK)
        parts = []
        for frame in frames:
            frame.pts = None
            parts += [
                converted.to_ndarray().reshape(-1) for converted in self._resampler.resample(frame)
            ]
        return np.concatenate(parts).astype(np.int16, copy=False) if parts else self._rest[:0]

    def _conceal(self, samples: int) -> NDArray[np.int16]:
        """The last 20 ms again and softer each time, then silence: a loss is not taken for a
        pause at once, nor a long one for speech."""
        count = samples * SPEECH_RATE_HZ // AUDIO_RATE_HZ
        level = 0.5 ** (1 + np.arange(count) // PIECE)
        level[3 * PIECE :] = 0.0
        return (np.resize(self._last, count) * level).astype(np.int16)


def _difference(a: int, b: int, bits: int) -> int:
    """a - b of counters that wrap: within half their range either way."""
    half = 1 << (bits - 1)
    return ((a - b + half) & ((1 << bits) - 1)) - half
