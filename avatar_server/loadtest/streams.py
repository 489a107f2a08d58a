"""What a player would make of received RTP packets: whole pictures, and sound without holes.

Pure arithmetic on sequence numbers, timestamps and arrival times (seconds of any clock); nothing
is decoded. Timestamps that are returned count from the stream's first packet and do not wrap.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

VIDEO_CLOCK_HZ = 90_000
AUDIO_CLOCK_HZ = 48_000
AUDIO_BLOCK = 960
"""Samples of one Opus packet of this server: 20 ms."""

_MAX_WAITING = 4_096
"""Packets kept behind a hole; more than a keyframe interval of a broken stream is of no use."""
_STEADY_S = 10.0
"""A player learns the network's delay from the quickest packet of about this time."""


class Unwrap:
    """Continues a counter of `bits` bits past its wrap; the first value is kept as it is."""

    def __init__(self, bits: int) -> None:
        self._range = 1 << bits
        self._last: int | None = None

    def __call__(self, value: int) -> int:
        if self._last is None:
            self._last = value
            return value
        step = (value - self._last) % self._range
        if step >= self._range // 2:
            step -= self._range
        unwrapped = self._last + step
        self._last = max(self._last, unwrapped)
        return unwrapped


@dataclass(frozen=True, slots=True)
class Packet:
    """One RTP packet of video. `starts_keyframe`: a decoder can begin with it."""

    sequence: int
    timestamp: int
    marker: bool
    starts_keyframe: bool
    size: int
    arrived: float


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture that could be shown at `shown`: it and all it refers to had come by then."""

    shown: float
    pts: int
    size: int
    keyframe: bool


class PictureAssembler:
    """Whole pictures from packets in any order, as a decoder could use them.

    A picture refers to the one before it, so that one with a packet missing, and those after it,
    wait until the packet is sent again or a keyframe makes it unnecessary.
    """

    def __init__(self) -> None:
        self._sequence = Unwrap(16)
        self._timestamp = Unwrap(32)
        self._origin: int | None = None
        self._next: int | None = None
        self._waiting: dict[int, tuple[Packet, int]] = {}
        self._part: list[tuple[Packet, int]] = []
        self._shown = 0.0
        self.lost = 0
        """Packets that never came before a keyframe made them unnecessary."""

    def add(self, packet: Packet) -> list[Picture]:
        """Take a packet; returns the pictures that became whole by it."""
        sequence = self._sequence(packet.sequence)
        pts = self._timestamp(packet.timestamp)
        if self._origin is None:
            self._origin = pts
        if self._next is None:
            # Whoever joins can show nothing before the first keyframe.
            if not packet.starts_keyframe:
                return []
            self._next = sequence
        if sequence < self._next:
            return []
        self._waiting[sequence] = (packet, pts - self._origin)
        self._skip_to_keyframe(sequence)
        out: list[Picture] = []
        while (entry := self._waiting.pop(self._next, None)) is not None:
            self._next += 1
            self._part.append(entry)
            if entry[0].marker:
                out.append(self._whole())
        while len(self._waiting) > _MAX_WAITING:
            del self._waiting[min(self._waiting)]
        return out

    def _whole(self) -> Picture:
        packets = [packet for packet, _ in self._part]
        pts = self._part[-1][1]
        self._part.clear()
        self._shown = max(self._shown, *(packet.arrived for packet in packets))
        size = sum(packet.size for packet in packets)
        return Picture(self._shown, pts, size, any(p.starts_keyframe for p in packets))

    def _skip_to_keyframe(self, sequence: int) -> None:
        """Go on from a keyframe that is whole, where packets before it are still missing."""
        assert self._next is not None
        if self._next in self._waiting:
            return
        pts = self._waiting[sequence][1]
        first = last = sequence
        while (entry := self._waiting.get(first)) and not entry[0].starts_keyframe:
            first -= 1
        while (after := self._waiting.get(last)) and after[1] == pts and not after[0].marker:
            last += 1
        start, end = self._waiting.get(first), self._waiting.get(last)
        if start is None or end is None or start[1] != pts or end[1] != pts or not end[0].marker:
            return
        self.lost += sum(number not in self._waiting for number in range(self._next, first))
        for number in [number for number in self._waiting if number < first]:
            del self._waiting[number]
        self._part.clear()
        self._next = first


def starts_keyframe(codec: str, payload: bytes) -> bool:
    """Whether a decoder can begin with the picture whose first RTP payload this is.

    `codec`: "h264" (RFC 6184: a parameter set or a slice of an IDR picture) or "vp8" (RFC 7741).
    """
    if not payload:
        return False
    if codec == "vp8":
        return _starts_vp8_keyframe(payload)
    kind = payload[0] & 0x1F
    if kind == 24 and len(payload) > 3:  # STAP-A: the first unit in it
        kind = payload[3] & 0x1F
    # A fragmented IDR slice (28) may come first only where the parameter sets were sent before.
    return kind in (5, 7)


def _starts_vp8_keyframe(payload: bytes) -> bool:
    at = 1
    if payload[0] & 0x80 and len(payload) > 1:
        extensions = payload[1]
        at = 2
        if extensions & 0x80 and len(payload) > at:
            at += 2 if payload[at] & 0x80 else 1
        at += bool(extensions & 0x40) + bool(extensions & 0x30)
    begins = payload[0] & 0x10 and not payload[0] & 0x07
    return bool(begins) and len(payload) > at and not payload[at] & 0x01


@dataclass(frozen=True, slots=True)
class Gap:
    """Sound that was not there when it was to be played: from `at` on, for `length_s`."""

    at: float
    length_s: float


def audio_gaps(
    packets: Sequence[tuple[int, float]], *, buffer_s: float, block: int = AUDIO_BLOCK
) -> list[Gap]:
    """The gaps that a player with a buffer of `buffer_s` would have made audible.

    `packets` are (timestamp in samples, arrival in s), not wrapped, in any order, all of `block`
    samples. The player plays each packet `buffer_s` later than one that crossed the network as
    quickly as the quickest of the last 10 s; a packet that comes later than that, or never, is a
    gap. Neighbouring late or missing packets are one gap.
    """
    quickest: deque[tuple[float, float]] = deque()  # (arrival, transit), transit rising
    gaps: list[Gap] = []
    expected: int | None = None
    in_gap = False
    for pts, arrived in sorted(_first_arrivals(packets).items()):
        transit = arrived - pts / AUDIO_CLOCK_HZ
        while quickest and quickest[0][0] < arrived - _STEADY_S:
            quickest.popleft()
        steady = min(quickest[0][1], transit) if quickest else transit
        while quickest and quickest[-1][1] >= transit:
            quickest.pop()
        quickest.append((arrived, transit))
        due = pts / AUDIO_CLOCK_HZ + steady + buffer_s
        missing = 0 if expected is None else max(0, pts - expected)
        # Half a sample of slack: the bound itself, computed in floating point, is no gap.
        late = arrived - due > 0.5 / AUDIO_CLOCK_HZ
        length = (missing + (block if late else 0)) / AUDIO_CLOCK_HZ
        if length:
            at = due - missing / AUDIO_CLOCK_HZ
            if in_gap and not missing:
                gaps[-1] = Gap(gaps[-1].at, gaps[-1].length_s + length)
            else:
                gaps.append(Gap(at, length))
        in_gap = late
        expected = pts + block
    return gaps


def _first_arrivals(packets: Sequence[tuple[int, float]]) -> dict[int, float]:
    arrivals: dict[int, float] = {}
    for pts, arrived in packets:
        arrivals[pts] = min(arrived, arrivals.get(pts, arrived))
    return arrivals
