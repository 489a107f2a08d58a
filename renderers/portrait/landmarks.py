"""Finds faces in a picture, and the mesh of 468 points on each.

Both networks are MediaPipe's (Apache-2.0), run by OpenCV. What goes in and comes out follows their
published graphs: `face_detection_short_range` (BlazeFace; Bazarevsky et al., 2019,
arXiv:1907.05047) and `face_landmark` (Kartynnik et al., 2019, arXiv:1907.06724).
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from renderers.warp.arrays import Array

DETECTOR_FILE, MESH_FILE = "face_detection_short_range.tflite", "face_landmark.tflite"

POINTS = 468

_DETECTOR_PX, _MESH_PX = 128, 192
_SURE = 0.6
"""A detection's score from which the mesh is tried,"""
_FACE = 0.7
"""and the mesh network's own score from which it is a face."""
_OVERLAP = 0.3
_ROI = 1.5
"""The mesh is looked for in a square this much larger than the face's box."""

Picture = NDArray[np.uint8]


class Face(NamedTuple):
    """`points` has shape (468, 3): x and y in picture pixels, z in the same unit, smaller nearer
    to the camera. `score` is 0..1."""

    points: Array
    score: float

    @property
    def height(self) -> float:
        """Forehead to chin, in pixels."""
        return float(np.hypot(*(self.points[152, :2] - self.points[10, :2])))


class FaceFinder:
    """Both networks, from the `folder` that holds their files. Raises `ValueError` if they cannot
    be read."""

    def __init__(self, folder: Path) -> None:
        try:
            self._detector = cv2.dnn.readNetFromTFLite(str(folder / DETECTOR_FILE))
            self._mesh = cv2.dnn.readNetFromTFLite(str(folder / MESH_FILE))
        except cv2.error as error:
            raise ValueError(f"{folder}: cannot read the face models: {error.err}") from error
        self._anchors = _anchors()

    def find(self, rgb: Picture) -> list[Face]:
        """All faces in a picture of shape (height, width, 3), the largest first.

        The detector is made for faces that fill a fifth of the picture and more, so parts of the
        picture are searched, too.
        """
        height, width = rgb.shape[:2]
        boxes: list[Array] = []
        for part in (1.0, 0.5):
            side_x, side_y = round(width * part), round(height * part)
            for x in _starts(width, side_x):
                for y in _starts(height, side_y):
                    found = self._detect(rgb[y : y + side_y, x : x + side_x])
                    found[:, :2] += (x, y)
                    found[:, 4:8] += (x, y, x, y)
                    boxes.extend(found)
        faces: list[Face] = []
        for box in _apart(boxes):
            face = self._refined(rgb, box)
            if face is not None and not any(_same(face, other) for other in faces):
                faces.append(face)
        return sorted(faces, key=lambda face: -face.height)

    def _detect(self, rgb: Picture) -> Array:
        """Rows of (centre x, y, side, score, right eye x, y, left eye x, y), in pixels."""
        height, width = rgb.shape[:2]
        side = max(height, width)
        scale = _DETECTOR_PX / side
        shift = ((side - width) / 2, (side - height) / 2)
        matrix = np.array([[scale, 0, shift[0] * scale], [0, scale, shift[1] * scale]])
        small = _shrunk(rgb, matrix, _DETECTOR_PX, scale)
        self._detector.setInput(cv2.dnn.blobFromImage(small, 1 / 127.5, mean=(127.5,) * 3))
        regressors = np.asarray(self._detector.forward("regressors"), np.float32).reshape(-1, 16)
        logits = np.asarray(self._detector.forward("classificators"), np.float32).reshape(-1)
        scores = 1 / (1 + np.exp(-np.clip(logits, -80, 80)))
        sure = scores > _SURE
        values = regressors[sure]
        values[:, 0::2] += self._anchors[sure, :1] * _DETECTOR_PX
        values[:, 1::2] += self._anchors[sure, 1:] * _DETECTOR_PX
        values[:, 2:4] -= self._anchors[sure] * _DETECTOR_PX
        rows = np.empty((len(values), 8), np.float32)
        rows[:, :2], rows[:, 2] = values[:, :2] / scale, values[:, 2:4].max(axis=1) / scale
        rows[:, 3], rows[:, 4:] = scores[sure], values[:, 4:8] / scale
        for column in (0, 4, 6):
            rows[:, column] -= shift[0]
            rows[:, column + 1] -= shift[1]
        return rows

    def _refined(self, rgb: Picture, box: Array) -> Face | None:
        """The mesh in a detected box; looked for again where the first look says that it is."""
        right, left = box[4:6], box[6:8]
        angle = math.atan2(left[1] - right[1], left[0] - right[0])
        face = self._look(rgb, (float(box[0]), float(box[1])), float(box[2]) * _ROI, angle)
        for _ in range(2):
            if face.score < _FACE:
                return None
            xy = face.points[:, :2]
            step = xy[263] - xy[33]
            angle = math.atan2(float(step[1]), float(step[0]))
            turn = np.array(
                [[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]]
            )
            level = xy @ turn.T
            low, high = level.min(axis=0), level.max(axis=0)
            centre = turn.T @ ((low + high) / 2)
            side = float((high - low).max()) * _ROI
            face = self._look(rgb, (float(centre[0]), float(centre[1])), side, angle)
        return face if face.score >= _FACE else None

    def _look(self, rgb: Picture, centre: tuple[float, float], side: float, angle: float) -> Face:
        scale = _MESH_PX / side
        cos, sin = math.cos(angle) * scale, math.sin(angle) * scale
        half = _MESH_PX / 2
        matrix = np.array(
            [
                [cos, sin, half - cos * centre[0] - sin * centre[1]],
                [-sin, cos, half + sin * centre[0] - cos * centre[1]],
            ]
        )
        small = _shrunk(rgb, matrix, _MESH_PX, scale)
        self._mesh.setInput(cv2.dnn.blobFromImage(small, 1 / 255.0))
        points = np.asarray(self._mesh.forward("conv2d_21"), np.float32).reshape(POINTS, 3)
        logit = float(np.asarray(self._mesh.forward("conv2d_31")).reshape(-1)[0])
        back: Any = cv2.invertAffineTransform(matrix)
        xy = points[:, :2] @ back[:, :2].T + back[:, 2]
        placed = np.column_stack([xy, points[:, 2] / scale]).astype(np.float32)
        return Face(placed, 1 / (1 + math.exp(-min(max(logit, -80.0), 80.0))))


def _shrunk(rgb: Picture, matrix: Array, side: int, scale: float) -> Picture:
    """`rgb` under an affine map onto a square, without the aliases of far reduction."""
    if scale < 0.5:
        factor = 2 * scale
        size = (max(1, round(rgb.shape[1] * factor)), max(1, round(rgb.shape[0] * factor)))
        ratio = (rgb.shape[1] / size[0], rgb.shape[0] / size[1])
        rgb = np.asarray(cv2.resize(rgb, size, interpolation=cv2.INTER_AREA), np.uint8)
        matrix = matrix * np.array([[ratio[0], ratio[1], 1.0]])
    found = cv2.warpAffine(rgb, matrix, (side, side), flags=cv2.INTER_LINEAR)
    return np.asarray(found, np.uint8)


def _anchors() -> Array:
    """Centres (0..1) of the detector's 896 anchors: two on each of 16x16 cells, six on 8x8."""
    rows = []
    for cells, each in ((16, 2), (8, 6)):
        middle = (np.arange(cells) + 0.5) / cells
        x, y = np.meshgrid(middle, middle)
        rows.append(np.repeat(np.stack([x.ravel(), y.ravel()], axis=1), each, axis=0))
    return np.concatenate(rows).astype(np.float32)


def _starts(length: int, side: int) -> list[int]:
    return [0] if side >= length else [0, (length - side) // 2, length - side]


def _apart(boxes: list[Array]) -> list[Array]:
    """The best of those that overlap."""
    kept: list[Array] = []
    for box in sorted(boxes, key=lambda row: -float(row[3])):
        if all(_shared(box, other) < _OVERLAP for other in kept):
            kept.append(box)
    return kept


def _shared(one: Array, other: Array) -> float:
    """Intersection over union of two boxes."""
    low = np.maximum(one[:2] - one[2] / 2, other[:2] - other[2] / 2)
    high = np.minimum(one[:2] + one[2] / 2, other[:2] + other[2] / 2)
    inside = float(np.prod(np.maximum(high - low, 0)))
    return inside / float(one[2] ** 2 + other[2] ** 2 - inside)


def _same(one: Face, other: Face) -> bool:
    apart = float(np.hypot(*(one.points[:, :2].mean(axis=0) - other.points[:, :2].mean(axis=0))))
    return apart < 0.5 * max(one.height, other.height)
