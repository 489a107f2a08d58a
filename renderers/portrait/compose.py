"""From a photograph to the avatar's picture: framed as a person who sits in front of a camera."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from renderers.portrait.landmarks import Face
from renderers.warp.arrays import Array

PERSON_FILE = "selfie_segmentation.tflite"
_PERSON_PX = 256

_FACE_SHARE = (0.46, 0.56)
"""Forehead to chin by the picture's height: the first where the photograph is wide enough, up to
the second where that shows less of what is not in it."""
_LARGEST_SHARE = 0.66
_CHIN_AT = 0.76
"""Height of the chin, from the top, for the first share."""
_SEAM = 0.05
"""Width of the transition into what is filled in beside a photograph, by the picture's height."""

Picture = NDArray[np.uint8]


class Scene(NamedTuple):
    """`picture` RGB (height, width, 3); `points` the mesh in it (468, 3); `person` where somebody
    is, 0..255, of the picture's size."""

    picture: Picture
    points: Array
    person: Picture


def compose(rgb: Picture, face: Face, models: Path) -> Scene:
    """Frame the photograph `rgb` for a 16:9 picture: 1920x1080 where it has that much detail, else
    1280x720. What it does not reach is filled with itself, blurred."""
    size, scale, shift = _frame(rgb.shape[1], rgb.shape[0], face)
    matrix = np.array([[scale, 0.0, shift[0]], [0.0, scale, shift[1]]])
    picture = _placed(rgb, matrix, size, scale)
    points = face.points * np.float32(scale)
    points[:, :2] += np.array(shift)
    return Scene(picture, points.astype(np.float32), find_person(picture, models))


def find_person(picture: Picture, models: Path) -> Picture:
    """Where a person is, 0..255 (MediaPipe's selfie segmentation, Apache-2.0)."""
    height, width = picture.shape[:2]
    try:
        net = cv2.dnn.readNetFromTFLite(str(models / PERSON_FILE))
    except cv2.error as error:
        raise ValueError(f"{models}: cannot read the face models: {error.err}") from error
    small = cv2.resize(picture, (_PERSON_PX, _PERSON_PX), interpolation=cv2.INTER_AREA)
    net.setInput(cv2.dnn.blobFromImage(small, 1 / 255.0))
    share = np.asarray(net.forward(), np.float32).reshape(_PERSON_PX, _PERSON_PX)
    large = cv2.resize(share, (width, height), interpolation=cv2.INTER_LINEAR)
    return np.clip(large * 255, 0, 255).astype(np.uint8)


def _frame(
    width: int, height: int, face: Face
) -> tuple[tuple[int, int], float, tuple[float, float]]:
    """The picture's size, and the photograph's scale and place in it."""
    share = min(max(_FACE_SHARE[0], 16 / 9 * face.height / width), _FACE_SHARE[1])
    # A face that fills its photograph stays large where that avoids filling in above and below.
    share = min(max(share, face.height / height), _LARGEST_SHARE)
    detail = face.height / share
    size = (1920, 1080) if detail >= 1000 else (1280, 720)
    scale = share * size[1] / face.height
    xy = face.points[:, :2]
    middle = float(xy[[234, 454], 0].mean() + xy[:, 0].mean()) / 2
    chin_at = _CHIN_AT + 0.5 * (share - _FACE_SHARE[0])
    x = size[0] / 2 - middle * scale
    y = size[1] * chin_at - float(xy[152, 1]) * scale
    return size, scale, (_held(x, width * scale, size[0]), _held(y, height * scale, size[1]))


def _held(start: float, length: float, room: float) -> float:
    """`start` such that a photograph of `length` covers the `room` if it can."""
    if length >= room:
        return min(max(start, room - length), 0.0)
    return min(max(start, 0.0), room - length)


def _placed(rgb: Picture, matrix: Array, size: tuple[int, int], scale: float) -> Picture:
    if scale < 0.75:
        factor = scale
        smaller = (round(rgb.shape[1] * factor), round(rgb.shape[0] * factor))
        ratio = (rgb.shape[1] / smaller[0], rgb.shape[0] / smaller[1])
        rgb = np.asarray(cv2.resize(rgb, smaller, interpolation=cv2.INTER_AREA), np.uint8)
        matrix = matrix * np.array([[ratio[0], ratio[1], 1.0]])
    placed = cv2.warpAffine(
        rgb, matrix, size, flags=cv2.INTER_LANCZOS4, borderMode=cv2.BORDER_REPLICATE
    ).astype(np.float32)
    inside = cv2.warpAffine(np.ones(rgb.shape[:2], np.float32), matrix, size)
    if inside.min() >= 1.0:
        return _bytes(placed)
    # Feathered inwards over a strip, into a wide blur of the picture with its edges drawn out.
    seam = _SEAM * size[1]
    solid = (inside >= 0.999).astype(np.uint8)
    framed = cv2.copyMakeBorder(solid, 1, 1, 1, 1, cv2.BORDER_REPLICATE)
    distance = cv2.distanceTransform(framed, cv2.DIST_L2, 5)[1:-1, 1:-1]
    weight = np.clip(distance / seam, 0, 1)[..., None]
    weight = weight * weight * (3 - 2 * weight)
    small = cv2.resize(placed, None, fx=1 / 8, fy=1 / 8, interpolation=cv2.INTER_AREA)
    soft = cv2.GaussianBlur(small, (0, 0), size[1] / 8 * 0.05, borderType=cv2.BORDER_REPLICATE)
    filled = cv2.resize(soft, size, interpolation=cv2.INTER_CUBIC)
    return _bytes(placed * weight + filled * (1 - weight))


def _bytes(values: Array) -> Picture:
    return np.clip(np.rint(values), 0, 255).astype(np.uint8)
