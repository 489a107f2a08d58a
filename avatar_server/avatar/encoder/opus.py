"""Opus: 20 ms packets of mono speech, by libopus itself or, where that is not found, by PyAV."""

from __future__ import annotations

from fractions import Fraction
from typing import Protocol

import av
import numpy as np
from av.audio.codeccontext import AudioCodecContext
from numpy.typing import NDArray

from avatar_server.avatar import libopus
from avatar_server.avatar.encoder.base import EncoderError
from avatar_server.avatar.pacing import AUDIO_BLOCK, AUDIO_RATE_HZ
from avatar_server.avatar.packets import EncodedAudio
from avatar_server.config import AudioSettings

_COMPLEXITY = 1
"""Of 0..10. Read speech at 48 kbit/s comes back as near to what it was (log-spectral distance
5.9 dB) with 1 as with 3, 5 or 10, and 5 costs twice the CPU."""
_TIME_BASE = Fraction(1, AUDIO_RATE_HZ)


class _Coder(Protocol):
    def encode(self, pcm: NDArray[np.int16], index: int) -> EncodedAudio | None: ...


class OpusEncoder:
    """One Opus encode. WebRTC signals two channels, but a mono packet is decoded by everyone."""

    def __init__(self, settings: AudioSettings) -> None:
        """Raises `EncoderError` where there is no libopus at all."""
        native = libopus.load_libopus() is not None
        self._coder: _Coder = _Native(settings) if native else _Pyav(settings)

    def encode(self, pcm: NDArray[np.int16], index: int) -> EncodedAudio | None:
        """The packet of 20 ms block `index`. `pcm`: int16, shape (960,), mono 48 kHz.

        Its timestamp allows for the encoder's look-ahead, so that sound and picture of one media
        time are shown together. Raises `EncoderError`.
        """
        return self._coder.encode(pcm, index)


def _expected_loss(settings: AudioSettings) -> int:
    return settings.expected_loss_percent if settings.fec else 0


class _Native:
    def __init__(self, settings: AudioSettings) -> None:
        try:
            self._encoder = libopus.Encoder(
                AUDIO_RATE_HZ,
                settings.bitrate_bps,
                complexity=_COMPLEXITY,
                fec=settings.fec,
                expected_loss_percent=_expected_loss(settings),
            )
        except libopus.OpusError as error:
            raise EncoderError(str(error)) from error

    def encode(self, pcm: NDArray[np.int16], index: int) -> EncodedAudio:
        try:
            payload = self._encoder.encode(pcm)
        except libopus.OpusError as error:
            raise EncoderError(f"block {index}: {error}") from error
        return EncodedAudio(index * AUDIO_BLOCK - self._encoder.lookahead, payload)


class _Pyav:
    def __init__(self, settings: AudioSettings) -> None:
        try:
            context = av.CodecContext.create("libopus", "w")
            context.sample_rate = AUDIO_RATE_HZ
            context.layout = "mono"
            context.format = "s16"
            context.bit_rate = settings.bitrate_bps
            context.time_base = _TIME_BASE
            context.options = {
                "application": "voip",
                "frame_duration": "20",
                "compression_level": str(_COMPLEXITY),
                "fec": "1" if settings.fec else "0",
                "packet_loss": str(_expected_loss(settings)),
            }
            context.open()
        except (av.FFmpegError, ValueError) as error:
            raise EncoderError(f"libopus cannot be opened: {error}") from error
        self._context: AudioCodecContext = context

    def encode(self, pcm: NDArray[np.int16], index: int) -> EncodedAudio | None:
        frame = av.AudioFrame.from_ndarray(pcm.reshape(1, AUDIO_BLOCK), format="s16", layout="mono")
        frame.sample_rate = AUDIO_RATE_HZ
        frame.time_base = _TIME_BASE
        frame.pts = index * AUDIO_BLOCK
        try:
            packets = self._context.encode(frame)
        except av.FFmpegError as error:
            raise EncoderError(f"libopus could not encode block {index}: {error}") from error
        if not packets:
            return None
        packet = packets[0]
        timestamp = packet.pts if packet.pts is not None else index * AUDIO_BLOCK
        return EncodedAudio(timestamp, bytes(packet))
