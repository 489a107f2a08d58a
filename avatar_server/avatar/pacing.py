"""When frames and audio blocks are due: pure arithmetic on one media epoch.

Media time is seconds since the epoch. Video frame k is due at k / fps, audio sample n at
n / 48000; both are computed from the index, never by adding periods, so nothing drifts however
long a session runs.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import NamedTuple

VIDEO_CLOCK_HZ = 90_000
AUDIO_RATE_HZ = 48_000
AUDIO_BLOCK = 960
"""Samples of one Opus packet: 20 ms."""
NTP_UNIX_OFFSET_S = 2_208_988_800
"""Seconds from 1900 (NTP) to 1970 (Unix), RFC 5905 section 6."""


@dataclass(frozen=True, slots=True)
class MediaTimeline:
    """Ties media time to the monotonic clock and to NTP time, once, for all streams.

    Sender reports of audio and video are computed from the same two numbers, so that the
    receiver's idea of when both were captured agrees exactly.
    """

    epoch: float
    ntp_epoch: float

    @classmethod
    def starting(cls, now: float) -> MediaTimeline:
        """A timeline whose media time 0 is `now` on the monotonic clock."""
        return cls(epoch=now, ntp_epoch=time.time() + NTP_UNIX_OFFSET_S)

    def media_time(self, now: float) -> float:
        return now - self.epoch

    def ntp(self, media_time: float) -> int:
        """64-bit NTP timestamp (32.32 fixed point) of a media time."""
        return int((self.ntp_epoch + media_time) * (1 << 32)) & 0xFFFF_FFFF_FFFF_FFFF


class FrameTick(NamedTuple):
    """A frame to make now; `dropped` frames before it are too late to be made at all."""

    number: int
    dropped: int


class FramePacer:
    """Which video frame to make at which time. Late frames are dropped before any work is done."""

    def __init__(self, fps: int) -> None:
        self.fps = fps
        self._next = 0

    def due(self) -> float:
        """Media time of the next frame."""
        return self._next / self.fps

    def take(self, media_time: float) -> FrameTick | None:
        """The frame to make at `media_time`, or `None` before the next one is due.

        A frame may start up to one period late; beyond that the newest frame already due is
        made instead and the ones before it are counted as dropped.
        """
        newest = int(media_time * self.fps + 1e-6)
        if newest < self._next:
            return None
        index = self._next if newest - self._next <= 1 else newest
        dropped = index - self._next
        self._next = index + 1
        return FrameTick(index, dropped)

    def skip_to(self, media_time: float) -> None:
        """Go on from `media_time` without counting what lies before it (nobody is watching)."""
        self._next = max(self._next, int(media_time * self.fps + 1e-6))

    def timestamp(self, index: int) -> int:
        """RTP timestamp (90 kHz, not yet wrapped) of a frame."""
        return index * VIDEO_CLOCK_HZ // self.fps


class AudioTick(NamedTuple):
    """An audio block to make now, after leaving out `skipped` blocks."""

    number: int
    skipped: int


class AudioPacer:
    """Which 20 ms audio block to make at which time.

    After a stall, blocks are made in a burst as long as the lag is within `catch_up_s`: the
    receiver's jitter buffer takes them in and plays a little faster for a while, so no word is
    lost. A longer lag is jumped over, since sending it all would delay what follows.
    """

    def __init__(self, catch_up_s: float = 0.2) -> None:
        self.catch_up_blocks = max(1, round(catch_up_s * AUDIO_RATE_HZ / AUDIO_BLOCK))
        self._next = 0

    def due(self) -> float:
        """Media time of the next block's first sample."""
        return self._next * AUDIO_BLOCK / AUDIO_RATE_HZ

    def take(self, media_time: float) -> AudioTick | None:
        """The block to make at `media_time`, or `None` before the next one is due."""
        newest = int(media_time * AUDIO_RATE_HZ / AUDIO_BLOCK + 1e-6)
        if newest < self._next:
            return None
        index = self._next if newest - self._next <= self.catch_up_blocks else newest
        skipped = index - self._next
        self._next = index + 1
        return AudioTick(index, skipped)


class KeyframePolicy:
    """When a requested keyframe is made: many requests are answered by one, not too often."""

    def __init__(self, min_interval_s: float, max_interval_s: float) -> None:
        self.min_interval_s = min_interval_s
        self.max_interval_s = max_interval_s
        self._last: float | None = None
        self._requested = True

    def request(self) -> None:
        self._requested = True

    def made(self, media_time: float) -> None:
        """A keyframe was made at `media_time` whatever was asked: an encoder has begun."""
        self._last = media_time
        self._requested = False

    def take(self, media_time: float) -> bool:
        """Whether the frame at `media_time` is to be a keyframe."""
        since = None if self._last is None else media_time - self._last
        wanted = self._requested and (since is None or since >= self.min_interval_s - 1e-6)
        if wanted or since is None or since >= self.max_interval_s:
            self.made(media_time)
            return True
        return False
