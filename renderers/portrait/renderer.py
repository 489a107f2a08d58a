"""Draws a photographed person, by the engine that draws the characters."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np

from renderers.contract import I420Frame, Pose, Rect
from renderers.portrait.eyes import PortraitEye
from renderers.portrait.fields import fill_weights, head_fields, local_fields, region_of
from renderers.portrait.geometry import eyes_of, head_of, lips_of
from renderers.portrait.mark import draw_mark
from renderers.portrait.mouth import PortraitMouth
from renderers.portrait.rig import load_portrait
from renderers.puppet.bank import drawn_ahead
from renderers.puppet.cache import Key, PatchCache
from renderers.puppet.eyes import EYE_TOLERANCE, EyeState
from renderers.puppet.practice import spoken_mouths
from renderers.puppet.visemes import CLOSED, MOUTH_TOLERANCE, mouth_key, shape_of
from renderers.warp import FieldGrid, Patch, WarpStage

MOUTHS_HELD, EYES_HELD = 128, 256


class PortraitRenderer:
    """Draws the portrait in `folder`. Raises `PortraitError` if the folder cannot be used.

    As for the drawn characters, mouths of speech are drawn ahead where there is a folder `cache`
    to keep them in. Sets OpenCV to one thread for the process.
    """

    def __init__(
        self, folder: Path, *, width: int = 1280, height: int = 720, cache: Path | None = None
    ) -> None:
        cv2.setNumThreads(1)
        self._size = (width, height)
        portrait = load_portrait(folder, self._size)
        plate, points = portrait.picture, portrait.points
        head, lips = head_of(points), lips_of(points)
        self._movement = portrait.spec.movement
        self.region = region_of(head, self._size)
        grid = FieldGrid(self.region)
        local = local_fields(head, lips, grid)
        turns = head_fields(head, points, portrait.person, grid)
        mouth = PortraitMouth(lips, head.unit, plate, portrait.spec.opening)
        eyes = [PortraitEye(eye, head.unit, plate) for eye in eyes_of(points)]
        made_of = [plate.tobytes(), points.tobytes(), portrait.spec.model_dump_json().encode()]
        if portrait.spec.mark:
            draw_mark(plate, portrait.spec.mark)
        self._stage = WarpStage(plate, grid, local, turns)
        self._local = np.zeros(len(local), np.float32)
        self._head = np.zeros(len(turns), np.float32)
        ahead: list[tuple[Key, Patch]] = []
        if cache is not None:
            ahead = drawn_ahead(cache, made_of, spoken_mouths, mouth.paint)
        self._features: list[tuple[PatchCache, Callable[[Key], Patch]]] = [
            (PatchCache(MOUTHS_HELD, MOUTH_TOLERANCE, CLOSED, ahead), mouth.paint),
            *((PatchCache(EYES_HELD, EYE_TOLERANCE), eye.paint) for eye in eyes),
        ]
        self._mouth_box = mouth.box
        self._asked: list[Key] = [(), (), ()]
        self._shown: list[Key] = [(), (), ()]
        self._fresh = True

    @property
    def size(self) -> tuple[int, int]:
        """(width, height) in pixels."""
        return self._size

    @property
    def mouth_box(self) -> Rect:
        """Where the mouth is drawn while the head is at rest."""
        return self._mouth_box

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
        fill_weights(pose, shape_of(mouth).jaw, self._movement, self._local, self._head)
        dirty = self._stage.draw(self._local, self._head, frame)
        if self._fresh:
            self._fresh = False
            return Rect(0, 0, *self._size)
        return dirty

    def close(self) -> None:
        """Give back the cached drawings."""
        for cache, _ in self._features:
            cache.clear()

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
