"""A session's recording as the avatar process sees it: when it runs, and what is fed to it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from avatar_server.avatar.fanout import Fanout
from avatar_server.avatar.media import MediaEngine, MediaSource
from avatar_server.avatar.packets import EncodedAudio, EncodedVideo, Encoding
from avatar_server.avatar.peers import PeerHandler
from avatar_server.config import RecordingSettings
from avatar_server.protocol.events import Hello, Notice, PageEvent, ServerEvent
from avatar_server.protocol.messages import RecordingStatus, TurnTrace
from avatar_server.recording.part import Subject
from avatar_server.recording.recorder import Recorder
from renderers.contract import I420Frame

_FULL = Encoding("h264", "full")
_COME_BACK_S = 10.0
"""A talk whose last viewer went goes on in the same recording if somebody comes within this."""
_CLOSE_S = 2.0
"""The gateway gives the process of a recorded session a little more to end."""

RECORDED = "This conversation is recorded."
NOT_RECORDED = "This conversation is no longer recorded."

Tell = Callable[[ServerEvent, str | None], None]


class SessionRecording:
    """Records while somebody is there. Belongs to the event loop.

    `source` and `handler` stand between the media engine and what draws, and between the viewers
    and the conversation; `event` and `turn` are told what these say.
    """

    def __init__(
        self,
        settings: RecordingSettings,
        subject: Subject,
        fps: int,
        fanout: Fanout,
        tell: Tell,
    ) -> None:
        """`tell` sends an event to one viewer, or to all."""
        self._fanout, self._tell = fanout, tell
        self._loop = asyncio.get_running_loop()
        self._engine: MediaEngine | None = None
        self._sink = _Sink(self._take_picture)
        self._viewers: set[str] = set()
        self._attached = False
        self._problem = ""
        self._leaving: asyncio.TimerHandle | None = None
        self._recorder = Recorder(
            settings,
            subject,
            fps,
            self._unix_time,
            lambda: self._soon(self._ask_keyframe),
            lambda reason: self._soon(lambda: self._failed(reason)),
        )

    def source(self, source: MediaSource) -> MediaSource:
        """`source`, whose sound is recorded as it is played."""
        return _HeardSource(source, self, self._recorder)

    def handler(self, handler: PeerHandler) -> PeerHandler:
        """`handler`, what comes to which is recorded."""
        return _HeardViewers(handler, self)

    def begin(self, engine: MediaEngine) -> None:
        """The engine is there whose pictures are recorded."""
        self._engine = engine

    # --- what happens ---------------------------------------------------------------------------

    @property
    def running(self) -> bool:
        """Whether what is said now is recorded."""
        return self._attached

    def joined(self, viewer: str) -> None:
        """Before the viewer is greeted."""
        self._viewers.add(viewer)
        self._recorder.viewer(viewer, True)
        if self._leaving is not None:
            self._leaving.cancel()
            self._leaving = None
        # After a failure only where nobody else is here, who was told that nothing is kept.
        if not self._attached and self._viewers == {viewer}:
            self._problem = ""
            self._recorder.restart()
            self._attached = True
            self._fanout.attach(self._sink)

    def welcome(self, viewer: str) -> None:
        """Tell the viewer, who has been greeted, that this is recorded."""
        if self._attached:
            self._tell(Notice(code="recording", message=RECORDED), viewer)

    def left(self, viewer: str) -> None:
        """A viewer is gone."""
        self._viewers.discard(viewer)
        self._recorder.viewer(viewer, False)
        if not self._viewers and self._attached and self._leaving is None:
            self._leaving = self._loop.call_later(_COME_BACK_S, self._over)

    def heard(self, viewer: str, pcm: NDArray[np.int16]) -> None:
        """Sound of a viewer: int16, mono, 16 kHz."""
        if self._attached:
            self._recorder.viewer_sound(viewer, self._media_time(), pcm)

    def event(self, event: ServerEvent) -> None:
        """An event on its way to the pages; the first one is told whether this is recorded."""
        if isinstance(event, Hello):
            event.recorded = self._attached
        elif self._attached:
            self._recorder.said(self._media_time(), event)

    def turn(self, trace: TurnTrace) -> None:
        """A turn is over."""
        if self._attached:
            self._recorder.turn(self._media_time() - trace.ended, trace)

    def status(self) -> RecordingStatus:
        """For the gateway."""
        stats = self._recorder.stats()
        return RecordingStatus(
            running=self._attached,
            problem=self._problem,
            written_s=stats.written_s,
            cpu_s=stats.cpu_s,
            dropped=sum(stats.dropped.values()),
        )

    async def close(self) -> None:
        """Complete the files, within some 2 s at most."""
        self._detach()
        if self._leaving is not None:
            self._leaving.cancel()
        await asyncio.to_thread(self._recorder.close, _CLOSE_S)

    # --- within ---------------------------------------------------------------------------------

    def _media_time(self) -> float:
        return self._engine.media_time() if self._engine else 0.0

    def _unix_time(self, media_time: float) -> float:
        return time.time() - self._media_time() + media_time

    def _soon(self, call: Callable[[], None]) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(call)

    def _ask_keyframe(self) -> None:
        if self._engine is not None and self._attached:
            self._engine.request_keyframe(_FULL)

    def _take_picture(self, frame: EncodedVideo) -> None:
        self._recorder.picture(frame)

    def _over(self) -> None:
        self._leaving = None
        self._detach()
        self._recorder.end(self._media_time())

    def _detach(self) -> None:
        if self._attached:
            self._attached = False
            self._fanout.detach(self._sink)

    def _failed(self, reason: str) -> None:
        self._problem = reason
        self._detach()
        # Why is for the operator: viewers need to know that nothing is kept from here on.
        self._tell(Notice(code="recording_stopped", message=NOT_RECORDED), None)


class _Sink:
    """The recording's end of the fan-out: it takes the full H.264 encode."""

    encodings = frozenset((_FULL,))

    def __init__(self, take: Callable[[EncodedVideo], None]) -> None:
        self._take = take

    def on_video(self, frame: EncodedVideo) -> None:
        self._take(frame)

    def on_audio(self, packet: EncodedAudio) -> None:
        """The sound is taken before it is encoded: both sides go into one track."""


class _HeardSource:
    """A `MediaSource` whose sound is recorded."""

    def __init__(
        self, source: MediaSource, recording: SessionRecording, recorder: Recorder
    ) -> None:
        self._source, self._recording, self._recorder = source, recording, recorder
        self._samples = 0

    def pull_audio(self, samples: int) -> NDArray[np.int16]:
        pcm = self._source.pull_audio(samples)
        if self._recording.running:
            self._recorder.avatar_sound(self._samples, pcm)
        self._samples += samples
        return pcm

    def draw(self, media_time: float, frame: I420Frame) -> bool:
        return self._source.draw(media_time, frame)


class _HeardViewers:
    """A `PeerHandler` whose viewers are recorded."""

    def __init__(self, handler: PeerHandler, recording: SessionRecording) -> None:
        self._handler, self._recording = handler, recording

    def on_join(self, viewer: str, can_speak: bool) -> None:
        self._recording.joined(viewer)
        self._handler.on_join(viewer, can_speak)
        self._recording.welcome(viewer)

    def on_return(self, viewer: str, can_speak: bool) -> None:
        self._recording.joined(viewer)
        self._handler.on_return(viewer, can_speak)
        self._recording.welcome(viewer)

    def on_leave(self, viewer: str, reason: str, goodbye: bool) -> None:
        self._handler.on_leave(viewer, reason, goodbye)
        self._recording.left(viewer)

    def on_event(self, viewer: str, event: PageEvent) -> None:
        self._handler.on_event(viewer, event)

    def on_audio(self, viewer: str, pcm: NDArray[np.int16]) -> None:
        self._recording.heard(viewer, pcm)
        self._handler.on_audio(viewer, pcm)
