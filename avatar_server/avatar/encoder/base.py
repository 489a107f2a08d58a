"""What encoders have in common."""

from __future__ import annotations

from typing import Protocol

import av

from avatar_server.avatar.packets import EncodedVideo
from avatar_server.config import VideoSettings
from renderers.contract import I420Frame


class EncoderError(RuntimeError):
    """An encoder could not be opened or failed; the message says which and why."""


class VideoEncoder(Protocol):
    """One video encode. Used from one thread."""

    def encode(
        self, frame: I420Frame, timestamp: int, keyframe: bool, gentle: bool = False
    ) -> EncodedVideo:
        """The picture as RTP payloads. `timestamp`: 90 kHz ticks of media time.

        `frame` may be written again as soon as this returns. `gentle`: a keyframe is to be small,
        for a link of which nothing is known, and what it lacks comes with the pictures after it.
        An encoder that cannot do that makes an ordinary one.
        """
        ...

    def repeat(self, timestamp: int) -> EncodedVideo | None:
        """The last picture once more, where that can be said without encoding; else `None`."""
        ...

    def configure(self, settings: VideoSettings) -> None:
        """Use other settings from the next frame on, which becomes a keyframe where need be."""
        ...

    def close(self) -> None: ...


class FrameRing:
    """A few I420 buffers in turn, so that the last drawn picture stays whole while the next is."""

    def __init__(self, width: int, height: int, count: int = 2) -> None:
        self._frames = [I420Frame.empty(width, height) for _ in range(count)]
        self._at = 0

    @property
    def last(self) -> I420Frame:
        """The picture drawn last."""
        return self._frames[self._at]

    @property
    def next(self) -> I420Frame:
        """The buffer to draw into."""
        return self._frames[(self._at + 1) % len(self._frames)]

    def advance(self) -> None:
        """`next` has been drawn: it becomes `last`."""
        self._at = (self._at + 1) % len(self._frames)


def wrap_i420(frame: I420Frame) -> av.VideoFrame:
    """The picture as libav sees it, without a copy."""
    picture = av.VideoFrame.from_numpy_buffer(frame.data, "yuv420p")
    picture.colorspace = 1  # BT.709
    picture.color_range = 1  # limited
    return picture
