"""Video encoders of libav through PyAV: opening one, and giving it a picture."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

import av
from av.video.codeccontext import VideoCodecContext
from av.video.frame import PictureType

from avatar_server.avatar.encoder.base import EncoderError, wrap_i420
from renderers.contract import I420Frame

_TIME_BASE = Fraction(1, 90_000)


@dataclass(frozen=True, slots=True)
class Coding:
    """What is asked of libav's encoder `name`; the options are the encoder's own."""

    name: str
    options: Mapping[str, str]
    fps: int
    bit_rate: int | None = None
    gop_size: int | None = None
    quantisers: tuple[int, int] | None = None
    """Least and greatest."""
    advice: str = field(default="", compare=False)
    """What to do where it cannot be opened."""


def open_encoder(coding: Coding, width: int, height: int) -> VideoCodecContext:
    """An open encoder on one thread for I420 pictures of that size, BT.709 of limited range.

    Raises `EncoderError` where the encoder is missing or refuses.
    """
    try:
        context = av.CodecContext.create(coding.name, "w")
        assert isinstance(context, VideoCodecContext)
        context.width = width
        context.height = height
        context.pix_fmt = "yuv420p"
        context.framerate = Fraction(coding.fps, 1)
        context.time_base = _TIME_BASE
        context.thread_count = 1
        context.color_primaries = 1
        context.color_trc = 1
        context.colorspace = 1
        context.color_range = 1
        if coding.bit_rate is not None:
            context.bit_rate = coding.bit_rate
        if coding.gop_size is not None:
            context.gop_size = coding.gop_size
        if coding.quantisers is not None:
            context.qmin, context.qmax = coding.quantisers
        context.options = dict(coding.options)
        context.open()
    except (av.FFmpegError, ValueError) as error:
        told = f"{coding.name} cannot be opened for {width}x{height}: {error}"
        raise EncoderError(f"{told}. {coding.advice}" if coding.advice else told) from error
    return context


def encode_picture(
    context: VideoCodecContext, frame: I420Frame, timestamp: int, keyframe: bool
) -> tuple[bytes, bool]:
    """The picture's bitstream, and whether it is a keyframe. Raises `EncoderError`.

    `timestamp`: 90 kHz ticks. The encoder keeps no hold on `frame`.
    """
    picture = wrap_i420(frame)
    picture.pts = timestamp
    picture.time_base = _TIME_BASE
    picture.pict_type = PictureType.I if keyframe else PictureType.NONE
    try:
        packets = context.encode(picture)
    except av.FFmpegError as error:
        raise EncoderError(f"{context.name} failed: {error}") from error
    stream = b"".join(bytes(packet) for packet in packets)
    return stream, any(packet.is_keyframe for packet in packets)
