"""What faces have in common whose mouth and eyes are drawings laid on a warped picture."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import numpy as np

from renderers.contract import I420Frame, Pose, Rect
from renderers.puppet.cache import Key, PatchCache
from renderers.puppet.eyes import EyeState
from renderers.puppet.visemes import mouth_key, shape_of
from renderers.warp import Patch, WarpStage

Feature = tuple[PatchCache, Callable[[Key], Patch]]
"""The drawings of a mouth or an eye that are held, and what draws another."""


class DrawnFace(ABC):
    """A `renderers.contract.Renderer` over a stage; `features` are the mouth, left and right eye.

    `local` and `head` are how many fields of each kind the stage has.
    """

    def __init__(
        self,
        size: tuple[int, int],
        stage: WarpStage,
        local: int,
        head: int,
        features: Sequence[Feature],
    ) -> None:
        self._size = size
        self._stage = stage
        self._local = np.zeros(local, np.float32)
        self._head = np.zeros(head, np.float32)
        self._features = features
        self._asked: list[Key] = [(), (), ()]
        self._shown: list[Key] = [(), (), ()]
        self._fresh = True

    @property
    def size(self) -> tuple[int, int]:
        """(width, height) in pixels."""
        return self._size

    def draw(self, pose: Pose, frame: I420Frame) -> Rect:
        """Fill `frame` with `pose`; see `renderers.contract.Renderer.draw`."""
        if (frame.width, frame.height) != self._size:
            raise ValueError(
                f"the frame is {frame.width}x{frame.height}, the renderer {self._size}"
            )
        gaze = (pose.gaze_x, pose.gaze_y)
        eyes = (
            EyeState.of(pose.blink_left, pose.squint, gaze, pose.smile),
            EyeState.of(pose.blink_right, pose.squint, gaze, pose.smile),
        )
        mouth = self._show(0, mouth_key(pose))
        for side, state in enumerate(eyes):
            self._show(side + 1, state)
        self._weigh(pose, shape_of(mouth).jaw)
        dirty = self._stage.draw(self._local, self._head, frame)
        if self._fresh:
            self._fresh = False
            return Rect(0, 0, *self._size)
        return dirty

    def close(self) -> None:
        """Give back the cached drawings."""
        for cache, _ in self._features:
            cache.clear()

    @abstractmethod
    def _weigh(self, pose: Pose, jaw: float) -> None:
        """Set the weights of the stage's fields, with the jaw as the mouth shown has it."""

    def _show(self, place: int, key: Key) -> Key:
        """Lay the drawing that stands for `key` of the mouth (0) or an eye (1, 2); its own key."""
        if key != self._asked[place]:
            cache, draw = self._features[place]
            self._asked[place] = key
            shown, patch = cache.get(key, draw)
            if shown != self._shown[place]:
                self._shown[place] = shown
                self._stage.lay(patch)
        return self._shown[place]
