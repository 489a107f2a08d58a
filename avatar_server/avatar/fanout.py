"""From the media threads to every viewer: one object per frame, one wake-up of the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from typing import Protocol

from avatar_server.avatar.packets import EncodedAudio, EncodedVideo, Encoding

_MAX_PENDING = 64
"""Items on their way to the event loop; more than a second of it being stuck."""


_QUIET_S = 0.045
"""With a frame 33 ms after the last, one that took 12 ms longer than that one did."""


class Sink(Protocol):
    """A viewer's end of the fan-out, called on the event loop; must not block."""

    @property
    def encodings(self) -> frozenset[Encoding]:
        """The encodes it takes: none without video (yet), two while it is moved between them."""
        ...

    def on_video(self, frame: EncodedVideo) -> None: ...

    def on_audio(self, packet: EncodedAudio) -> None: ...


class Fanout:
    """Hands frames from the media threads to the viewers on the event loop.

    Attach and detach on the loop; publish from any thread. A loop that does not keep up is seen
    in `backlog`, by which the video thread drops frames before drawing them. Should it be stuck
    for longer, the oldest audio is let go, and video likewise until the next keyframe.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._sinks: tuple[Sink, ...] = ()
        self._encodings: frozenset[Encoding] = frozenset()
        self._pending: deque[EncodedVideo | EncodedAudio] = deque()
        self._lock = threading.Lock()
        self._scheduled = False
        self._video_pending = 0
        self._closed = False
        self._on_change: Callable[[frozenset[Encoding]], None] = lambda _: None
        self._on_quiet: Callable[[], None] = lambda: None
        self._quiet: asyncio.TimerHandle | None = None
        self.dropped = 0

    @property
    def encodings(self) -> frozenset[Encoding]:
        """Encodes that some viewer needs; empty without viewers."""
        return self._encodings

    @property
    def viewers(self) -> int:
        return len(self._sinks)

    def takers(self, encoding: Encoding) -> int:
        """How many take that encode."""
        return sum(encoding in sink.encodings for sink in self._sinks)

    @property
    def backlog(self) -> int:
        """Video frames published and not yet taken by the event loop."""
        return self._video_pending

    def on_change(self, call: Callable[[frozenset[Encoding]], None]) -> None:
        """Call `call` on the loop whenever viewers came, went or were moved.

        It is told the encodes in which somebody waits for a keyframe.
        """
        self._on_change = call

    def on_quiet(self, call: Callable[[], None]) -> None:
        """Call `call` on the loop when nothing more comes of the media threads, once each time.

        The loop moves a timer with what it delivers: it never wakes for it but when that runs out.
        """
        self._on_quiet = call

    def attach(self, sink: Sink) -> None:
        self._sinks = (*self._sinks, sink)
        self.refresh(sink.encodings)

    def refresh(self, keyframes: frozenset[Encoding]) -> None:
        """A sink takes other encodes than before, and needs keyframes of these."""
        self._encodings = frozenset().union(*(sink.encodings for sink in self._sinks))
        self._on_change(keyframes)

    def detach(self, sink: Sink) -> None:
        self._sinks = tuple(other for other in self._sinks if other is not sink)
        self.refresh(frozenset())

    def publish(self, *items: EncodedVideo | EncodedAudio) -> None:
        """Send each to every viewer it is for, with one wake-up. Called on the media threads."""
        if not items:
            return
        with self._lock:
            if self._closed:
                return
            for item in items:
                self._append(item)
            if self._scheduled:
                return
            self._scheduled = True
        try:
            self._loop.call_soon_threadsafe(self._deliver)
        except RuntimeError:  # the loop has been closed under us: the process is ending
            self.close()

    def _append(self, item: EncodedVideo | EncodedAudio) -> None:
        if len(self._pending) >= _MAX_PENDING:
            dropped = self._pending.popleft()
            self.dropped += 1
            self._video_pending -= isinstance(dropped, EncodedVideo)
        self._pending.append(item)
        self._video_pending += isinstance(item, EncodedVideo)

    def close(self) -> None:
        """Nothing is delivered any more."""
        with self._lock:
            self._closed = True
            self._pending.clear()
            self._video_pending = 0
        self._on_quiet = lambda: None

    def _deliver(self) -> None:
        if self._quiet is not None:
            self._quiet.cancel()
        self._quiet = self._loop.call_later(_QUIET_S, lambda: self._on_quiet())
        with self._lock:
            items = tuple(self._pending)
            self._pending.clear()
            self._video_pending = 0
            self._scheduled = False
        for item in items:
            if isinstance(item, EncodedAudio):
                for sink in self._sinks:
                    sink.on_audio(item)
            else:
                encoding = item.encoding
                for sink in self._sinks:
                    if encoding in sink.encodings:
                        sink.on_video(item)


class VideoQueue:
    """What one viewer has still to be sent: bounded, and whole from a keyframe on.

    A viewer that joined, or whose queue ran over, gets nothing until the next keyframe: it then
    shows a picture a moment old rather than rubbish. Pure logic, no IO.
    """

    def __init__(self, max_frames: int = 15, max_packets: int = 512) -> None:
        self.max_frames = max_frames
        self.max_packets = max_packets
        self.waiting = True
        self.overflows = 0
        self._expected = -1
        self._frames: deque[EncodedVideo] = deque()
        self._packets = 0
        self._at = 0

    def __len__(self) -> int:
        """Packets waiting."""
        return self._packets

    def push(self, frame: EncodedVideo) -> bool:
        """Queue `frame`; false where it was left out because the viewer needs a keyframe first."""
        gap = self._expected not in (-1, frame.sequence)
        self._expected = frame.sequence + 1
        if frame.keyframe:
            self.clear()
            self.waiting = False
        elif self.waiting:
            return False
        elif gap or len(self._frames) >= self.max_frames or self._packets > self.max_packets:
            self.clear()
            self.waiting = True
            self.overflows += 1
            return False
        self._frames.append(frame)
        self._packets += len(frame.payloads)
        return True

    def pop(self) -> tuple[EncodedVideo, bytes, bool] | None:
        """The next packet: its frame, its payload, and whether it is the frame's last."""
        if not self._frames:
            return None
        frame = self._frames[0]
        payload = frame.payloads[self._at]
        self._at += 1
        self._packets -= 1
        last = self._at == len(frame.payloads)
        if last:
            self._frames.popleft()
            self._at = 0
        return frame, payload, last

    def clear(self) -> None:
        """Forget what waits. A frame already begun is cut short; the receiver discards it."""
        self._frames.clear()
        self._packets = 0
        self._at = 0
