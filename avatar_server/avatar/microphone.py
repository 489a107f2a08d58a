"""A viewer's microphone: RTP packets in, mono 16 kHz pieces of 20 ms out, without added delay.

What is lost is concealed by the decoder's own packet loss concealment. In-band FEC is not used:
FFmpeg's libopus decoder, which PyAV has, never asks for it, so that the SDP answer does not either,
and browsers spend no bits on it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import NamedTuple

import av
import av.filter
import numpy as np
from numpy.typing import NDArray

from avatar_server.avatar.pacing import AUDIO_BLOCK, AUDIO_RATE_HZ

SPEECH_RATE_HZ = 16_000
PIECE = 320
"""Samples of a 20 ms piece at 16 kHz."""

_MAX_HELD = 3
"""Packets that arrive after a missing one before it is given up: 60 ms of patience."""
_MAX_GAP = AUDIO_RATE_HZ
"""Longer holes in a stream's time are a restart, not a loss: no more than 1 s is filled."""
_RESTART = 200
"""A jump of so many packets is a new stream."""
_CONCEALED = AUDIO_RATE_HZ // 10
"""The decoder fades what it makes up to nothing within 100 ms; the rest of a hole is silence."""


def packet_samples(payload: bytes) -> int:
    """Length of an Opus packet in samples at 48 kHz (RFC 6716 section 3.1); 0 where it has none."""
    if not payload:
        return 0
    config, code = payload[0] >> 3, payload[0] & 3
    if config < 12:
        frame = (480, 960, 1_920, 2_880)[config % 4]
    elif config < 16:
        frame = (480, 960)[config % 2]
    else:
        frame = (120, 240, 480, 960)[config % 4]
    if code < 3:
        return frame * (1, 2, 2)[code]
    return frame * (payload[1] & 0x3F) if len(payload) > 1 else 0


class Gap(NamedTuple):
    """Sound that never came: its length in samples at 48 kHz."""

    samples: int


class ReorderBuffer:
    """Puts packets in order. One in its place goes on at once; a missing one is waited for
    until three later ones have come. Pure logic; sequence numbers and time stamps may wrap.
    """

    def __init__(self, length: Callable[[bytes], int] = packet_samples) -> None:
        """`length` gives a payload's samples at 48 kHz."""
        self._length = length
        self._next: int | None = None
        self._next_time = 0
        self._held: dict[int, tuple[int, bytes]] = {}
        self.lost = 0

    def push(self, sequence: int, timestamp: int, payload: bytes) -> list[bytes | Gap]:
        """What can go on now that this packet is here, in order."""
        if self._next is None or abs(_difference(sequence, self._next, 16)) > _RESTART:
            self._held.clear()
            self._next, self._next_time = sequence, timestamp
        if _difference(sequence, self._next, 16) < 0:
            return []
        self._held[sequence] = (timestamp, payload)
        ready = self._release()
        while len(self._held) >= _MAX_HELD:
            at = self._next
            following = min(self._held, key=lambda number: _difference(number, at, 16))
            self.lost += _difference(following, at, 16)
            self._next = following
            ready += self._release()
        return ready

    def _release(self) -> list[bytes | Gap]:
        ready: list[bytes | Gap] = []
        while self._next is not None and (item := self._held.pop(self._next, None)) is not None:
            timestamp, payload = item
            missing = _difference(timestamp, self._next_time, 32)
            if missing > 0:
                ready.append(Gap(min(missing, _MAX_GAP)))
            ready.append(payload)
            self._next = (self._next + 1) & 0xFFFF
            self._next_time = (timestamp + self._length(payload)) & 0xFFFF_FFFF
        return ready


class Microphone:
    """Orders, decodes, resamples and cuts one viewer's Opus packets.

    Any mode of Opus is taken: narrow to full band, 2.5 to 120 ms a packet, mono or stereo (which
    the decoder mixes down). Sound beyond full scale stays at full scale.
    """

    def __init__(self) -> None:
        self._buffer = ReorderBuffer()
        decoder = av.CodecContext.create("libopus", "r")
        decoder.sample_rate = AUDIO_RATE_HZ
        decoder.layout = "mono"
        decoder.format = "s16"
        self._decoder = decoder
        self._resampler = _resampler()
        self._rest = np.zeros(0, np.int16)
        self._samples = 0
        self._nothing = b""

    @property
    def lost(self) -> int:
        """Packets given up so far."""
        return self._buffer.lost

    def close(self) -> None:
        """Free the decoder now: what holds this may lie about until the collector comes."""
        del self._decoder, self._resampler

    def feed(self, sequence: int, timestamp: int, payload: bytes) -> Iterator[NDArray[np.int16]]:
        """The pieces (int16, shape (320,), 20 ms) that are complete with this packet."""
        for item in self._buffer.push(sequence, timestamp, payload):
            sound = self._conceal(item.samples) if isinstance(item, Gap) else self._decode(item)
            joined = np.concatenate((self._rest, self._resample(sound)))
            whole = len(joined) // PIECE * PIECE
            self._rest = joined[whole:]
            for start in range(0, whole, PIECE):
                yield joined[start : start + PIECE]

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


def _difference(a: int, b: int, bits: int) -> int:
    """a - b of counters that wrap: within half their range either way."""
    half = 1 << (bits - 1)
    return ((a - b + half) & ((1 << bits) - 1)) - half
