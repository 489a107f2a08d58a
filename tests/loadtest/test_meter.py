"""The meter of one connection, fed with made-up packets as aiortc's receiver would."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from aiortc.rtp import RtcpSenderInfo, RtcpSrPacket, RtpPacket

from avatar_server.avatar.encoder import OpusEncoder
from avatar_server.config import AudioSettings
from avatar_server.loadtest.figures import av_offsets_ms
from avatar_server.loadtest.meter import Meter, audible_span
from avatar_server.loadtest.packet_microphone import encode_utterance
from avatar_server.loadtest.speech import utterance

WRAP = 2**32


class Receiver:
    """As much of aiortc's receiver as the meter takes hold of."""

    def __init__(self, codec: str) -> None:
        self._RTCRtpReceiver__jitter_buffer: Any = None
        self._RTCRtpReceiver__codecs = {96: SimpleNamespace(name=codec)}
        self.reports: list[object] = []

    async def _handle_rtcp_packet(self, packet: object) -> None:
        self.reports.append(packet)

    def take(self, **fields: Any) -> None:
        self._RTCRtpReceiver__jitter_buffer.add(RtpPacket(payload_type=96, **fields))

    def sender_report(self, ntp_s: float, rtp: int) -> None:
        info = RtcpSenderInfo(
            ntp_timestamp=int(ntp_s * 2**32), rtp_timestamp=rtp, packet_count=0, octet_count=0
        )
        asyncio.run(self._handle_rtcp_packet(RtcpSrPacket(ssrc=1, sender_info=info)))


class Hand:
    """A clock that is set by hand."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def attached(listen: bool = False) -> tuple[Meter, Hand, Receiver, Receiver]:
    clock = Hand()
    meter = Meter(listen=listen, clock=clock)
    video, audio = Receiver("H264"), Receiver("opus")
    meter.attach(video, "video")  # type: ignore[arg-type]
    meter.attach(audio, "audio")  # type: ignore[arg-type]
    return meter, clock, video, audio


def test_pictures_and_sound_of_one_moment_are_compared_by_the_senders_reports() -> None:
    meter, clock, video, audio = attached()
    # Both streams wrap on the way.
    video_base, audio_base = WRAP - 45_000, WRAP - 24_000
    for n in range(100):
        clock.now = n / 50 + 0.005
        audio.take(sequence_number=n, timestamp=(audio_base + 960 * n) % WRAP, payload=b"\1")
    for n in range(60):
        clock.now = n / 30 + 0.020
        payload = b"\x67" if n == 0 else b"\x61"
        stamp = (video_base + 3_000 * n) % WRAP
        video.take(sequence_number=n, timestamp=stamp, marker=1, payload=payload)
    assert meter.captured("video") == []
    video.sender_report(1_000.0, video_base)
    audio.sender_report(1_001.0, (audio_base + 48_000) % WRAP)
    assert len(video.reports) == 1
    offsets = av_offsets_ms(meter.captured("video"), meter.captured("audio"))
    assert len(offsets) == 60
    assert offsets == pytest.approx([15.0] * 60, abs=0.01)
    assert meter.captured("video")[0][0] == pytest.approx(1_000.0)
    assert meter.octets == 60


def test_sound_is_audible_when_it_arrives_and_silence_is_not() -> None:
    meter, clock, _, audio = attached(listen=True)
    times = np.arange(960 * 20) / 48_000
    tone = (8_000 * np.sin(2 * np.pi * 440 * times)).astype(np.int16)
    sound = np.concatenate([np.zeros(960 * 20, np.int16), tone, np.zeros(960 * 20, np.int16)])
    encoder = OpusEncoder(AudioSettings())
    for n, block in enumerate(sound.reshape(-1, 960)):
        packet = encoder.encode(block, n)
        if packet is not None:
            clock.now = 10 + n / 50
            audio.take(sequence_number=n, timestamp=960 * n, payload=packet.payload)
    first = meter.audible.first_after(0.0)
    assert first == pytest.approx(10.4, abs=0.02)
    assert meter.audible.stop_after(10.5, 0.25, until=11.2) == pytest.approx(10.8, abs=0.03)


def test_a_viewer_who_does_not_listen_decodes_nothing() -> None:
    meter, _, _, audio = attached(listen=False)
    audio.take(sequence_number=1, timestamp=0, payload=b"no opus at all")
    assert meter.audible.last is None
    assert list(meter.audio_pts) == [0]


def test_the_audible_part_of_a_piece_is_found() -> None:
    pcm = np.zeros(960, np.int16)
    assert audible_span(pcm) is None
    pcm[100], pcm[500] = -400, 400
    assert audible_span(pcm) == (100, 500)
    pcm[500] = -32_768
    assert audible_span(pcm) == (100, 500)


def test_an_utterance_is_encoded_whole_with_its_audible_part_known() -> None:
    pcm = np.zeros(48_000, np.int16)
    pcm[9_600:24_000] = 5_000
    encoded = encode_utterance(utterance("Hm.", pcm))
    assert len(encoded.packets) == pytest.approx(50, abs=1)
    assert encoded.voiced_start == pytest.approx(0.2)
    assert encoded.voiced_end == pytest.approx(0.5)
