"""How the light on a drawn face changes when the head turns.

The picture is drawn as lit from the front, above and the viewer's left. A head that turns shows the
lamp other parts of itself: by Lambert's law a surface with normal n has n.l of it, so turning it
by a small angle changes that by the angle times a field over the face. The fields here are those
of an ellipsoid, with the shadows that nose and chin cast.
"""

from __future__ import annotations

import cv2
import numpy as np

from renderers.puppet.rig import Rig
from renderers.warp import FieldGrid, smooth_step
from renderers.warp.arrays import Array

_LAMP = (-0.5, 0.55, 0.67)
"""Direction of the lamp: x to the viewer's right, y up, z to the viewer."""

_YAW, _PITCH = 0, 2
"""Which of the head's fields (`renderers.puppet.motion`) have these angles' sines as weights."""


def light_fields(rig: Rig, grid: FieldGrid, plate: Array, fields: int) -> Array:
    """Levels of luma for `WarpStage`, shape (fields, rows, columns)."""
    head, brightness = rig.head, _brightness(grid, plate)
    x = (grid.x - head.centre[0]) / (head.radius[0] * 1.02)
    y = (head.centre[1] - grid.y) / (head.radius[1] * 1.02)
    across = x * x + y * y
    front = np.sqrt(np.maximum(1.0 - across, 0.0))
    # Levels end before the outline does, so that nothing behind it is lit.
    face = smooth_step(1.0, 0.62, across)
    lamp_x, lamp_y, lamp_z = _LAMP
    yaw = (lamp_x * front - lamp_z * x) * face
    pitch = (lamp_y * front - lamp_z * y) * face
    # The shadow beside the nose, and the one of the chin, lie away from the lamp.
    for side in (-1.0, 1.0):
        beside = (head.nose[0] + side * 0.75 * head.nose_radius[0], head.nose[1])
        yaw -= 0.55 * side * _spot(grid, beside, (30.0, 52.0))
    neck = (head.centre[0], head.chin + 30.0)
    under = _spot(grid, neck, (96.0, 48.0)) * smooth_step(head.chin - 6, head.chin + 10, grid.y)
    pitch += 1.1 * under
    yaw -= 0.9 * under * (grid.x - head.centre[0]) / 96.0
    result = np.zeros((fields, *grid.shape), np.float32)
    result[_YAW] = yaw * brightness * head.light
    result[_PITCH] = pitch * brightness * head.light
    return result


def _brightness(grid: FieldGrid, plate: Array) -> Array:
    """Luma around each node: what is dark gives back little of any light."""
    left, top, width, height = grid.region
    rows, columns = grid.shape
    grey = cv2.cvtColor(np.ascontiguousarray(plate, np.float32), cv2.COLOR_RGB2GRAY)
    part = grey[top : top + height, left : left + width]
    cells = cv2.resize(part, (columns - 2, rows - 2), interpolation=cv2.INTER_AREA)
    soft = cv2.GaussianBlur(np.pad(cells, 1, mode="edge"), (0, 0), 1.0)
    return np.asarray(soft, np.float32)


def _spot(grid: FieldGrid, centre: tuple[float, float], radius: tuple[float, float]) -> Array:
    away = np.hypot((grid.x - centre[0]) / radius[0], (grid.y - centre[1]) / radius[1])
    return smooth_step(1.0, 0.0, away)
