"""Draws a photographed person, by the engine that draws the characters."""

from __future__ import annotations

from pathlib import Path

import cv2

from renderers.contract import Pose, Rect
from renderers.portrait.eyes import PortraitEye
from renderers.portrait.fields import fill_weights, head_fields, local_fields, region_of
from renderers.portrait.geometry import eyes_of, head_of, lips_of
from renderers.portrait.mark import draw_mark
from renderers.portrait.mouth import PortraitMouth
from renderers.portrait.rig import load_portrait
from renderers.puppet.bank import drawn_ahead
from renderers.puppet.cache import Key, PatchCache
from renderers.puppet.drawn import DrawnFace
from renderers.puppet.eyes import EYE_TOLERANCE
from renderers.puppet.practice import spoken_mouths
from renderers.puppet.visemes import CLOSED, MOUTH_TOLERANCE
from renderers.warp import FieldGrid, Patch, WarpStage

MOUTHS_HELD, EYES_HELD = 128, 256


class PortraitRenderer(DrawnFace):
    """Draws the portrait in `folder`. Raises `PortraitError` if the folder cannot be used.

    As for the drawn characters, mouths of speech are drawn ahead where there is a folder `cache`
    to keep them in. Sets OpenCV to one thread for the process.
    """

    def __init__(
        self, folder: Path, *, width: int = 1280, height: int = 720, cache: Path | None = None
    ) -> None:
        cv2.setNumThreads(1)
        size = (width, height)
        portrait = load_portrait(folder, size)
        plate, points = portrait.picture, portrait.points
        head, lips = head_of(points), lips_of(points)
        self._movement = portrait.spec.movement
        self.region = region_of(head, size)
        grid = FieldGrid(self.region)
        local = local_fields(head, lips, grid)
        turns = head_fields(head, points, portrait.person, grid)
        mouth = PortraitMouth(lips, head.unit, plate, portrait.spec.opening)
        eyes = [PortraitEye(eye, head.unit, plate) for eye in eyes_of(points)]
        made_of = [plate.tobytes(), points.tobytes(), portrait.spec.model_dump_json().encode()]
        if portrait.spec.mark:
            draw_mark(plate, portrait.spec.mark)
        stage = WarpStage(plate, grid, local, turns)
        ahead: list[tuple[Key, Patch]] = []
        if cache is not None:
            ahead = drawn_ahead(cache, made_of, spoken_mouths, mouth.paint)
        features = [
            (PatchCache(MOUTHS_HELD, MOUTH_TOLERANCE, CLOSED, ahead), mouth.paint),
            *((PatchCache(EYES_HELD, EYE_TOLERANCE), eye.paint) for eye in eyes),
        ]
        super().__init__(size, stage, len(local), len(turns), features)
        self._mouth_box = mouth.box

    @property
    def mouth_box(self) -> Rect:
        """Where the mouth is drawn while the head is at rest."""
        return self._mouth_box

    def _weigh(self, pose: Pose, jaw: float) -> None:
        fill_weights(pose, jaw, self._movement, self._local, self._head)
