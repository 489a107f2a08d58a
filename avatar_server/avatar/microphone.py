"""A viewer's microphone: RTP packets in, mono 16 kHz pieces of 20 ms out, without added delay."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from avatar_server.avatar.pacing import AUDIO_RATE_HZ
from avatar_server.avatar.speech_decoder import (
    SPEECH_RATE_HZ,
    SpeechDecoder,
    make_decoder,
    packet_samples,
)

__all__ = ["PIECE", "SPEECH_RATE_HZ", "Gap", "Microphone", "ReorderBuffer", "packet_samples"]

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

    def __init__(self, length: Callable[[bytes], int] = packet_samples) -> None:
        """`length` gives a payload's samples at 48 kHz."""
        self._length = length
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
            self._next_time = (timestamp + self._length(payload)) & 0xFFFF_FFFF
        return ready


class Microphone:
    """Orders, decodes and cuts one viewer's Opus packets.

    Any mode of Opus is taken: narrow to full band, 2.5 to 120 ms a packet, mono or stereo (which
    the decoder mixes down). Sound beyond full scale stays at full scale. What is lost is made from
    the packet after it where that carries the redundancy (in-band FEC), and concealed otherwise.
    """

    def __init__(self, decoder: SpeechDecoder | None = None) -> None:
        self._buffer = ReorderBuffer()
        self._decoder = decoder or make_decoder()
        self._rest = np.zeros(0, np.int16)

    @property
    def lost(self) -> int:
        """Packets given up so far."""
        return self._buffer.lost

    def close(self) -> None:
        """Free the decoder now: what holds this may lie about until the collector comes."""
        self._decoder.close()

    def feed(self, sequence: int, timestamp: int, payload: bytes) -> Iterator[NDArray[np.int16]]:
        """The pieces (int16, shape (320,), 20 ms) that are complete with this packet."""
        hole = 0
        for item in self._buffer.push(sequence, timestamp, payload):
            if isinstance(item, Gap):
                hole = item.samples
                continue
            if hole:
                yield from self._cut(self._decoder.fill(hole, item))
                hole = 0
            yield from self._cut(self._decoder.decode(item))

    def _cut(self, sound: NDArray[np.int16]) -> Iterator[NDArray[np.int16]]:
        joined = np.concatenate((self._rest, sound)) if len(self._rest) else sound
        whole = len(joined) // PIECE * PIECE
        self._rest = joined[whole:]
        for start in range(0, whole, PIECE):
            yield joined[start : start + PIECE]


def _difference(a: int, b: int, bits: int) -> int:
    """a - b of counters that wrap: within half their range either way."""
    half = 1 << (bits - 1)
    return ((a - b + half) & ((1 << bits) - 1)) - half
