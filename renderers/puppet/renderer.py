"""The puppet renderer: a drawn character from an avatar folder."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from renderers.backdrop import BackdropError
from renderers.contract import I420Frame, Pose, Rect
from renderers.puppet.art import Art
from renderers.puppet.bank import drawn_ahead
from renderers.puppet.cache import Key, PatchCache
from renderers.puppet.drawn import DrawnFace
from renderers.puppet.eyes import EYE_TOLERANCE, IRIS_SPRITE_PX, EyePainter
from renderers.puppet.light import light_fields
from renderers.puppet.motion import face_fields, face_weights
from renderers.puppet.mouth import MouthPainter
from renderers.puppet.practice import spoken_mouths
from renderers.puppet.rig import Rig, RigError, load_rig
from renderers.puppet.visemes import CLOSED, MOUTH_TOLERANCE
from renderers.warp import FieldGrid, Patch, WarpStage, i420_to_rgb
from renderers.warp.arrays import Array

FEATURES = ("iris", "teeth_upper", "teeth_lower")
BACKGROUND = "background"

MOUTHS_HELD, EYES_HELD = 256, 320
"""Some 8 MB and 5 MB. Besides these, the mouths drawn ahead (19 MB) are shared by all sessions of
an avatar."""


class PuppetRenderer(DrawnFace):
    """Draws the character in `folder`. Raises `RigError` if the folder cannot be used.

    Loading rasterises the art and, where there is a folder `cache` to keep them in, draws the
    mouths of speech ahead: some seconds of CPU, once; the next time `cache` has it all. `draw`
    then only warps. Without `cache`, mouths are drawn when first seen. Sets OpenCV to one thread
    for the process: with several sessions on a machine, frames are the unit of work.

    With `transparent` there is no background: `draw_rgba` gives pictures to be laid over others.
    """

    def __init__(
        self,
        folder: Path,
        *,
        width: int = 1280,
        height: int = 720,
        cache: Path | None = None,
        transparent: bool = False,
    ) -> None:
        cv2.setNumThreads(1)
        self._rig = rig = load_rig(folder)
        if (width, height) != rig.picture:
            raise RigError(
                f"{folder}: the picture is {rig.picture[0]}x{rig.picture[1]} and cannot be drawn "
                f"at {width}x{height}; set the video size to match"
            )
        art = Art(folder / rig.art, cache)
        plate, self._alpha = _plate(folder, rig, art, transparent)
        region = Rect(rig.region.x, rig.region.y, rig.region.width, rig.region.height)
        grid = FieldGrid(region)
        local, head = face_fields(rig, grid)
        light = light_fields(rig, grid, plate, len(head)) if rig.head.light else None
        stage = WarpStage(plate, grid, local, head, light)
        iris = art.feature("iris", _iris_box(rig), (IRIS_SPRITE_PX, IRIS_SPRITE_PX))
        box = rig.mouth.box
        view, size = (box.x, box.y, box.width, box.height), (box.width, box.height)
        teeth = [art.feature(name, view, size) for name in ("teeth_upper", "teeth_lower")]
        mouth = MouthPainter(rig.mouth, plate, *teeth)
        mouths: list[tuple[Key, Patch]] = []
        if cache is not None:
            skin = plate[box.y : box.y + box.height, box.x : box.x + box.width]
            made_of = [rig.mouth.model_dump_json().encode(), *(a.tobytes() for a in (skin, *teeth))]
            mouths = drawn_ahead(cache, made_of, spoken_mouths, mouth.paint)
        left = EyePainter(rig.eyes.left, rig.eyes, plate, iris)
        right = EyePainter(rig.eyes.right, rig.eyes, plate, iris)
        features = [
            (PatchCache(MOUTHS_HELD, MOUTH_TOLERANCE, CLOSED, mouths), mouth.paint),
            (PatchCache(EYES_HELD, EYE_TOLERANCE), left.paint_key),
            (PatchCache(EYES_HELD, EYE_TOLERANCE), right.paint_key),
        ]
        super().__init__((width, height), stage, len(local), len(head), features)

    @property
    def mouth_box(self) -> Rect:
        """Where the mouth is drawn while the head is at rest."""
        box = self._rig.mouth.box
        return Rect(box.x, box.y, box.width, box.height)

    def _weigh(self, pose: Pose, jaw: float) -> None:
        face_weights(pose, jaw, self._local, self._head)

    def draw_rgba(self, pose: Pose) -> NDArray[np.uint8]:
        """`pose` without a background; see `renderers.contract.CutoutRenderer.draw_rgba`."""
        if self._alpha is None:
            raise ValueError("build the renderer with transparent=True to draw without background")
        frame = I420Frame.empty(*self._size)
        self.draw(pose, frame)
        return np.dstack([i420_to_rgb(frame), self._stage.moved(self._alpha)])


def _plate(
    folder: Path, rig: Rig, art: Art, transparent: bool
) -> tuple[Array, NDArray[np.uint8] | None]:
    """RGB of all that lies behind the features; and its alpha, if it is to be transparent."""
    own = rig.background is None and not transparent
    apart = FEATURES if own else (*FEATURES, BACKGROUND)
    drawn = art.all_but(apart, rig.picture, rig.blurred)
    colour, alpha = drawn[..., :3], drawn[..., 3]
    if transparent:
        plate = _spread(drawn)
        opacity = np.clip(np.rint(alpha * 255), 0, 255).astype(np.uint8)
        return _sharpened(plate, rig.sharpen), opacity
    if rig.background is not None:
        try:
            colour = colour + rig.background.paint(folder, rig.picture) * (1 - alpha[..., None])
        except BackdropError as error:
            raise RigError(f"{folder / 'rig.yaml'}: {error}") from error
    return _sharpened(np.clip(colour, 0, 255), rig.sharpen), None


def _spread(drawn: Array) -> Array:
    """The colours of a premultiplied picture, those at its edges spread over what is clear: what
    is half clear then has no colour of a background in it."""
    colour = np.zeros_like(drawn[..., :3])
    for sigma_px in (48.0, 12.0, 3.0, 0.0):
        soft = cv2.GaussianBlur(drawn, (0, 0), sigma_px) if sigma_px else drawn
        cover = soft[..., 3:]
        sure = np.clip(cover * 8.0, 0.0, 1.0)
        colour += (soft[..., :3] / np.maximum(cover, 1e-3) - colour) * sure
    return np.clip(colour, 0, 255)


def _iris_box(rig: Rig) -> tuple[float, float, float, float]:
    x, y, width, height = rig.iris_box
    return (x, y, width, height)


def _sharpened(plate: Array, amount: float) -> Array:
    # Sampling between pixels softens the picture; a little unsharp mask gives that back.
    soft = cv2.GaussianBlur(plate, (0, 0), 1.0)
    result: Array = np.clip(plate + (plate - soft) * amount, 0, 255)
    return result
