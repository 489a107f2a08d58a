"""VP8 by libvpx through PyAV, for viewers that cannot decode H.264."""

from __future__ import annotations

from fractions import Fraction

import av
from av.video.codeccontext import VideoCodecContext
from av.video.frame import PictureType

from avatar_server.avatar.encoder.base import EncoderError, wrap_i420
from avatar_server.avatar.packets import EncodedVideo, packetize_vp8
from avatar_server.config import VideoSettings
from renderers.contract import I420Frame


class Vp8Encoder:
    """One libvpx encode in its fastest real-time mode.

    `static-thresh` lets still blocks be skipped before they are analysed, and `qmin` keeps the
    encoder from spending bits on a still picture without end.
    """

    def __init__(self, settings: VideoSettings) -> None:
        self._settings = settings
        self._context: VideoCodecContext | None = None
        self._sequence = 0

    def encode(self, frame: I420Frame, timestamp: int, keyframe: bool) -> EncodedVideo:
        if self._context is None:
            self._context = self._open(frame.width, frame.height)
        picture = wrap_i420(frame)
        picture.pts = timestamp
        picture.time_base = _TIME_BASE
        picture.pict_type = PictureType.I if keyframe else PictureType.NONE
        try:
            packets = self._context.encode(picture)
        except av.FFmpegError as error:
            self.close()
            raise EncoderError(f"libvpx failed: {error}") from error
        stream = b"".join(bytes(packet) for packet in packets)
        is_key = any(packet.is_keyframe for packet in packets)
        payloads = packetize_vp8(stream, self._sequence)
        sequence = self._sequence
        self._sequence += 1
        size = sum(map(len, payloads))
        return EncodedVideo("vp8", sequence, timestamp, is_key, payloads, size)

    def repeat(self, timestamp: int) -> EncodedVideo | None:
        return None

    def close(self) -> None:
        self._context = None

    def _open(self, width: int, height: int) -> VideoCodecContext:
        settings = self._settings
        try:
            context = av.CodecContext.create("libvpx", "w")
            context.width = width
            context.height = height
            context.pix_fmt = "yuv420p"
            context.framerate = Fraction(settings.fps, 1)
            context.time_base = _TIME_BASE
            context.bit_rate = settings.max_bitrate_bps
            context.gop_size = 3_000
            context.qmin = 20
            context.qmax = 56
            context.thread_count = 1
            context.options = {
                "cpu-used": "-16",
                "deadline": "realtime",
                "lag-in-frames": "0",
                "error-resilient": "1",
                "static-thresh": "1000",
                "bufsize": str(settings.max_bitrate_bps),
            }
            context.open()
        except (av.FFmpegError, ValueError) as error:
            raise EncoderError(f"libvpx cannot be opened for {width}x{height}: {error}") from error
        return context


_TIME_BASE = Fraction(1, 90_000)
