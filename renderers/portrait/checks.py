"""Whether a photograph can become an avatar. Each reason against it is a sentence of its own."""

from __future__ import annotations

import math
from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from renderers.portrait.landmarks import Face
from renderers.portrait.photo import PhotoError

MIN_FACE_PX = 90
"""Forehead to chin. Below it the mesh is off by as much as a lip is thick."""
SOFT_FACE_PX = 240
"""Below it the avatar looks soft at 720p: said, not refused."""
OTHERS = 0.35
"""Faces smaller than this share of the largest are background."""
MAX_YAW_DEG, MAX_PITCH_DEG, MAX_ROLL_DEG = 16.0, 16.0, 18.0
LEVEL_PITCH_DEG = 9.0
"""What the mesh gives for a face that looks straight ahead: its forehead lies behind its chin."""
MIN_DETAIL = 0.022
"""A blur of some 2% of the face's height."""
MAX_GAP = 0.24
"""Distance of the lips' inner edges by the mouth's width. A smile that shows the teeth has up to
0.2; the lips are then drawn closed."""
_DETAIL_PX = 192


class Look(NamedTuple):
    """What the checks go by. Degrees, pixels, shares."""

    height_px: float
    yaw: float
    pitch: float
    roll: float
    detail: float
    gap: float


def measure(rgb: NDArray[np.uint8], face: Face) -> Look:
    """How the face in `rgb` is held and pictured."""
    points = face.points
    across, down = points[454] - points[234], points[152] - points[10]
    gap = np.hypot(*(points[13, :2] - points[14, :2])) / np.hypot(
        *(points[61, :2] - points[291, :2])
    )
    return Look(
        height_px=face.height,
        yaw=_degrees(across[2], np.hypot(*across[:2])),
        pitch=_degrees(down[2], np.hypot(*down[:2])) - LEVEL_PITCH_DEG,
        roll=_degrees(across[1], across[0]),
        detail=_detail(rgb, face),
        gap=float(gap),
    )


def the_face(rgb: NDArray[np.uint8], faces: list[Face]) -> Face:
    """The one face of the picture, fit for an avatar; raises `PhotoError` with every reason why
    there is none."""
    if not faces:
        raise PhotoError(
            "No face was found: take a picture from the front in which the face fills a good part."
        )
    face = faces[0]
    others = [other for other in faces[1:] if other.height > OTHERS * face.height]
    if others:
        raise PhotoError(
            f"There are {len(others) + 1} faces in the picture: cut it to the one that it is about."
        )
    reasons = _against(measure(rgb, face))
    if reasons:
        raise PhotoError("\n".join(reasons))
    return face


def remarks(look: Look) -> list[str]:
    """What could be better about a picture that will do."""
    found = []
    if look.height_px < SOFT_FACE_PX:
        found.append(
            f"The face is {look.height_px:.0f} pixels high, so the avatar looks a little soft: "
            f"from {SOFT_FACE_PX} on it is sharp."
        )
    if look.gap > 0.06:
        found.append(
            "The teeth show, so the resting mouth is drawn closed: a picture with closed lips "
            "looks better."
        )
    return found


def _against(look: Look) -> list[str]:
    reasons = []
    if look.height_px < MIN_FACE_PX:
        reasons.append(
            f"The face is too small: {look.height_px:.0f} pixels from forehead to chin, and "
            f"{MIN_FACE_PX} are needed ({SOFT_FACE_PX} for a sharp avatar)."
        )
    if abs(look.yaw) > MAX_YAW_DEG:
        reasons.append(
            f"The face is turned to the side by {abs(look.yaw):.0f} degrees: up to "
            f"{MAX_YAW_DEG:.0f} will do. Look into the camera."
        )
    if abs(look.pitch) > MAX_PITCH_DEG:
        way = "down" if look.pitch > 0 else "up"
        reasons.append(
            f"The face looks {way} by {abs(look.pitch):.0f} degrees: up to {MAX_PITCH_DEG:.0f} "
            "will do. Look into the camera."
        )
    if abs(look.roll) > MAX_ROLL_DEG:
        reasons.append(
            f"The head is tilted by {abs(look.roll):.0f} degrees: up to {MAX_ROLL_DEG:.0f} will do."
        )
    if look.detail < MIN_DETAIL:
        reasons.append("The face is out of focus or blurred: take a sharper picture.")
    if look.gap > MAX_GAP:
        reasons.append("The mouth is open: take a picture with closed lips.")
    return reasons


def _detail(rgb: NDArray[np.uint8], face: Face) -> float:
    """How sharp the features are: the 95th percentile of the luma's second derivative between brows
    and chin, at a height of `_DETAIL_PX`, by the contrast there."""
    xy = face.points[:, :2]
    low, high = xy.min(axis=0), xy.max(axis=0)
    x, y = (max(0, math.floor(value)) for value in low)
    right, bottom = (math.ceil(value) for value in high)
    grey = cv2.cvtColor(rgb[y:bottom, x:right], cv2.COLOR_RGB2GRAY)
    scale = _DETAIL_PX / face.height
    how = cv2.INTER_AREA if scale < 1 else cv2.INTER_CUBIC
    resized = cv2.resize(grey, None, fx=scale, fy=scale, interpolation=how)
    small = cv2.GaussianBlur(resized.astype(np.float32), (0, 0), 1.0)
    edges = np.abs(cv2.Laplacian(small, cv2.CV_32F))
    spread = float(np.percentile(small, 95) - np.percentile(small, 5))
    return float(np.percentile(edges, 95)) / max(spread, 16.0)


def _degrees(rise: float, run: float) -> float:
    return math.degrees(math.atan2(float(rise), float(run)))
