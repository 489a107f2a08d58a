"""What was sent to one viewer, for the packets that it asks for again. Pure, under a clock."""

from __future__ import annotations

from typing import NamedTuple

_HISTORY = 1024
"""Packets kept: a keyframe (some 60) and over a second at 2.5 Mbit/s (260)."""
_FIRST_WAIT_S = 0.1
"""Before the way there and back is known, a packet is not sent again sooner than this."""
_LEAST_WAIT_S = 0.02
_BURST_PACKETS = 128
"""So many at once: what a link that was gone for two seconds has missed."""
_FREE_RATE_HZ = 400.0
"""Packets a second where the viewer has not said what its link carries: 3.8 Mbit/s."""
_LEAST_RATE_HZ = 20.0
_PACKET_BITS = 9_600


class SentPacket(NamedTuple):
    """One RTP packet as it was sent; `timestamp` as on the wire."""

    sequence: int
    timestamp: int
    marker: bool
    payload: bytes


class Retransmissions:
    """A ring of sent packets, and how many of them may be sent again.

    Receivers ask every few milliseconds until a packet comes. On a link that is full, answering
    each time fills it further, until nothing else gets through: so a packet goes out again only
    when the last answer can have failed, and all of them only as fast as the link is said to be.
    """

    def __init__(self) -> None:
        self._sent: list[SentPacket | None] = [None] * _HISTORY
        self._again_at: dict[int, float] = {}
        self._budget = float(_BURST_PACKETS)
        self._at = 0.0

    def keep(self, sequence: int, timestamp: int, marker: bool, payload: bytes) -> None:
        """A packet was sent for the first time."""
        self._sent[sequence % _HISTORY] = SentPacket(sequence, timestamp, marker, payload)
        if self._again_at:
            self._again_at.pop(sequence, None)

    def take(
        self, sequence: int, now: float, round_trip_s: float | None, bandwidth_bps: float | None
    ) -> SentPacket | None:
        """The packet to send again at `now` (s), or `None` where it is gone or not due."""
        kept = self._sent[sequence % _HISTORY]
        if kept is None or kept.sequence != sequence or now < self._again_at.get(sequence, now):
            return None
        rate = _FREE_RATE_HZ
        if bandwidth_bps is not None:
            rate = min(rate, max(_LEAST_RATE_HZ, bandwidth_bps / _PACKET_BITS))
        self._budget = min(_BURST_PACKETS, self._budget + rate * max(0.0, now - self._at))
        self._at = now
        if self._budget < 1.0:
            return None
        self._budget -= 1.0
        wait = _FIRST_WAIT_S if round_trip_s is None else max(_LEAST_WAIT_S, round_trip_s)
        self._again_at[sequence] = now + wait
        if len(self._again_at) > _HISTORY:
            self._again_at = {s: at for s, at in self._again_at.items() if at > now}
        return kept

    def clear(self) -> None:
        """Let go of all payloads."""
        self._sent = [None] * _HISTORY
        self._again_at.clear()
