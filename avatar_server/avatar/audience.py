"""The viewers of a session, and the ears that the avatar lends to each who may speak."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from avatar_server.avatar.listening import Executor, Listener, SpeechDetector, VoiceFrame
from avatar_server.avatar.vad import Vad
from avatar_server.avatar.vad_worker import Worker
from avatar_server.models.store import ModelStore

OnFrame = Callable[[str, VoiceFrame], None]


class Audience:
    """Who is there, and what was heard of them. Belongs to one event loop.

    `on_frame` is called on the event loop for each voice-activity frame. `executor` is where the
    model runs: by default a thread of its own, begun with the first viewer who may speak; one that
    is given must call back on the event loop's thread. `keep_s`: sound kept of each viewer.
    """

    def __init__(
        self,
        on_frame: OnFrame,
        keep_s: float,
        build_detector: Callable[[], SpeechDetector] | None = None,
        executor: Executor | None = None,
    ) -> None:
        self._on_frame = on_frame
        self._keep_s = keep_s
        self._build_detector = build_detector or shipped_detector
        self._executor = executor
        self._worker: Worker | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._listeners: dict[str, Listener | None] = {}

    def __len__(self) -> int:
        return len(self._listeners)

    def __contains__(self, viewer: str) -> bool:
        return viewer in self._listeners

    def add(self, viewer: str, can_speak: bool) -> None:
        """A viewer has come."""
        self.remove(viewer)
        listener = None
        if can_speak:

            def deliver(frame: VoiceFrame) -> None:
                self._deliver(viewer, listener, frame)

            listener = Listener(
                self._build_detector, self._running_executor(), deliver, self._keep_s
            )
        self._listeners[viewer] = listener

    def remove(self, viewer: str) -> bool:
        """A viewer is gone; False where they were not there."""
        known = viewer in self._listeners
        if (listener := self._listeners.pop(viewer, None)) is not None:
            listener.close()
        return known

    def can_speak(self, viewer: str) -> bool:
        """Whether the viewer is there and may speak."""
        return self._listeners.get(viewer) is not None

    def hear(self, viewer: str, pcm: NDArray[np.int16], now: float) -> None:
        """`pcm` (int16, mono, 16 kHz) of the viewer came at `now` (s)."""
        listener = self._listeners.get(viewer)
        if listener is not None:
            listener.add(pcm, now)

    def take(self, viewer: str, start: int, end: int) -> NDArray[np.int16]:
        """Samples `start`..`end` of the viewer's sound, as far as they are kept."""
        listener = self._listeners.get(viewer)
        return listener.take(start, end) if listener else np.zeros(0, np.int16)

    async def close(self) -> None:
        """End the thread."""
        self._listeners.clear()
        if self._worker is not None:
            await asyncio.to_thread(self._worker.close)

    def _running_executor(self) -> Executor:
        if self._executor is None:
            self._loop = asyncio.get_running_loop()
            self._executor = self._worker = Worker()
        return self._executor

    def _deliver(self, viewer: str, listener: Listener | None, frame: VoiceFrame) -> None:
        if self._loop is None:
            self._arrive(viewer, listener, frame)
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._arrive, viewer, listener, frame)

    def _arrive(self, viewer: str, listener: Listener | None, frame: VoiceFrame) -> None:
        # A frame of somebody who left, or left and came back, is late.
        if self._listeners.get(viewer) is listener:
            self._on_frame(viewer, frame)


def shipped_detector() -> SpeechDetector:
    """A detector of the model that every installation has."""
    return Vad(ModelStore().path("silero-vad"))
