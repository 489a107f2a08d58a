"""A lean RTP sender in place of aiortc's, driving aiortc's transports directly.

aiortc's own sender makes several objects for every RTP packet, keeps 128 packets for
retransmission (less than one keyframe and a second), and does not tell a track that feeds it
encoded packets about keyframe requests. This one takes payloads that are shared by all viewers,
writes a 24-byte header per packet, and hands PLI and FIR on.

It uses what aiortc keeps private; `rtc_internals` says for which versions that holds.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import secrets
import struct
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from aiortc import rtp
from aiortc.codecs import is_rtx
from aiortc.rtcdtlstransport import RTCDtlsTransport
from aiortc.rtcrtpparameters import RTCRtpSendParameters
from aiortc.stats import RTCStatsReport
from pylibsrtp import Error as SrtpError

from avatar_server.avatar.pacing import AUDIO_RATE_HZ, VIDEO_CLOCK_HZ, MediaTimeline
from avatar_server.avatar.retransmission import Retransmissions
from avatar_server.clock import Clock

logger = logging.getLogger(__name__)

_MAX_UNSENT_BYTES = 262_144
"""Bytes that the socket would not take; with more, packets wait in the viewer's own queue."""
_REPORT_INTERVAL_S = 1.0
_MOST_REPORTED = 10_000
"""Of more packets no report is: their counter has begun anew."""
_FIRST_REPORTS_S = 0.2
"""The first reports follow quickly, so that sound and picture are in step from the start."""

_MID_URI = "urn:ietf:params:rtp-hdrext:sdes:mid"
_SEND_TIME_URI = "http://www.webrtc.org/experiments/rtp-hdrext/abs-send-time"


@dataclass(slots=True)
class SenderStats:
    """Counters of one stream to one viewer, with the last receiver report."""

    packets: int = 0
    octets: int = 0
    retransmitted: int = 0
    keyframe_requests: int = 0
    fraction_lost: float = 0.0
    round_trip_ms: float | None = None
    remb_bps: int | None = None


class LeanSender:
    """One stream to one viewer; takes the place of an `RTCRtpSender` in its transceiver."""

    def __init__(
        self,
        kind: str,
        transport: RTCDtlsTransport,
        timeline: MediaTimeline,
        clock: Clock,
        stream_id: str,
    ) -> None:
        self.kind = kind
        self.transport = transport
        self.track = None
        self.stats = SenderStats()
        self.codec_name = ""
        self.started: Callable[[], None] = lambda: None
        self.keyframe_wanted: Callable[[], None] = lambda: None
        self.loss_reported: Callable[[float, int], None] = lambda share, packets: None
        self.bandwidth_reported: Callable[[float], None] = lambda _: None
        self._timeline = timeline
        self._clock = clock
        self._clock_rate = VIDEO_CLOCK_HZ if kind == "video" else AUDIO_RATE_HZ
        # Read and set by aiortc's peer connection.
        self._ssrc = secrets.randbits(32)
        self._rtx_ssrc = secrets.randbits(32)
        self._stream_id = stream_id
        self._track_id = str(uuid.uuid4())
        self._enabled = True
        self._cname = ""
        self._sending = False
        # In the lower half, so that a wrap does not come before SRTP has settled its roll-over
        # counter (RFC 3711, 3.3.1).
        self._sequence = secrets.randbits(15)
        self._rtx_sequence = secrets.randbits(15)
        self._timestamp_base = secrets.randbits(32)
        self._history = Retransmissions()
        self._payload_type = 0
        self._rtx_payload_type: int | None = None
        self._extension = b""
        self._send_time_at: int | None = None
        self._report_task: asyncio.Task[None] | None = None
        self._last_report = (0, 0.0)
        self._reported = (0, 0)

    # What RTCPeerConnection and RTCRtpTransceiver call.

    def setTransport(self, transport: RTCDtlsTransport) -> None:
        self.transport = transport

    def replaceTrack(self, track: Any) -> None:
        raise NotImplementedError("this sender is fed by the fan-out, not by a track")

    async def getStats(self) -> RTCStatsReport:
        return RTCStatsReport()

    async def send(self, parameters: RTCRtpSendParameters) -> None:
        """Called by the peer connection once DTLS is up."""
        if self._sending:
            return
        self._cname = parameters.rtcp.cname or ""
        self.transport._register_rtp_sender(self, parameters)
        codec = parameters.codecs[0]
        self.codec_name = codec.name.lower()
        self._payload_type = codec.payloadType or 0
        for other in parameters.codecs:
            if is_rtx(other) and other.parameters.get("apt") == codec.payloadType:
                self._rtx_payload_type = other.payloadType
        self._extension, self._send_time_at = _header_extension(parameters)
        self._sending = True
        self._report_task = asyncio.create_task(self._run_reports())
        self.started()

    async def stop(self) -> None:
        if not self._sending:
            return
        self._sending = False
        # The peer connection is full of cycles and may lie about until they are collected: a
        # megabyte of payloads must not.
        self._history.clear()
        self.started = self.keyframe_wanted = lambda: None
        self.loss_reported = lambda share, packets: None
        self.bandwidth_reported = lambda _: None
        self.transport._unregister_rtp_sender(self)
        if self._report_task is not None:
            self._report_task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._report_task
        await self._send_rtcp(bytes(rtp.RtcpByePacket(sources=[self._ssrc])))

    async def _handle_rtcp_packet(self, packet: rtp.AnyRtcpPacket) -> None:
        if isinstance(packet, rtp.RtcpRrPacket | rtp.RtcpSrPacket):
            for report in packet.reports:
                if report.ssrc == self._ssrc:
                    self._on_report(report)
        elif isinstance(packet, rtp.RtcpRtpfbPacket) and packet.fmt == rtp.RTCP_RTPFB_NACK:
            for sequence in packet.lost:
                self._retransmit(sequence)
        elif isinstance(packet, rtp.RtcpPsfbPacket):
            if packet.fmt in (rtp.RTCP_PSFB_PLI, rtp.RTCP_PSFB_FIR):
                self.stats.keyframe_requests += 1
                self.keyframe_wanted()
            elif packet.fmt == rtp.RTCP_PSFB_APP:
                with contextlib.suppress(ValueError):
                    estimate = rtp.unpack_remb_fci(packet.fci)[0]
                    self.stats.remb_bps = estimate
                    self.bandwidth_reported(estimate)

    # What the viewer's sink calls.

    @property
    def sending(self) -> bool:
        return self._sending and self._enabled

    def writable(self) -> bool:
        """Whether the socket takes more; where that cannot be known, true."""
        pair = self.transport.transport._connection._nominated.get(1)
        size = getattr(getattr(pair, "protocol", None), "transport", None)
        get_size = getattr(size, "get_write_buffer_size", None)
        return get_size is None or get_size() <= _MAX_UNSENT_BYTES

    def send_payload(self, payload: bytes, timestamp: int, marker: bool) -> None:
        """Send one RTP packet. `timestamp` is media time in clock ticks, not wrapped."""
        sequence = self._sequence
        self._sequence = (sequence + 1) & 0xFFFF
        wrapped = (self._timestamp_base + timestamp) & 0xFFFF_FFFF
        self._history.keep(sequence, wrapped, marker, payload)
        header = self._header(self._payload_type, marker, sequence, wrapped, self._ssrc)
        self.stats.packets += 1
        self.stats.octets += len(payload)
        self._send_rtp(header + payload)

    def forget_sent(self) -> None:
        """What was sent so far is not sent again: a keyframe follows that needs none of it."""
        self._history.clear()

    def _header(
        self, payload_type: int, marker: bool, sequence: int, timestamp: int, ssrc: int
    ) -> bytes:
        extension = self._extension
        if self._send_time_at is not None:
            # 6.18 fixed-point seconds, wrapping every 64 s; only differences matter.
            ticks = int(self._clock.now() * (1 << 18)) & 0xFF_FFFF
            at = self._send_time_at
            extension = extension[:at] + ticks.to_bytes(3, "big") + extension[at + 3 :]
        return (
            _HEADER.pack(
                0x90 if extension else 0x80,
                payload_type | (0x80 if marker else 0),
                sequence,
                timestamp,
                ssrc,
            )
            + extension
        )

    def _send_rtp(self, packet: bytes) -> None:
        transport = self.transport
        pair = transport.transport._connection._nominated.get(1)
        session = transport._tx_srtp
        if pair is None or session is None or transport.state != "connected":
            return
        try:
            protected = session.protect(packet)
        except SrtpError as error:
            logger.warning("a packet could not be encrypted: %s", error)
            return
        # Not awaited through the ICE connection: it only calls this, and a coroutine per packet
        # would cost as much again.
        pair.protocol.transport.sendto(protected, pair.remote_addr)

    def _retransmit(self, sequence: int) -> None:
        if not self.sending:
            return
        trip_ms, bandwidth = self.stats.round_trip_ms, self.stats.remb_bps
        trip_s = None if trip_ms is None else trip_ms / 1e3
        kept = self._history.take(sequence, self._clock.now(), trip_s, bandwidth)
        if kept is None:
            return
        _, timestamp, marker, payload = kept
        self.stats.retransmitted += 1
        if self._rtx_payload_type is None:
            header = self._header(self._payload_type, marker, sequence, timestamp, self._ssrc)
            self._send_rtp(header + payload)
            return
        # RFC 4588: own SSRC and sequence, the original sequence number before the payload.
        header = self._header(
            self._rtx_payload_type, marker, self._rtx_sequence, timestamp, self._rtx_ssrc
        )
        self._rtx_sequence = (self._rtx_sequence + 1) & 0xFFFF
        self._send_rtp(header + sequence.to_bytes(2, "big") + payload)

    def _on_report(self, report: rtp.RtcpReceiverInfo) -> None:
        self.stats.fraction_lost = report.fraction_lost / 256
        middle, sent_at = self._last_report
        if report.lsr and report.lsr == middle:
            trip = self._clock.now() - sent_at - report.dlsr / 65536
            self.stats.round_trip_ms = max(0.0, trip * 1e3)
        highest, lost = self._reported
        packets = report.highest_sequence - highest
        self._reported = report.highest_sequence, report.packets_lost
        # From the totals: the share that a report gives is of the time since the one before it,
        # which may have been lost itself.
        if highest and 0 < packets < _MOST_REPORTED:
            share = (report.packets_lost - lost) / packets
            self.loss_reported(min(1.0, max(0.0, share)), packets)

    async def _run_reports(self) -> None:
        for delay in (0.0, _FIRST_REPORTS_S, _FIRST_REPORTS_S):
            await asyncio.sleep(delay)
            await self._send_report()
        while True:
            # Randomised as RFC 3550 6.2 asks, so that viewers' reports do not come in step.
            await asyncio.sleep(_REPORT_INTERVAL_S * random.uniform(0.5, 1.5))
            await self._send_report()

    async def _send_report(self) -> None:
        """A sender report whose NTP and RTP time are the same instant of media time."""
        now = self._clock.now()
        media_time = self._timeline.media_time(now)
        ntp = self._timeline.ntp(media_time)
        ticks = self._timestamp_base + round(media_time * self._clock_rate)
        report = rtp.RtcpSrPacket(
            ssrc=self._ssrc,
            sender_info=rtp.RtcpSenderInfo(
                ntp_timestamp=ntp,
                rtp_timestamp=ticks & 0xFFFF_FFFF,
                packet_count=self.stats.packets & 0xFFFF_FFFF,
                octet_count=self.stats.octets & 0xFFFF_FFFF,
            ),
        )
        names = rtp.RtcpSdesPacket(
            chunks=[rtp.RtcpSourceInfo(ssrc=self._ssrc, items=[(1, self._cname.encode())])]
        )
        self._last_report = (ntp >> 16 & 0xFFFF_FFFF, now)
        await self._send_rtcp(bytes(report) + bytes(names))

    async def _send_rtcp(self, data: bytes) -> None:
        with contextlib.suppress(ConnectionError):
            await self.transport._send_rtp(data)


_HEADER = struct.Struct("!BBHII")


def _header_extension(parameters: RTCRtpSendParameters) -> tuple[bytes, int | None]:
    """One-byte header extensions (RFC 8285) with the MID, and where the send time is in them."""
    ids = {extension.uri: extension.id for extension in parameters.headerExtensions}
    body = b""
    send_time_at = None
    if (number := ids.get(_SEND_TIME_URI)) is not None and 1 <= number <= 14:
        body += bytes((number << 4 | 2,)) + bytes(3)
        send_time_at = 5
    mid = parameters.muxId.encode()
    if (number := ids.get(_MID_URI)) is not None and 1 <= number <= 14 and 1 <= len(mid) <= 16:
        body += bytes((number << 4 | len(mid) - 1,)) + mid
    if not body:
        return b"", None
    body += bytes(-len(body) % 4)
    return struct.pack("!HH", 0xBEDE, len(body) // 4) + body, send_time_at
