"""The contract between the server and a renderer.

A renderer is built once per session from an avatar's folder. For every frame it is given a `Pose`
and an `I420Frame` to fill, and it reports which rectangle it changed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray


class Viseme(IntEnum):
    """The 15 visemes of the Oculus (Meta) lip-sync set, in its order."""

    SIL = 0
    PP = 1
    FF = 2
    TH = 3
    DD = 4
    KK = 5
    CH = 6
    SS = 7
    NN = 8
    RR = 9
    AA = 10
    E = 11
    IH = 12
    OH = 13
    OU = 14


VISEMES: tuple[Viseme, ...] = tuple(Viseme)


class VisemeSpan(NamedTuple):
    """A viseme held from `start` to `end`, in seconds from the start of the sound it belongs to."""

    viseme: int
    start: float
    end: float


class Attitude(StrEnum):
    """What the avatar is doing, which colours its idle behaviour."""

    IDLE = "idle"
    LISTENING = "listening"
    THINKING = "thinking"
    SPEAKING = "speaking"


class Rect(NamedTuple):
    """A rectangle in luma pixels; `width` or `height` 0 means that nothing changed."""

    x: int
    y: int
    width: int
    height: int

    @property
    def empty(self) -> bool:
        return self.width <= 0 or self.height <= 0


@dataclass(slots=True)
class Pose:
    """Everything that a face shows in one frame. All weights are 0..1 unless said otherwise.

    `visemes` is a float32 array of shape (15,), indexed by `Viseme`; its weights need not sum to 1.
    Angles are in degrees as the viewer sees them: positive `yaw` turns the face to the viewer's
    right, positive `pitch` lifts the chin, positive `roll` tilts the head clockwise. Gaze is
    -1..1 per axis, positive to the viewer's right and up. Brows are -1 (lowered) .. 1 (raised).
    `time_s` is the media time that is shown, for what goes on by itself (a clip, the sound).
    """

    visemes: NDArray[np.float32] = field(default_factory=lambda: np.zeros(15, np.float32))
    jaw: float = 0.0
    blink_left: float = 0.0
    blink_right: float = 0.0
    squint: float = 0.0
    gaze_x: float = 0.0
    gaze_y: float = 0.0
    brow_left: float = 0.0
    brow_right: float = 0.0
    brow_inner: float = 0.0
    yaw: float = 0.0
    pitch: float = 0.0
    roll: float = 0.0
    breath: float = 0.0
    sway_x: float = 0.0
    smile: float = 0.0
    frown: float = 0.0
    time_s: float = 0.0


@dataclass(slots=True, frozen=True)
class I420Frame:
    """A planar YUV 4:2:0 picture in one contiguous uint8 array of shape (height * 3 / 2, width).

    That is the layout which `av.VideoFrame.from_numpy_buffer(…, "yuv420p")` takes without a copy.
    BT.709 limited range. `width` and `height` must be multiples of 4 so that the chroma
    planes are whole rows of the array's memory.
    """

    data: NDArray[np.uint8]
    width: int
    height: int

    @classmethod
    def empty(cls, width: int, height: int) -> I420Frame:
        """A black frame of `width` x `height` pixels."""
        if width % 4 or height % 4:
            raise ValueError(f"an I420 frame needs sides divisible by 4, got {width}x{height}")
        data = np.full((height * 3 // 2, width), 128, np.uint8)
        data[:height] = 16
        return cls(data, width, height)

    @property
    def y(self) -> NDArray[np.uint8]:
        """Luma, a view of shape (height, width)."""
        return self.data[: self.height]

    @property
    def u(self) -> NDArray[np.uint8]:
        """Blue-difference chroma, a view of shape (height / 2, width / 2)."""
        return self._chroma(0)

    @property
    def v(self) -> NDArray[np.uint8]:
        """Red-difference chroma, a view of shape (height / 2, width / 2)."""
        return self._chroma(1)

    def _chroma(self, plane: int) -> NDArray[np.uint8]:
        quarter = self.height // 4
        first = self.height + plane * quarter
        return self.data[first : first + quarter].reshape(self.height // 2, self.width // 2)


class Renderer(Protocol):
    """One face. Not thread-safe: one thread calls it."""

    @property
    def size(self) -> tuple[int, int]:
        """(width, height) in pixels of the frames it fills."""
        ...

    def draw(self, pose: Pose, frame: I420Frame) -> Rect:
        """Fill the whole of `frame` with `pose`.

        The frame may hold any earlier content (the caller rotates a few buffers). Returns the
        rectangle in which the picture differs from the one drawn by the call before.
        """
        ...

    def close(self) -> None:
        """Give back what the renderer holds. A closed renderer is not used again."""
        ...


Sound = Callable[[int, int], NDArray[np.int16]]
"""`sound(first, count)`: `count` samples of the avatar's voice, int16 mono 48 kHz, from sample
`first` of its media time on; zeros where nothing is said, or nothing is known yet. What is ahead
may still change (an interruption)."""


@runtime_checkable
class SoundDriven(Protocol):
    """A renderer whose mouth follows the sound itself rather than the visemes of a pose."""

    def hear(self, sound: Sound) -> None:
        """Where the sound is read from, by the thread that draws."""
        ...


class CutoutRenderer(Renderer, Protocol):
    """A renderer that was built with `transparent=True`, for pictures to be laid over others.

    Optional: a renderer that cannot do without its background refuses the keyword (`TypeError`).
    """

    def draw_rgba(self, pose: Pose) -> NDArray[np.uint8]:
        """`pose` without a background: shape (height, width, 4), R, G, B and alpha.

        Alpha is straight: colours are not multiplied by it, and are those of the face where it is
        partly clear. For stills and compositing, not for every frame of a session: a video encoder
        has no alpha, and this takes new memory. Counts as a `draw` for the next one's rectangle.
        """
        ...
