"""What a portrait looks like when it speaks, blinks and turns: to be looked at before use."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from renderers.contract import Pose, Rect, Viseme
from renderers.portrait.renderer import PortraitRenderer
from renderers.portrait.rig import png
from renderers.preview import animation, draw_rgb, viseme_pose
from renderers.puppet.practice import babble

STRIP: tuple[tuple[str, Pose], ...] = (
    ("rest", Pose()),
    ("smile", Pose(smile=1.0, squint=0.2)),
    ("blink", Pose(blink_left=1.0, blink_right=1.0)),
    ("left", Pose(yaw=-12.0, gaze_x=-0.4)),
    ("right", Pose(yaw=12.0, gaze_x=0.4)),
    ("down", Pose(pitch=-8.0)),
    ("tilt", Pose(roll=8.0)),
    ("brows", Pose(brow_left=1.0, brow_right=1.0)),
    ("p b m", viseme_pose(Viseme.PP)),
    ("f v", viseme_pose(Viseme.FF)),
    ("th", viseme_pose(Viseme.TH)),
    ("s z", viseme_pose(Viseme.SS)),
    ("ah", viseme_pose(Viseme.AA)),
    ("eh", viseme_pose(Viseme.E)),
    ("oh", viseme_pose(Viseme.OH)),
    ("oo", viseme_pose(Viseme.OU)),
)

_COLUMNS, _CELL_PX = 8, 240
_FILM_S = 6.0


def strip(renderer: PortraitRenderer) -> bytes:
    """A PNG: two rows of heads, first expressions and turns, then sounds."""
    region = renderer.region
    side = min(region.width, region.height)
    middle = region.x + region.width // 2
    box = Rect(middle - side // 2, region.y + (region.height - side) // 2, side, side)
    cells = [_labelled(draw_rgb(renderer, pose), box, label) for label, pose in STRIP]
    rows = [np.hstack(cells[at : at + _COLUMNS]) for at in range(0, len(cells), _COLUMNS)]
    return png(np.vstack(rows))


def film(renderer: PortraitRenderer) -> bytes:
    """An MP4 without sound: some seconds of speech that is no language."""
    return animation(renderer, fps=30, poses=babble(_FILM_S, seed=4))


def _labelled(picture: NDArray[np.uint8], box: Rect, label: str) -> NDArray[np.uint8]:
    cut = picture[box.y : box.y + box.height, box.x : box.x + box.width]
    cell = cv2.resize(cut, (_CELL_PX, _CELL_PX), interpolation=cv2.INTER_AREA)
    for ink, thick in (((0, 0, 0), 3), ((255, 255, 255), 1)):
        cv2.putText(cell, label, (8, 22), cv2.FONT_HERSHEY_SIMPLEX, 0.55, ink, thick, cv2.LINE_AA)
    return np.asarray(cell, np.uint8)
