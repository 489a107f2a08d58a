"""Encoded media as RTP payloads, made once per frame and shared by all viewers."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

VideoCodec = Literal["h264", "vp8"]
Layer = Literal["full", "low"]
"""The session's picture, or a smaller one for viewers whose link does not carry that."""


class Encoding(NamedTuple):
    """One of the encodes that viewers share."""

    codec: VideoCodec
    layer: Layer


MAX_PAYLOAD_BYTES = 1_180
"""Keeps IPv6 + UDP + SRTP packets under 1,280 bytes, the least MTU that IPv6 guarantees."""

_NAL_SEI = 6
_NAL_AUD = 9
_STAP_A = 24
_FU_A = 28


@dataclass(frozen=True, slots=True)
class EncodedVideo:
    """One picture. `timestamp` counts 90 kHz ticks of media time from 0, without wrapping.

    `sequence` numbers the pictures of this encode without a gap, so that a missing one is noticed.
    """

    codec: VideoCodec
    sequence: int
    timestamp: int
    keyframe: bool
    payloads: tuple[bytes, ...]
    size: int
    layer: Layer = "full"

    @property
    def encoding(self) -> Encoding:
        return Encoding(self.codec, self.layer)


@dataclass(frozen=True, slots=True)
class EncodedAudio:
    """One Opus packet. `timestamp` counts 48 kHz ticks of media time, without wrapping."""

    timestamp: int
    payload: bytes


def split_annexb(stream: bytes) -> Iterator[bytes]:
    """NAL units of an Annex B byte stream, without start codes."""
    start = stream.find(b"\x00\x00\x01")
    while start != -1:
        start += 3
        end = stream.find(b"\x00\x00\x01", start)
        unit = stream[start:] if end == -1 else stream[start:end]
        # A fourth zero byte before a start code, and trailing zeros, belong to no NAL unit:
        # its last byte holds the stop bit and is never zero (H.264 7.4.1).
        yield unit.rstrip(b"\x00")
        start = end


def packetize_h264(stream: bytes, max_payload: int = MAX_PAYLOAD_BYTES) -> tuple[bytes, ...]:
    """RTP payloads of an access unit (RFC 6184, packetization mode 1).

    Small units travel together (STAP-A), large ones in pieces of nearly equal size (FU-A).
    SEI and access unit delimiters carry nothing a live viewer needs and are left out.
    """
    payloads: list[bytes] = []
    group: list[bytes] = []
    group_size = 1

    def flush() -> None:
        nonlocal group_size
        if len(group) == 1:
            payloads.append(group[0])
        elif group:
            importance = max(unit[0] & 0x60 for unit in group)
            parts = [bytes((importance | _STAP_A,))]
            for unit in group:
                parts += (struct.pack("!H", len(unit)), unit)
            payloads.append(b"".join(parts))
        group.clear()
        group_size = 1

    for unit in split_annexb(stream):
        if not unit or unit[0] & 0x1F in (_NAL_SEI, _NAL_AUD):
            continue
        if len(unit) > max_payload:
            flush()
            payloads += _fragments(unit, max_payload)
            continue
        if group_size + 2 + len(unit) > max_payload:
            flush()
        group.append(unit)
        group_size += 2 + len(unit)
    flush()
    return tuple(payloads)


def _fragments(unit: bytes, max_payload: int) -> Iterator[bytes]:
    indicator = (unit[0] & 0xE0) | _FU_A
    kind = unit[0] & 0x1F
    body = len(unit) - 1
    count = -(-body // (max_payload - 2))
    size = -(-body // count)
    for position in range(1, len(unit), size):
        end = min(position + size, len(unit))
        flags = (0x80 if position == 1 else 0) | (0x40 if end == len(unit) else 0)
        yield bytes((indicator, flags | kind)) + unit[position:end]


def packetize_vp8(
    frame: bytes, picture_id: int, max_payload: int = MAX_PAYLOAD_BYTES
) -> tuple[bytes, ...]:
    """RTP payloads of a VP8 frame (RFC 7741), each with a 15-bit picture id."""
    size = max_payload - 4
    tail = struct.pack("!BH", 0x80, 0x8000 | (picture_id & 0x7FFF))
    return tuple(
        bytes((0x90 if position == 0 else 0x80,)) + tail + frame[position : position + size]
        for position in range(0, len(frame), size)
    )
