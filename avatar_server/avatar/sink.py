"""A viewer's end of the fan-out: what waits for it, and how fast it is sent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from avatar_server.avatar.fanout import Fanout, VideoQueue
from avatar_server.avatar.packets import EncodedAudio, EncodedVideo, VideoCodec
from avatar_server.avatar.sender import LeanSender

_BURST_PACKETS = 16
_BURST_INTERVAL_S = 0.003
"""A keyframe is spread over some milliseconds: 16 packets every 3 ms are 50 Mbit/s, which is
smooth for a network's queues, and leaves the event loop time for other viewers between."""
_BLOCKED_RETRY_S = 0.01
"""How soon a socket that took no more is tried again."""
_ASK_AGAIN_S = 0.75
"""A requested keyframe is on its way for up to the least interval between two, 0.5 s by default."""


class ViewerSink:
    """A viewer's two streams as the fan-out sees them."""

    def __init__(
        self,
        audio: LeanSender,
        video: LeanSender | None,
        fanout: Fanout,
        request_keyframe: Callable[[], None],
    ) -> None:
        self.queue = VideoQueue()
        self._audio = audio
        self._video = video
        self._fanout = fanout
        self._request_keyframe = request_keyframe
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._attached = False
        self._ask_again_at = 0.0
        audio.started = self._attach
        if video is not None:
            video.started = self._attach
            video.keyframe_wanted = request_keyframe

    @property
    def codec(self) -> VideoCodec | None:
        if self._video is None or not self._video.sending:
            return None
        return "vp8" if self._video.codec_name == "vp8" else "h264"

    def on_audio(self, packet: EncodedAudio) -> None:
        if self._audio.sending:
            self._audio.send_payload(packet.payload, packet.timestamp, False)

    def on_video(self, frame: EncodedVideo) -> None:
        if not self.queue.push(frame):
            self._ask_keyframe()
        if self._timer is None:
            self._pump()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._attached:
            self._attached = False
            self._fanout.detach(self)
        self.queue.clear()

    def _ask_keyframe(self) -> None:
        # One request may still be on its way through the encoder: a second is made only when the
        # first cannot be, or the answer to it would be followed by another keyframe.
        now = self._loop.time()
        if now >= self._ask_again_at:
            self._ask_again_at = now + _ASK_AGAIN_S
            self._request_keyframe()

    def _attach(self) -> None:
        self._ask_again_at = self._loop.time() + _ASK_AGAIN_S
        if self._attached:
            self._fanout.refresh()
        else:
            self._attached = True
            self._fanout.attach(self)

    def _pump(self) -> None:
        self._timer = None
        video = self._video
        if video is None or not video.sending:
            self.queue.clear()
            return
        if not video.writable():
            self._timer = self._loop.call_later(_BLOCKED_RETRY_S, self._pump)
            return
        for _ in range(_BURST_PACKETS):
            item = self.queue.pop()
            if item is None:
                return
            frame, payload, last = item
            video.send_payload(payload, frame.timestamp, last)
        if len(self.queue):
            self._timer = self._loop.call_later(_BURST_INTERVAL_S, self._pump)
