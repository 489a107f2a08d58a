"""What a receiver makes of RTP times and sender reports over a day, in virtual time."""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any

import pytest
from aiortc import rtp

from avatar_server.avatar.pacing import AUDIO_BLOCK, AudioPacer, FramePacer, MediaTimeline
from avatar_server.avatar.sender import LeanSender
from avatar_server.clock import ManualClock

pytestmark = pytest.mark.anyio

DAY_S = 30 * 3_600
"""Past the wrap of 32-bit RTP times: after 13 h at 90 kHz, 25 h at 48 kHz."""


class Receiver:
    """A transport that reads what a sender sends as a receiver would."""

    state = "connected"

    def __init__(self) -> None:
        pair = SimpleNamespace(protocol=SimpleNamespace(transport=self), remote_addr=None)
        self.transport = SimpleNamespace(_connection=SimpleNamespace(_nominated={1: pair}))
        self._tx_srtp = SimpleNamespace(protect=lambda packet: packet)
        self.rtp_time = 0
        self.report: rtp.RtcpSenderInfo | None = None

    def sendto(self, packet: bytes, address: Any) -> None:
        self.rtp_time = struct.unpack("!I", packet[4:8])[0]

    async def _send_rtp(self, data: bytes) -> None:
        for packet in rtp.RtcpPacket.parse(data):
            if isinstance(packet, rtp.RtcpSrPacket):
                self.report = packet.sender_info

    def captured(self, rate_hz: int) -> float:
        """NTP time (s) of the last packet's first sample, by the last report (RFC 3550, 6.4.1)."""
        assert self.report is not None
        ticks = (self.rtp_time - self.report.rtp_timestamp) & 0xFFFF_FFFF
        ticks -= (ticks >> 31) << 32
        return self.report.ntp_timestamp / (1 << 32) + ticks / rate_hz


@pytest.mark.parametrize("fps", [30, 25, 7])
async def test_sound_and_picture_keep_the_same_clock_for_more_than_a_day(fps: int) -> None:
    clock = ManualClock(1_000.0)
    timeline = MediaTimeline.starting(clock.now())
    ends = {"video": Receiver(), "audio": Receiver()}
    senders = {}
    for kind, receiver in ends.items():
        senders[kind] = LeanSender(kind, receiver, timeline, clock, "stream")  # type: ignore[arg-type]
    frames, sound = FramePacer(fps), AudioPacer()
    looked = 0
    while clock.now() < 1_000.0 + DAY_S:
        # Reports come about once a second; each quarter of an hour one is looked at.
        for sender in senders.values():
            await sender._send_report()
        now = timeline.media_time(clock.now())
        frames.skip_to(now)
        tick, block = frames.take(now + 1 / fps), sound.take(now)
        assert tick is not None
        assert block is not None
        senders["video"].send_payload(b"picture", frames.timestamp(tick.number), True)
        senders["audio"].send_payload(b"sound", block.number * AUDIO_BLOCK, False)
        picture_s = ends["video"].captured(90_000) - timeline.ntp_epoch
        sound_s = ends["audio"].captured(48_000) - timeline.ntp_epoch
        # Each is when it was due, to a tick of its clock, and so they agree with one another.
        assert abs(picture_s - tick.number / fps) < 2e-5
        assert abs(sound_s - block.number * 0.02) < 2e-5
        looked += 1
        clock.advance(900.0 - clock.now() % 0.37)
    assert looked > 100


async def test_reports_are_no_further_off_when_the_loop_sends_them_late() -> None:
    clock = ManualClock(5.0)
    timeline = MediaTimeline.starting(clock.now())
    receiver = Receiver()
    sender = LeanSender("video", receiver, timeline, clock, "stream")  # type: ignore[arg-type]
    for late_s in (0.0, 0.4, 3.0):
        clock.advance(late_s)
        await sender._send_report()
        sender.send_payload(b"picture", 90_000, True)
        assert abs(receiver.captured(90_000) - timeline.ntp_epoch - 1.0) < 2e-5
