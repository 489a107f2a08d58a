"""H.264: constrained baseline, without delay, by x264 on one thread or by NVENC."""

from __future__ import annotations

from av.video.codeccontext import VideoCodecContext

from avatar_server.avatar.encoder.base import EncoderError
from avatar_server.avatar.encoder.h264_coding import GENTLE_PICTURES, H264Name, open_h264
from avatar_server.avatar.encoder.libav import encode_picture
from avatar_server.avatar.encoder.rate_guard import RateGuard
from avatar_server.avatar.encoder.repeat import PictureRepeater
from avatar_server.avatar.packets import EncodedVideo, Layer, packetize_h264
from avatar_server.config import VideoSettings
from renderers.contract import I420Frame


class H264Encoder:
    """One H.264 encode: constant quality under a cap.

    A still face then costs almost no bits, where a constant bitrate would spend them all. As long
    as the cap is out of reach nothing is spent on keeping it; should the pictures come to need
    more, the encoder is opened anew, on a keyframe, as one that keeps it.
    """

    def __init__(self, settings: VideoSettings, layer: Layer = "full") -> None:
        self._settings = settings
        self._layer = layer
        self._context: VideoCodecContext | None = None
        self._name: H264Name | None = None
        self._repeater = PictureRepeater()
        self._guard = RateGuard(settings.max_bitrate_bps)
        self._sequence = 0
        self._refining = 0

    @property
    def name(self) -> H264Name | None:
        """libav's name of the encoder in use; none before the first picture."""
        return self._name

    @property
    def capped(self) -> bool:
        """Whether the encoder works at keeping the cap."""
        return self._guard.capped

    def configure(self, settings: VideoSettings) -> None:
        """Use other settings from the next frame on, which becomes a keyframe."""
        if settings != self._settings:
            if settings.max_bitrate_bps != self._settings.max_bitrate_bps:
                self._guard = RateGuard(settings.max_bitrate_bps)
            self._settings = settings
            self.close()

    def encode(
        self, frame: I420Frame, timestamp: int, keyframe: bool, gentle: bool = False
    ) -> EncodedVideo:
        if self._guard.must_change(at_keyframe=keyframe or self._context is None):
            self._guard.change()
            self.close()
        gentle = gentle and not self._guard.capped
        if keyframe and gentle and self._name != "h264_nvenc":
            # x264 is told of its first pictures' quantisers when it is opened, and only then.
            self.close()
        if self._context is None:
            self._refining = GENTLE_PICTURES if gentle else 0
            size = (frame.width, frame.height)
            self._context, self._name = open_h264(self._settings, *size, self._guard.capped, gentle)
            keyframe = True
        try:
            stream, is_key = encode_picture(self._context, frame, timestamp, keyframe)
        except EncoderError:
            self.close()
            raise
        self._refining = max(0, self._refining - 1)
        return self._packed(self._repeater.follow(stream), timestamp, is_key)

    def repeat(self, timestamp: int) -> EncodedVideo | None:
        """The last picture once more, without work; `None` where it has to be encoded."""
        if self._context is None or self._refining or not self._repeater.ready:
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
        # NVENC keeps the cap by itself, at no cost of ours.
        if self._name == "libx264":
            self._guard.add(8 * size, timestamp / 90_000)
        return EncodedVideo("h264", sequence, timestamp, is_key, payloads, size, self._layer)
