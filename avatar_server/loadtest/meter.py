"""What one WebRTC connection received, noted packet by packet.

A meter stands where aiortc keeps packets for its decoders: reports, retransmission requests and
bandwidth estimates go on as in any viewer, but pictures are not decoded, since decoding 720p costs
as much CPU as the server spends on making it. Sound is decoded only where somebody listens.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import av
import numpy as np
from aiortc import RTCRtpReceiver
from aiortc.rtp import RtcpSrPacket, RtpPacket
from numpy.typing import NDArray

from avatar_server.avatar.rtc_internals import take_rtp
from avatar_server.loadtest.figures import AudibleTimes
from avatar_server.loadtest.received import AUDIBLE
from avatar_server.loadtest.streams import (
    AUDIO_CLOCK_HZ,
    VIDEO_CLOCK_HZ,
    Packet,
    PictureAssembler,
    Unwrap,
    starts_keyframe,
)


class Meter:
    """The series of one connection. `clock` gives the arrival times, in seconds.

    `listen`: decode the sound and note when it is audible (`audible`); `on_sound` also gets it,
    as (arrival, int16 mono 48 kHz).
    """

    def __init__(
        self,
        *,
        listen: bool,
        on_sound: Callable[[float, NDArray[np.int16]], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.shown = array("d")
        self.pts = array("q")
        self.octets = 0
        self.audio_pts = array("q")
        self.audio_arrived = array("d")
        self.audible = AudibleTimes()
        self.last_packet: float | None = None
        self._clock = clock
        self._pictures = PictureAssembler()
        self._video_origin: int | None = None
        self._audio_time = Unwrap(32)
        self._audio_origin: int | None = None
        self._reports: dict[str, tuple[float, int]] = {}
        self._on_sound = on_sound
        self._decoder = _opus_decoder() if listen else None

    def attach(self, receiver: RTCRtpReceiver, kind: str) -> None:
        """Take the packets of `receiver` ("audio" or "video"); before the answer is set."""
        take_rtp(receiver, self._on_video if kind == "video" else self._on_audio)
        handle = receiver._handle_rtcp_packet

        async def note(packet: Any) -> None:
            if isinstance(packet, RtcpSrPacket):
                info = packet.sender_info
                self._reports[kind] = (info.ntp_timestamp / 2**32, info.rtp_timestamp)
            await handle(packet)

        receiver._handle_rtcp_packet = note  # type: ignore[method-assign]

    @property
    def packets_lost(self) -> int:
        """Packets of video that never came."""
        return self._pictures.lost

    def captured(self, kind: str) -> list[tuple[float, float]]:
        """(capture time by the sender's reports, arrival) of each picture or piece of sound.

        Empty before the first report.
        """
        report = self._reports.get(kind)
        video = kind == "video"
        origin = self._video_origin if video else self._audio_origin
        if report is None or origin is None:
            return []
        ntp, rtp = report
        rate = VIDEO_CLOCK_HZ if video else AUDIO_CLOCK_HZ
        series = (self.pts, self.shown) if video else (self.audio_pts, self.audio_arrived)
        # The report's timestamp has wrapped as often as the stream: by the nearest distance.
        last = series[0][-1] if series[0] else 0
        behind = (rtp - origin - last) % 2**32
        of_report = last + (behind - 2**32 if behind >= 2**31 else behind)
        return [
            (ntp + (pts - of_report) / rate, arrived) for pts, arrived in zip(*series, strict=True)
        ]

    # --- inside -----------------------------------------------------------------------------

    def _on_video(self, packet: RtpPacket, codec: str) -> None:
        now = self.last_packet = self._clock()
        if self._video_origin is None:
            self._video_origin = packet.timestamp
        self.octets += len(packet.payload)
        noted = Packet(
            packet.sequence_number,
            packet.timestamp,
            bool(packet.marker),
            starts_keyframe(codec, packet.payload),
            len(packet.payload),
            now,
        )
        for picture in self._pictures.add(noted):
            self.shown.append(picture.shown)
            self.pts.append(picture.pts)

    def _on_audio(self, packet: RtpPacket, codec: str) -> None:
        now = self.last_packet = self._clock()
        pts = self._audio_time(packet.timestamp)
        if self._audio_origin is None:
            self._audio_origin = pts
        self.audio_pts.append(pts - self._audio_origin)
        self.audio_arrived.append(now)
        if self._decoder is not None and packet.payload:
            self._hear(now, packet.payload)

    def _hear(self, now: float, payload: bytes) -> None:
        assert self._decoder is not None
        packet = av.Packet(payload)
        packet.time_base = Fraction(1, AUDIO_CLOCK_HZ)
        try:
            frames = self._decoder.decode(packet)
        except av.FFmpegError:
            return
        for frame in frames:
            pcm = frame.to_ndarray().reshape(-1)
            if self._on_sound is not None:
                self._on_sound(now, pcm)
            if span := audible_span(pcm):
                first, last = span
                self.audible.add(now + first / AUDIO_CLOCK_HZ, now + last / AUDIO_CLOCK_HZ)


def audible_span(pcm: NDArray[np.int16]) -> tuple[int, int] | None:
    """The first and last audible sample of `pcm`; None for silence."""
    loud = np.flatnonzero((pcm >= AUDIBLE) | (pcm <= -AUDIBLE))
    return (int(loud[0]), int(loud[-1])) if loud.size else None


def _opus_decoder() -> Any:
    decoder = av.CodecContext.create("libopus", "r")
    decoder.sample_rate = AUDIO_CLOCK_HZ
    decoder.layout = "mono"
    decoder.format = "s16"
    return decoder
