"""The one place that reaches into what aiortc keeps private, and the versions it was checked with.

aiortc has no public way to send packets that are encoded already and shared, to hear of keyframe
requests, to receive audio without a fixed delay, or to tell when a peer was last heard of.
`ice` does the same for aioice, below it.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import metadata
from typing import Any

from aiortc import RTCRtpReceiver, RTCRtpTransceiver
from aiortc.jitterbuffer import JitterFrame
from aiortc.rtcdtlstransport import RTCDtlsTransport
from aiortc.rtp import RtpPacket

from avatar_server.avatar.pacing import MediaTimeline
from avatar_server.avatar.sender import LeanSender
from avatar_server.clock import Clock

SUPPORTED_AIORTC = ("1.16",)
"""Minor versions whose private parts have been checked: transceiver, receiver, DTLS, ICE."""


class UnsupportedAiortcError(RuntimeError):
    """The installed aiortc is not one this module was checked with."""


def require_supported_aiortc(version: str | None = None) -> None:
    """Raises `UnsupportedAiortcError` where the installed aiortc's private parts may differ."""
    installed = version or metadata.version("aiortc")
    if ".".join(installed.split(".")[:2]) not in SUPPORTED_AIORTC:
        raise UnsupportedAiortcError(
            f"aiortc {installed} is installed, but this program is checked with "
            f"{', '.join(SUPPORTED_AIORTC)} only: install the versions in constraints.txt"
        )


def replace_sender(
    transceiver: RTCRtpTransceiver, timeline: MediaTimeline, clock: Clock, stream_id: str
) -> LeanSender:
    """Put a `LeanSender` into `transceiver`; before the remote description is set."""
    lean = LeanSender(transceiver.kind, transceiver.sender.transport, timeline, clock, stream_id)
    _set(transceiver, "_RTCRtpTransceiver__sender", lean)
    transceiver.receiver._set_rtcp_ssrc(lean._ssrc)
    return lean


def ask_for_fec(transceiver: RTCRtpTransceiver) -> None:
    """Have the answer ask for Opus with in-band FEC; after the remote description is set.

    Browsers spend bits on it only where that is asked for (RFC 7587, section 6.1).
    """
    for codec in transceiver._codecs:
        if codec.mimeType.lower() == "audio/opus":
            codec.parameters |= {"minptime": 10, "useinbandfec": 1}


class _Tap:
    """In place of a receiver's jitter buffer: every packet goes on at once, none is decoded."""

    def __init__(self, packet: Callable[[RtpPacket], None]) -> None:
        self._packet = packet

    def add(self, packet: RtpPacket) -> tuple[bool, JitterFrame | None]:
        self._packet(packet)
        return False, None


def take_packets(receiver: RTCRtpReceiver, packet: Callable[[int, int, bytes], None]) -> None:
    """Hand on (sequence number, timestamp, payload) of each RTP packet as it arrives.

    The receiver goes on sending its reports; its own jitter buffer, which delays audio by 80 ms
    and stops for 320 ms at a lost packet, and its decoder get nothing.
    """

    def take(taken: RtpPacket) -> None:
        packet(taken.sequence_number, taken.timestamp, taken._data)  # type: ignore[attr-defined]

    _set(receiver, "_RTCRtpReceiver__jitter_buffer", _Tap(take))


def take_rtp(receiver: RTCRtpReceiver, packet: Callable[[RtpPacket, str], None]) -> None:
    """As `take_packets`, but hand on the whole packet and its codec's name ("h264", "opus").

    A packet that was sent again comes as the original, with an RTX stream's header undone.
    """
    codecs: dict[int, Any] = receiver._RTCRtpReceiver__codecs  # type: ignore[attr-defined]

    def take(taken: RtpPacket) -> None:
        packet(taken, codecs[taken.payload_type].name.lower())

    _set(receiver, "_RTCRtpReceiver__jitter_buffer", _Tap(take))


def packets_received(transport: RTCDtlsTransport) -> int:
    """Packets of any kind (DTLS, RTP, RTCP) that came from the peer so far."""
    count: int = transport._RTCDtlsTransport__rx_packets  # type: ignore[attr-defined]
    return count


def _set(owner: Any, name: str, value: Any) -> None:
    if not hasattr(owner, name):
        raise UnsupportedAiortcError(
            f"this aiortc has no {name}: install the versions in constraints.txt"
        )
    setattr(owner, name, value)
