"""The media threads, with a sink in place of viewers."""

from __future__ import annotations

import asyncio
import threading
import time

import numpy as np
import pytest
from media_client import MovingBar, small, until
from numpy.typing import NDArray

from avatar_server.avatar.fanout import Fanout
from avatar_server.avatar.media import MediaEngine
from avatar_server.avatar.packets import EncodedAudio, EncodedVideo, Encoding
from avatar_server.avatar.thrift import Thrift
from avatar_server.capacity.overload import OverloadLevel
from avatar_server.clock import MonotonicClock
from renderers.contract import I420Frame

pytestmark = pytest.mark.anyio


class Sink:
    encodings = frozenset({Encoding("h264", "full")})

    def __init__(self) -> None:
        self.video: list[EncodedVideo] = []
        self.audio: list[EncodedAudio] = []

    def on_video(self, frame: EncodedVideo) -> None:
        self.video.append(frame)

    def on_audio(self, packet: EncodedAudio) -> None:
        self.audio.append(packet)


class Rig:
    def __init__(self, source: MovingBar) -> None:
        self.source = source
        self.sink = Sink()
        self.fanout = Fanout(asyncio.get_running_loop())
        self.engine = MediaEngine(small(), source, MonotonicClock(), self.fanout)
        self.fanout.attach(self.sink)
        self.engine.start()


async def test_a_stuck_event_loop_costs_frames_before_they_are_drawn() -> None:
    rig = Rig(MovingBar())
    try:
        await until(lambda: len(rig.sink.video) > 5)
        drawn = len(rig.source.drawn)
        time.sleep(1.0)  # noqa: ASYNC251
        assert len(rig.source.drawn) - drawn <= 6
        assert rig.engine.stats().late_frames >= 20
        seen = len(rig.sink.video)
        await until(lambda: len(rig.sink.video) > seen + 10)
        assert [frame.sequence for frame in rig.sink.video] == list(range(len(rig.sink.video)))
        assert rig.fanout.dropped == 0
    finally:
        rig.engine.close()


class Stalling(MovingBar):
    """Its sound is late once, by more than can be caught up."""

    stall_s = 0.0
    pulls: list[int]

    def __init__(self) -> None:
        super().__init__()
        self.pulls = []

    def pull_audio(self, samples: int) -> NDArray[np.int16]:
        if self.stall_s:
            wait, self.stall_s = self.stall_s, 0.0
            time.sleep(wait)
        self.pulls.append(samples)
        return super().pull_audio(samples)


async def test_sound_that_is_too_late_is_left_out_and_media_time_kept() -> None:
    source = Stalling()
    rig = Rig(source)
    try:
        await until(lambda: len(rig.sink.audio) > 10)
        source.stall_s = 0.6
        await until(lambda: rig.engine.stats().audio_skipped_ms > 0)
        await until(lambda: len(rig.sink.audio) > 30)
        skipped = rig.engine.stats().audio_skipped_ms
        assert skipped >= 400
        times = [packet.timestamp for packet in rig.sink.audio]
        steps = np.diff(times)
        assert not np.any(steps % 960)
        assert steps.max() // 48 >= 400
        # All that media time has passed over was pulled, sent or not.
        assert abs(source.samples / 48_000 - rig.engine.media_time()) < 0.3
    finally:
        rig.engine.close()


class Failing(MovingBar):
    def draw(self, media_time: float, frame: I420Frame) -> bool:
        raise RuntimeError("the renderer broke")


async def test_a_source_that_raises_is_seen_and_ends_both_threads() -> None:
    rig = Rig(Failing())
    try:
        await until(lambda: rig.engine.failed)
        await until(lambda: not [t for t in threading.enumerate() if t.name.startswith("media-")])
    finally:
        rig.engine.close()


async def test_close_ends_the_threads_and_a_second_start_is_refused() -> None:
    rig = Rig(MovingBar())
    with pytest.raises(RuntimeError, match="once"):
        rig.engine.start()
    rig.engine.close()
    assert not [t for t in threading.enumerate() if t.name.startswith("media-")]
    assert not rig.engine.failed


async def test_figures_of_the_last_seconds_are_reported() -> None:
    rig = Rig(MovingBar())
    try:
        await until(lambda: rig.engine.stats().frames > 40, 20)
        stats = rig.engine.stats()
        assert stats.fps > 5
        assert stats.render_ms > 0
        assert stats.encode_ms > 0
        assert stats.bitrate_bps > 1_000
        assert stats.keyframes >= 1
        assert stats.viewers == 1
    finally:
        rig.engine.close()


class Resting:
    """A conversation whose state a test sets."""

    state = "idle"

    def economise(self, *, partials: bool, brief: bool) -> None:
        pass


async def test_overload_takes_every_second_picture_and_coarsens_them_but_no_sound() -> None:
    rig = Rig(MovingBar())
    talk = Resting()
    settings = small().video
    thrift = Thrift(settings, rig.engine, talk)
    try:
        await until(lambda: len(rig.sink.video) > 10)
        before = len(rig.sink.video)
        thrift.set_level(OverloadLevel.NO_NEW_SESSIONS)
        # What was on its way is let pass; the coarser pictures begin with a keyframe.
        await until(lambda: any(frame.keyframe for frame in rig.sink.video[before:]))
        first = before + [frame.keyframe for frame in rig.sink.video[before:]].index(True)
        await until(lambda: len(rig.sink.video) > first + 15)
        assert rig.engine.video_settings.crf == settings.crf + 6
        period = 90_000 // settings.fps
        saved = [frame.timestamp for frame in rig.sink.video[first:]]
        assert all(timestamp % (2 * period) == 0 for timestamp in saved)
        # Spoken to, it is drawn at the full rate again, coarse as before.
        talk.state = "speaking"
        thrift.tick()
        whole = len(rig.sink.video)
        await until(
            lambda: any(f.timestamp % (2 * period) for f in rig.sink.video[whole:]),
        )
        assert rig.engine.video_settings.crf == settings.crf + 6
        thrift.set_level(OverloadLevel.NONE)
        assert rig.engine.video_settings == settings
        # Every block of sound was sent, but for those that this machine left out by itself.
        skipped = rig.engine.stats().audio_skipped_ms // 20
        numbers = [packet.timestamp // 960 for packet in rig.sink.audio]
        assert numbers[-1] - numbers[0] + 1 - len(numbers) <= skipped
    finally:
        rig.engine.close()
