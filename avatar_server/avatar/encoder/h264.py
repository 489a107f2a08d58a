"""H.264 by x264 through PyAV: constrained baseline, one thread, no delay."""

from __future__ import annotations

import math
from fractions import Fraction

import av
from av.video.codeccontext import VideoCodecContext
from av.video.frame import PictureType

from avatar_server.avatar.encoder.base import EncoderError, wrap_i420
from avatar_server.avatar.encoder.repeat import PictureRepeater
from avatar_server.avatar.packets import EncodedVideo, packetize_h264
from avatar_server.config import VideoSettings
from renderers.contract import I420Frame


class H264Encoder:
    """One x264 encode.

    Constant quality (CRF) with a rate cap (VBV): a still face then costs almost no bits, where a
    constant bitrate would spend them all. The buffer holds half a second at the cap, which lets
    a keyframe be several times larger than the frames around it.
    """

    def __init__(self, settings: VideoSettings) -> None:
        self._settings = settings
        self._context: VideoCodecContext | None = None
        self._repeater = PictureRepeater()
        self._sequence = 0

    @property
    def settings(self) -> VideoSettings:
        return self._settings

    def configure(self, settings: VideoSettings) -> None:
        """Use other settings from the next frame on, which becomes a keyframe."""
        if settings != self._settings:
            self._settings = settings
            self.close()

    def encode(self, frame: I420Frame, timestamp: int, keyframe: bool) -> EncodedVideo:
        if self._context is None:
            self._context = self._open(frame.width, frame.height)
            keyframe = True
        picture = wrap_i420(frame)
        picture.pts = timestamp
        picture.time_base = _TIME_BASE
        picture.pict_type = PictureType.I if keyframe else PictureType.NONE
        try:
            packets = self._context.encode(picture)
        except av.FFmpegError as error:
            self.close()
            raise EncoderError(f"x264 failed: {error}") from error
        stream = self._repeater.follow(b"".join(bytes(packet) for packet in packets))
        return self._packed(stream, timestamp, any(packet.is_keyframe for packet in packets))

    def repeat(self, timestamp: int) -> EncodedVideo | None:
        """The last picture once more, without work; `None` where it has to be encoded."""
        if self._context is None or not self._repeater.ready:
            return None
        return self._packed(self._repeater.repeat(), timestamp, False)

    def close(self) -> None:
        self._context = None
        self._repeater = PictureRepeater()

    def _packed(self, stream: bytes, timestamp: int, is_key: bool) -> EncodedVideo:
        payloads = packetize_h264(stream)
        sequence = self._sequence
        self._sequence += 1
        size = sum(map(len, payloads))
        return EncodedVideo("h264", sequence, timestamp, is_key, payloads, size)

    def _open(self, width: int, height: int) -> VideoCodecContext:
        settings = self._settings
        cap = settings.max_bitrate_bps
        parameters = {
            # Keyframes come only when asked for: the session decides, not the encoder.
            "keyint": "infinite",
            "scenecut": "0",
            # Parameter sets before every IDR, so that a viewer can begin there.
            "repeat-headers": "1",
            # More references cost time and buy nothing on a talking head.
            "ref": "1",
            "force-cfr": "1",
            # Without a floor a still picture is refined for ever: 4 times the bits, unseen.
            "qpmin": str(max(_MIN_QUANTISER, math.floor(settings.crf) - 1)),
        }
        try:
            context = av.CodecContext.create("libx264", "w")
            context.width = width
            context.height = height
            context.pix_fmt = "yuv420p"
            context.framerate = Fraction(settings.fps, 1)
            context.time_base = _TIME_BASE
            context.thread_count = 1
            context.color_primaries = 1
            context.color_trc = 1
            context.colorspace = 1
            context.color_range = 1
            context.options = {
                "preset": settings.preset,
                "tune": "zerolatency",
                # As an option: libav's own profile field does not reach x264's.
                "profile": "baseline",
                "crf": f"{settings.crf:g}",
                "maxrate": str(cap),
                "bufsize": str(cap // 2),
                "forced-idr": "1",
                "x264-params": ":".join(f"{key}={value}" for key, value in parameters.items()),
            }
            context.open()
        except (av.FFmpegError, ValueError) as error:
            raise EncoderError(
                f"x264 cannot be opened for {width}x{height} (preset {settings.preset}): {error}"
            ) from error
        return context


_TIME_BASE = Fraction(1, 90_000)
_MIN_QUANTISER = 10
"""Below it nothing is gained that 8 bits can show."""
