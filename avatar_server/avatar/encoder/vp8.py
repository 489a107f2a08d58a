"""VP8 by libvpx, for viewers that cannot decode H.264."""

from __future__ import annotations

from av.video.codeccontext import VideoCodecContext

from avatar_server.avatar.encoder.base import EncoderError
from avatar_server.avatar.encoder.libav import Coding, encode_picture, open_encoder
from avatar_server.avatar.packets import EncodedVideo, Layer, packetize_vp8
from avatar_server.config import VideoSettings
from renderers.contract import I420Frame


class Vp8Encoder:
    """One libvpx encode in its fastest real-time mode.

    `static-thresh` lets still blocks be skipped before they are analysed, and `qmin` keeps the
    encoder from spending bits on a still picture without end.
    """

    def __init__(self, settings: VideoSettings, layer: Layer = "full") -> None:
        self._settings = settings
        self._layer = layer
        self._context: VideoCodecContext | None = None
        self._sequence = 0

    def configure(self, settings: VideoSettings) -> None:
        """Use another cap from the next frame on, which becomes a keyframe; the rest is x264's."""
        changed = settings.max_bitrate_bps != self._settings.max_bitrate_bps
        self._settings = settings
        if changed:
            self.close()

    def encode(
        self, frame: I420Frame, timestamp: int, keyframe: bool, gentle: bool = False
    ) -> EncodedVideo:
        if self._context is None:
            self._context = open_encoder(_coding(self._settings), frame.width, frame.height)
        try:
            stream, is_key = encode_picture(self._context, frame, timestamp, keyframe)
        except EncoderError:
            self.close()
            raise
        payloads = packetize_vp8(stream, self._sequence)
        sequence = self._sequence
        self._sequence += 1
        size = sum(map(len, payloads))
        return EncodedVideo("vp8", sequence, timestamp, is_key, payloads, size, self._layer)

    def repeat(self, timestamp: int) -> EncodedVideo | None:
        return None

    def close(self) -> None:
        self._context = None


def _coding(settings: VideoSettings) -> Coding:
    options = {
        "cpu-used": "-16",
        "deadline": "realtime",
        "lag-in-frames": "0",
        "error-resilient": "1",
        "static-thresh": "1000",
        "bufsize": str(settings.max_bitrate_bps),
    }
    return Coding(
        "libvpx",
        options,
        settings.fps,
        bit_rate=settings.max_bitrate_bps,
        gop_size=3_000,
        quantisers=(20, 56),
    )
