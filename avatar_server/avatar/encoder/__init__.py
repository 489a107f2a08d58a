"""Video and audio encoders: one encode of each per session, whatever the number of viewers."""

from avatar_server.avatar.encoder.base import EncoderError, FrameRing, VideoEncoder
from avatar_server.avatar.encoder.h264 import H264Encoder
from avatar_server.avatar.encoder.h264_coding import require_encoder
from avatar_server.avatar.encoder.opus import OpusEncoder
from avatar_server.avatar.encoder.vp8 import Vp8Encoder

__all__ = [
    "EncoderError",
    "FrameRing",
    "H264Encoder",
    "OpusEncoder",
    "VideoEncoder",
    "Vp8Encoder",
    "require_encoder",
]
