"""Opus packets to mono 16 kHz sound, with what the stream offers against loss.

By libopus itself, which has in-band FEC and decodes at 16 kHz right away; where that is not found
by PyAV, whose decoder can only conceal.
"""

from __future__ import annotations

import contextlib
from fractions import Fraction
from typing import Protocol

import av
import av.filter
import numpy as np
from numpy.typing import NDArray

from avatar_server.avatar import libopus
from avatar_server.avatar.pacing import AUDIO_BLOCK, AUDIO_RATE_HZ

SPEECH_RATE_HZ = 16_000
_RATIO = AUDIO_RATE_HZ // SPEECH_RATE_HZ
_CONCEALED = AUDIO_RATE_HZ // 10
"""The decoder fades what it makes up to nothing within 100 ms; the rest of a hole is silence."""


class SpeechDecoder(Protocol):
    """One stream. Lengths are in samples at 48 kHz, as Opus counts them; sound is int16, 16 kHz."""

    def decode(self, payload: bytes) -> NDArray[np.int16]:
        """A packet's sound; concealment where it is none."""
        ...

    def fill(self, samples: int, following: bytes) -> NDArray[np.int16]:
        """What stands in for a hole of `samples` before the packet `following`."""
        ...

    def close(self) -> None:
        """Free the decoder now: what holds this may lie about until the collector comes."""
        ...


def recovers_losses() -> bool:
    """Whether the redundancy in a stream can be used here, so that viewers should send it."""
    return libopus.load_libopus() is not None


def make_decoder() -> SpeechDecoder:
    """The best decoder that is here."""
    return FecDecoder() if recovers_losses() else ConcealingDecoder()


def packet_samples(payload: bytes) -> int:
    """Length of an Opus packet in samples at 48 kHz (RFC 6716 section 3.1); 0 where it has none."""
    if not payload:
        return 0
    frame, code = _frame_samples(payload), payload[0] & 3
    if code < 3:
        return frame * (1, 2, 2)[code]
    return frame * (payload[1] & 0x3F) if len(payload) > 1 else 0


def _frame_samples(payload: bytes) -> int:
    config = payload[0] >> 3
    if config < 12:
        return (480, 960, 1_920, 2_880)[config % 4]
    if config < 16:
        return (480, 960)[config % 2]
    return (120, 240, 480, 960)[config % 4]


class FecDecoder:
    """libopus: the last frame of a hole comes from the packet after it, if that carries it."""

    def __init__(self) -> None:
        """Raises `libopus.OpusError` where libopus is missing."""
        self._decoder = libopus.Decoder(SPEECH_RATE_HZ)
        self._begun = False

    def decode(self, payload: bytes) -> NDArray[np.int16]:
        try:
            sound = self._decoder.decode(payload)
        except libopus.OpusError:
            return self._conceal(packet_samples(payload) or AUDIO_BLOCK)
        self._begun = True
        return sound

    def fill(self, samples: int, following: bytes) -> NDArray[np.int16]:
        if not self._begun:
            return np.zeros(samples // _RATIO, np.int16)
        last = min(samples, _frame_samples(following)) if following else 0
        made = self._conceal(samples - last)
        if not last:
            return made
        try:
            recovered = self._decoder.recover(last // _RATIO, following)
        except libopus.OpusError:
            recovered = self._conceal(last)
        return _lengthened(np.concatenate((made, recovered)), samples // _RATIO)

    def close(self) -> None:
        del self._decoder

    def _conceal(self, samples: int) -> NDArray[np.int16]:
        if not self._begun:
            return np.zeros(samples // _RATIO, np.int16)
        try:
            made = self._decoder.conceal(min(samples, _CONCEALED) // _RATIO)
        except libopus.OpusError:
            made = np.zeros(0, np.int16)
        return _lengthened(made, samples // _RATIO)


class ConcealingDecoder:
    """PyAV: FFmpeg's libopus decoder, and a filter from 48 to 16 kHz."""

    def __init__(self) -> None:
        decoder = av.CodecContext.create("libopus", "r")
        decoder.sample_rate = AUDIO_RATE_HZ
        decoder.layout = "mono"
        decoder.format = "s16"
        self._decoder = decoder
        self._resampler = _resampler()
        self._samples = 0
        self._nothing = b""

    def decode(self, payload: bytes) -> NDArray[np.int16]:
        return self._resample(self._decode(payload))

    def fill(self, samples: int, following: bytes) -> NDArray[np.int16]:
        return self._resample(self._conceal(samples))

    def close(self) -> None:
        del self._decoder, self._resampler

    def _decode(self, payload: bytes) -> NDArray[np.int16]:
        """int16, shape (samples,), 48 kHz."""
        packet = av.Packet(payload)
        packet.time_base = Fraction(1, AUDIO_RATE_HZ)
        try:
            frames = self._decoder.decode(packet)
        except av.FFmpegError:
            return self._conceal(packet_samples(payload) or AUDIO_BLOCK)
        if payload:
            # A packet of nothing but this byte, whose frame is empty, is a lost one (RFC 6716
            # section 3.2.1): the way to the decoder's concealment that FFmpeg leaves open.
            self._nothing = bytes((payload[0] & 0xFC,))
        parts = [frame.to_ndarray().reshape(-1) for frame in frames]
        return np.concatenate(parts) if parts else np.zeros(0, np.int16)

    def _conceal(self, samples: int) -> NDArray[np.int16]:
        """What the decoder makes of a hole of `samples` at 48 kHz; silence before any sound."""
        made = np.zeros(samples, np.int16)
        at, end = 0, min(samples, _CONCEALED)
        while self._nothing and at < end:
            try:
                frames = self._decoder.decode(av.Packet(self._nothing))
            except av.FFmpegError:
                break
            for frame in frames:
                sound = frame.to_ndarray().reshape(-1)[: samples - at]
                made[at : at + len(sound)] = sound
                at += len(sound)
            if not frames:
                break
        return made

    def _resample(self, sound: NDArray[np.int16]) -> NDArray[np.int16]:
        if not len(sound):
            return sound
        frame = av.AudioFrame.from_ndarray(sound.reshape(1, -1), format="s16", layout="mono")
        frame.sample_rate = AUDIO_RATE_HZ
        frame.time_base = Fraction(1, AUDIO_RATE_HZ)
        frame.pts = self._samples
        self._samples += len(sound)
        self._resampler.push(frame)
        parts = []
        with contextlib.suppress(BlockingIOError):
            while True:
                parts.append(self._resampler.pull().to_ndarray().reshape(-1))
        return np.concatenate(parts) if parts else sound[:0]


def _lengthened(sound: NDArray[np.int16], samples: int) -> NDArray[np.int16]:
    return np.concatenate((sound, np.zeros(max(0, samples - len(sound)), np.int16)))


def _resampler() -> av.filter.Graph:
    """48 to 16 kHz. As `av.AudioResampler`, but that keeps two threads for each viewer."""
    graph = av.filter.Graph()
    graph.threads = 1
    source = graph.add_abuffer(
        sample_rate=AUDIO_RATE_HZ,
        format="s16",
        layout="mono",
        time_base=Fraction(1, AUDIO_RATE_HZ),
    )
    wanted = f"sample_rates={SPEECH_RATE_HZ}:sample_fmts=s16:channel_layouts=mono"
    graph.link_nodes(source, graph.add("aformat", wanted), graph.add("abuffersink")).configure()
    return graph
