"""A viewer's end of the fan-out: what waits for it, and how fast it is sent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from avatar_server.avatar.fanout import Fanout, VideoQueue
from avatar_server.avatar.layers import LayerPolicy
from avatar_server.avatar.packets import (
    MAX_PAYLOAD_BYTES,
    EncodedAudio,
    EncodedVideo,
    Encoding,
    Layer,
    VideoCodec,
)
from avatar_server.avatar.sender import LeanSender

_BURST_PACKETS = 16
_BURST_INTERVAL_S = 0.003
"""A keyframe is spread over some milliseconds: 16 packets every 3 ms are 50 Mbit/s, which is
smooth for a network's queues, and leaves the event loop time for other viewers between."""
_SLOW_BURST_PACKETS = 2
_SLOW_LINK_SHARE = 2.5
_SLOW_LINK_BPS = 400_000
"""On a slow link a keyframe that comes all at once overflows the queue before it and is lost. The
viewer's estimate, or this, is what arrives on average: a keyframe may come that much faster. An
estimate below is not believed: pictures must never come slower than they are made."""
_BLOCKED_RETRY_S = 0.01
"""How soon a socket that took no more is tried again."""
_ASK_AGAIN_S = 0.75
"""A requested keyframe is on its way for up to the least interval between two, 0.5 s by default."""


class ViewerSink:
    """A viewer's two streams as the fan-out sees them, and which of the encodes it is sent.

    `policy` decides that from the viewer's reports; without one it is always the full picture.
    """

    def __init__(
        self,
        audio: LeanSender,
        video: LeanSender | None,
        fanout: Fanout,
        request_keyframe: Callable[[Encoding], None],
        policy: LayerPolicy | None = None,
    ) -> None:
        self.queue = VideoQueue()
        self.encodings: frozenset[Encoding] = frozenset()
        self.moves = 0
        """How often the viewer was given another encode."""
        self._audio = audio
        self._video = video
        self._fanout = fanout
        self._request_keyframe = request_keyframe
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._attached = False
        self._ask_again_at = 0.0
        self._codec: VideoCodec = "h264"
        self._layer: Layer = "full"
        self._wanted: Layer = "full"
        self._newest = -1
        audio.started = self._attach
        if video is not None:
            video.started = self._attach
            video.keyframe_wanted = lambda: request_keyframe(self._encoding(self._layer))
            if policy is not None:
                self._follow(video, policy)

    @property
    def codec(self) -> VideoCodec | None:
        """The video codec in use; none where no video is sent."""
        return self._codec if self._video is not None and self._video.sending else None

    @property
    def layer(self) -> Layer:
        """The encode that is being sent."""
        return self._layer

    def move(self, layer: Layer) -> None:
        """Send `layer` from its next keyframe on, and what is sent now until then."""
        if layer == self._wanted:
            return
        self._wanted = layer
        if self._attached:
            self._update({layer} - {self._layer})

    def on_audio(self, packet: EncodedAudio) -> None:
        if self._audio.sending:
            self._audio.send_payload(packet.payload, packet.timestamp, False)

    def on_video(self, frame: EncodedVideo) -> None:
        if frame.layer != self._layer:
            if frame.layer != self._wanted:
                return
            # A picture that was sent already must not come again under the same time.
            if not frame.keyframe or frame.timestamp <= self._newest:
                self._ask_keyframe(frame.layer)
                return
            self._layer = frame.layer
            self.moves += 1
            if self._video is not None:
                # A slow link is not to be kept busy with the picture that was too much for it.
                self._video.forget_sent()
            self._update(set())
        self._newest = frame.timestamp
        if not self.queue.push(frame):
            self._ask_keyframe(self._layer)
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

    def _follow(self, video: LeanSender, policy: LayerPolicy) -> None:
        now = self._loop.time
        video.loss_reported = lambda lost, of: self.move(policy.on_loss(now(), lost, of))
        video.bandwidth_reported = lambda bps: self.move(policy.on_estimate(now(), bps))

    def _encoding(self, layer: Layer) -> Encoding:
        return Encoding(self._codec, layer)

    def _update(self, keyframes: set[Layer]) -> None:
        """Tell the fan-out what is taken now, and of which layers a keyframe is needed."""
        sending = self._video is not None and self._video.sending
        layers = {self._layer, self._wanted} if sending else set()
        self.encodings = frozenset(map(self._encoding, layers))
        self._fanout.refresh(frozenset(map(self._encoding, keyframes)) & self.encodings)

    def _ask_keyframe(self, layer: Layer) -> None:
        # One request may still be on its way through the encoder: a second is made only when the
        # first cannot be, or the answer to it would be followed by another keyframe.
        now = self._loop.time()
        if now >= self._ask_again_at:
            self._ask_again_at = now + _ASK_AGAIN_S
            self._request_keyframe(self._encoding(layer))

    def _attach(self) -> None:
        self._ask_again_at = self._loop.time() + _ASK_AGAIN_S
        if self._video is not None and self._video.codec_name == "vp8":
            self._codec = "vp8"
        if not self._attached:
            self._attached = True
            self._fanout.attach(self)
        self._update({self._layer})

    def _pump(self) -> None:
        self._timer = None
        video = self._video
        if video is None or not video.sending:
            self.queue.clear()
            return
        if not video.writable():
            self._timer = self._loop.call_later(_BLOCKED_RETRY_S, self._pump)
            return
        burst, interval_s = self._pace(video)
        for _ in range(burst):
            item = self.queue.pop()
            if item is None:
                return
            frame, payload, last = item
            video.send_payload(payload, frame.timestamp, last)
        if len(self.queue):
            self._timer = self._loop.call_later(interval_s, self._pump)

    def _pace(self, video: LeanSender) -> tuple[int, float]:
        """Packets to send at once, and the seconds to wait after them."""
        if self._layer == "full":
            return _BURST_PACKETS, _BURST_INTERVAL_S
        rate = _SLOW_LINK_SHARE * max(_SLOW_LINK_BPS, video.stats.remb_bps or 0)
        return _SLOW_BURST_PACKETS, _SLOW_BURST_PACKETS * 8 * MAX_PAYLOAD_BYTES / rate
