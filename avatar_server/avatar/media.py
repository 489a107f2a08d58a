"""The media engine of a session: draws, encodes and publishes on threads of its own.

One thread makes pictures and takes the sound along, one makes sound that would be late otherwise
(`sound`); both follow absolute deadlines on one media epoch. The event loop is never asked to draw
or encode, and the threads never wait for it.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from statistics import median
from typing import Protocol

from avatar_server.avatar.encoder import FrameRing, OpusEncoder, require_encoder
from avatar_server.avatar.encodes import Encodes
from avatar_server.avatar.fanout import Fanout
from avatar_server.avatar.pacing import FramePacer, MediaTimeline
from avatar_server.avatar.packets import Encoding
from avatar_server.avatar.sound import Sound, SoundSource
from avatar_server.clock import Clock
from avatar_server.config import MediaSettings, VideoSettings
from renderers.contract import I420Frame

logger = logging.getLogger(__name__)

_MAX_BACKLOG = 3
"""Published frames that the event loop has not taken; with more, the next is not even drawn."""
_IDLE_WAIT_S = 0.5
"""How often the video thread looks up while nobody watches; a join wakes it at once."""
_JOIN_TIMEOUT_S = 2.0
"""A thread that has not ended by then is stuck in a renderer; it is a daemon and is left behind."""
_NICE = -10
_WINDOW = 150
"""Frames over which the medians of `MediaStats` are taken: 5 s."""


class MediaSource(SoundSource, Protocol):
    """Where sound and pictures come from."""

    def draw(self, media_time: float, frame: I420Frame) -> bool:
        """Fill `frame` for this media time (s); false: nothing changed since the last drawn.

        Called on the video thread, and only while somebody watches.
        """
        ...


@dataclass(frozen=True, slots=True)
class MediaStats:
    """What the engine measures. Times are medians of CPU time over the last seconds."""

    fps: float = 0.0
    frames: int = 0
    late_frames: int = 0
    render_ms: float = 0.0
    encode_ms: float = 0.0
    bitrate_bps: float = 0.0
    keyframes: int = 0
    audio_skipped_ms: int = 0
    viewers: int = 0
    drawing_s: float = 0.0
    """CPU time that drawing has taken since the start."""
    sounding_s: float = 0.0
    """The same of the sound that was made along with the pictures."""


class MediaEngine:
    """Drives a `MediaSource` through the encoders into a `Fanout`."""

    def __init__(
        self, settings: MediaSettings, source: MediaSource, clock: Clock, fanout: Fanout
    ) -> None:
        """Raises `EncoderError` where libopus is missing from the installed PyAV, or the H.264
        encoder that the settings insist on.
        """
        require_encoder(settings.video)
        self.fanout = fanout
        self._settings = settings
        self._video_settings = settings.video
        self._encodes = Encodes(settings.video)
        self._step = 1
        self._source = source
        self._clock = clock
        self._timeline: MediaTimeline | None = None
        self._stopping = threading.Event()
        self._wake = threading.Event()
        self._sound = Sound(source, OpusEncoder(settings.audio), fanout, clock)
        self._threads: list[threading.Thread] = []
        self._frames = 0
        self._late = 0
        self._drawing_s = 0.0
        self._sounding_s = 0.0
        self._keyframes = 0
        self._copy: Future[I420Frame] | None = None
        self._render_ms: deque[float] = deque(maxlen=_WINDOW)
        self._encode_ms: deque[float] = deque(maxlen=_WINDOW)
        self._sent: deque[tuple[float, int]] = deque(maxlen=_WINDOW)
        fanout.on_change(self._viewers_changed)
        fanout.on_quiet(self._sound.hurry)

    @property
    def timeline(self) -> MediaTimeline:
        """The media epoch; raises `RuntimeError` before `start`."""
        if self._timeline is None:
            raise RuntimeError("the media engine has not been started")
        return self._timeline

    def media_time(self) -> float:
        """Seconds since the epoch; 0 before `start`."""
        timeline = self._timeline
        return 0.0 if timeline is None else timeline.media_time(self._clock.now())

    def start(self) -> None:
        """Media time begins now. Called once."""
        if self._timeline is not None:
            raise RuntimeError("the media engine can be started once")
        self._timeline = MediaTimeline.starting(self._clock.now())
        for name, run in (("media-audio", self._run_audio), ("media-video", self._run_video)):
            thread = threading.Thread(target=self._guard, args=(run,), name=name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def close(self) -> None:
        """End both threads (within about a frame's time) and release the encoders."""
        self._stopping.set()
        self._wake.set()
        self._sound.hurry()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(_JOIN_TIMEOUT_S)
                if thread.is_alive():
                    logger.error("%s did not end within %.0f s", thread.name, _JOIN_TIMEOUT_S)
        self._threads.clear()

    def request_keyframe(self, encoding: Encoding) -> None:
        """The next frame of that encode is to be a keyframe, if the least interval allows.

        Where only one viewer takes it, a small one: of others' pictures nothing is taken for it.
        """
        alone = self.fanout.takers(encoding) == 1
        self._encodes.request_keyframe((encoding,), gentle=alone)

    @property
    def video_settings(self) -> VideoSettings:
        """What is encoded with now: the settings, as `set_quality` has changed them."""
        return self._video_settings

    def set_quality(
        self,
        *,
        preset: str | None = None,
        crf: float | None = None,
        max_bitrate_bps: int | None = None,
        fps: int | None = None,
    ) -> None:
        """Change what the pictures cost, while running; what is not given stays as it is.

        `preset`, `crf` and `max_bitrate_bps` take effect with the next keyframe, which is asked
        for, of each encode. `fps` takes effect at once and without one: it has to divide the
        settings' frame rate, and frames between are neither drawn nor encoded. Called on the event
        loop. Raises `ValueError`, and changes nothing, where a value cannot be used.
        """
        given = {"preset": preset, "crf": crf, "max_bitrate_bps": max_bitrate_bps}
        changes = {name: value for name, value in given.items() if value is not None}
        full_fps = self._settings.video.fps
        if fps is not None and (fps < 1 or full_fps % fps):
            raise ValueError(f"fps {fps} does not divide the session's {full_fps}")
        values = self._video_settings.model_dump() | changes
        settings = VideoSettings.model_validate(values)
        if fps is not None:
            self._step = full_fps // fps
        if settings != self._video_settings:
            self._video_settings = settings
            self._encodes.configure(settings)

    def next_frame(self) -> Future[I420Frame] | None:
        """A copy of the frame drawn next; none while nobody watches, when nothing is drawn."""
        if not self.fanout.encodings:
            return None
        if self._copy is None:
            self._copy = Future()
        return self._copy

    def stats(self) -> MediaStats:
        now = self._clock.now()
        recent = [(at, size) for at, size in tuple(self._sent) if now - at <= 5.0]
        span = now - recent[0][0] if recent else 0.0
        return MediaStats(
            fps=len(recent) / span if span > 0.5 else 0.0,
            frames=self._frames,
            late_frames=self._late + self._encodes.failed,
            render_ms=_median(self._render_ms),
            encode_ms=_median(self._encode_ms),
            bitrate_bps=8 * sum(size for _, size in recent) / span if span > 0.5 else 0.0,
            keyframes=self._keyframes,
            audio_skipped_ms=self._sound.skipped_ms,
            viewers=self.fanout.viewers,
            drawing_s=self._drawing_s,
            sounding_s=self._sounding_s,
        )

    def _viewers_changed(self, keyframes: frozenset[Encoding]) -> None:
        for encoding in keyframes:
            self.request_keyframe(encoding)
        self._wake.set()

    def _guard(self, run: Callable[[], None]) -> None:
        try:
            run()
        except Exception:
            # A source that raises is a fault in the program. The process must not go on with a
            # frozen picture as if all were well; its supervisor sees the threads are gone.
            logger.exception("%s ended by an error", threading.current_thread().name)
            self._stopping.set()
            self._wake.set()
            self._sound.hurry()

    @property
    def failed(self) -> bool:
        """Whether a media thread ended by an error; the session cannot go on."""
        return self._stopping.is_set() and any(not t.is_alive() for t in self._threads)

    def _run_audio(self) -> None:
        _ask_priority()
        self._sound.run(self.media_time, self._stopping.is_set)

    def _run_video(self) -> None:
        timeline = self.timeline
        video = self._settings.video
        pacer = FramePacer(video.fps)
        ring = FrameRing(video.width, video.height)
        drawn = False
        unchanged = 0
        while not self._stopping.is_set():
            wanted = self.fanout.encodings
            now = timeline.media_time(self._clock.now())
            if not wanted:
                drawn = False
                self._encodes.keep(wanted)
                self._sound.hurry()
                self._wake.wait(_IDLE_WAIT_S)
                self._wake.clear()
                pacer.skip_to(timeline.media_time(self._clock.now()))
                continue
            tick = pacer.take(now)
            if tick is None:
                self._stopping.wait(max(0.0, pacer.due() - now))
                continue
            self._late += tick.dropped
            frame_time = tick.number / video.fps
            if tick.number % self._step or self.fanout.backlog > _MAX_BACKLOG:
                self._late += not tick.number % self._step
                self._sound.send_ahead(frame_time, 1 / video.fps, [])
                continue
            started = time.thread_time()
            if self._source.draw(frame_time, ring.next) or not drawn:
                ring.advance()
                drawn = True
                unchanged = 0
            else:
                unchanged += 1
            rendered = time.thread_time()
            copy, self._copy = self._copy, None
            if copy is not None and copy.set_running_or_notify_cancel():
                last = ring.last
                copy.set_result(I420Frame(last.data.copy(), last.width, last.height))
            timestamp = pacer.timestamp(tick.number)
            made = self._encodes.encode(ring.last, wanted, timestamp, unchanged)
            encoded_at = time.thread_time()
            self._sound.send_ahead(frame_time, 1 / video.fps, made)
            self._keyframes += sum(encoded.keyframe for encoded in made)
            if made:
                self._sent.append((self._clock.now(), sum(encoded.size for encoded in made)))
            self._sounding_s += time.thread_time() - encoded_at
            self._drawing_s += rendered - started
            self._render_ms.append((rendered - started) * 1e3)
            self._encode_ms.append((encoded_at - rendered) * 1e3)
            self._frames += 1
        self._encodes.keep(frozenset())


def _ask_priority() -> None:
    """Ask that the audio thread runs before others that are ready: it needs little, but on time.

    Only some users may (root, CAP_SYS_NICE, a raised RLIMIT_NICE). Not for the video thread: on a
    machine with too much to do it would take the event loop's time, and frames late in drawing
    are dropped, while packets late in sending freeze the picture.
    """
    if not hasattr(os, "setpriority"):
        return
    try:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
    except OSError:
        logger.debug("the system does not let %s run first", threading.current_thread().name)


def _median(values: deque[float]) -> float:
    held = tuple(values)
    return median(held) if held else 0.0
