"""The displacement fields of a photographed head, and their weights for a pose.

A photograph has no other side, and its background is part of it. So movements are small, every
field ends softly, the jaw moves only within the face's outline, and a head is followed only by
what belongs to the person.
"""

from __future__ import annotations

import math

import cv2
import numpy as np

from renderers.contract import Pose, Rect
from renderers.portrait.geometry import Head, Lips
from renderers.warp import FieldGrid, smooth_step
from renderers.warp.arrays import Array

YAW_DEG, PITCH_DEG, ROLL_DEG = 6.0, 4.0, 2.6
"""What the head's angles come to at most."""

JAW_PX = 14.0
"""How far the chin drops (at the size that shapes are given for)."""
BROW_PX, SWAY_PX, BREATH_PX = 5.0, 3.0, 1.6

_FIELD_ALIGN = 16


def region_of(head: Head, size: tuple[int, int]) -> Rect:
    """The part of the picture that moves: head, hair and some of the neck."""
    width, height = size
    half = 1.08 * head.width
    x, y = head.axes.origin
    top = y - 0.5 * head.height - 0.52 * head.height
    bottom = y + 0.5 * head.height + 0.42 * head.height
    left, right = max(0.0, x - half), min(float(width), x + half)
    top, bottom = max(0.0, top), min(float(height), bottom)
    left_px = int(left) // 2 * 2
    top_px = int(top) // 2 * 2
    return Rect(
        left_px,
        top_px,
        max(int(right - left_px) // _FIELD_ALIGN, 1) * _FIELD_ALIGN,
        max(int(bottom - top_px) // _FIELD_ALIGN, 1) * _FIELD_ALIGN,
    )


def jaw_profile(lips: Lips, unit: float, t: Array) -> Array:
    """How much of the jaw's drop reaches the height `t` along the mouth's axes, 0..1."""
    return smooth_step(2.0 * unit, max(0.72 * lips.chin, 24.0 * unit), t)


def local_fields(head: Head, lips: Lips, grid: FieldGrid) -> Array:
    """Jaw, left brow, right brow, inner brows, smile."""
    unit = head.unit
    down = (-math.sin(head.axes.angle), math.cos(head.axes.angle))
    s, t = lips.axes.along(grid.x, grid.y)
    chin = lips.chin
    # The jaw's half width by height, from the outline; below the chin the neck takes it up.
    outline_s, outline_t = lips.axes.along(*head.axes.back(head.outline[:, 0], head.outline[:, 1]))
    jaw_half = _half_width(outline_s, outline_t, t)
    inside = smooth_step(1.04, 0.5, np.abs(s) / np.maximum(jaw_half, 1.0))
    below = smooth_step(chin + 62 * unit, chin + 2 * unit, t)
    drop = JAW_PX * unit * jaw_profile(lips, unit, t) * inside * below
    jaw = grid.field(down[0] * drop, down[1] * drop)
    raises = []
    eye_gap = abs(head.brows[1][0] - head.brows[0][0])
    radius = (0.46 * eye_gap, 30.0 * unit)
    inner = np.zeros(grid.shape, np.float32)
    for centre, side in zip(head.brows, (1.0, -1.0), strict=True):
        # Upwards the forehead takes it up, downwards the lid's fold: the lid stays.
        rise = _bump(grid, (centre[0], centre[1] - 8 * unit), radius)
        raises.append(_upwards(grid, down, BROW_PX * unit * rise))
        near = (centre[0] + side * 0.2 * eye_gap, centre[1] - 5 * unit)
        inner += _bump(grid, near, (0.26 * eye_gap, 28.0 * unit))
    inner_brow = _upwards(grid, down, 0.7 * BROW_PX * unit * np.minimum(inner, 1.0))
    cheeks = np.zeros(grid.shape, np.float32)
    for side in (-1.0, 1.0):
        at = lips.axes.point(side * 1.35 * lips.half, -38 * unit)
        cheeks += _bump(grid, at, (44 * unit, 46 * unit))
    smile = _upwards(grid, down, 2.2 * unit * cheeks)
    return np.stack([jaw, *raises, inner_brow, smile])


def head_fields(head: Head, points: Array, person: Array, grid: FieldGrid) -> Array:
    """Yaw, pitch, roll (each by the sine of the angle), breath, sway."""
    unit = head.unit
    _, t = head.axes.along(grid.x, grid.y)
    chin = head.chin[1]
    follows = _person_at(person, grid, 16 * unit)
    follows = follows * smooth_step(chin + 0.40 * head.height, chin - 0.02 * head.height, t)
    depth = _depth(points, head, grid) * follows
    down = (-math.sin(head.axes.angle), math.cos(head.axes.angle))
    across = (down[1], -down[0])
    pivot = head.axes.point(head.chin[0], chin - 0.05 * head.height)
    px, py = grid.x - pivot[0], grid.y - pivot[1]
    chest = smooth_step(chin - 0.5 * head.height, chin, t)
    breath = BREATH_PX * unit * (0.5 + 0.5 * chest) * follows
    sway = SWAY_PX * unit * follows
    return np.stack(
        [
            grid.field(across[0] * depth, across[1] * depth),
            grid.field(-down[0] * depth, -down[1] * depth),
            grid.field(-py * follows, px * follows),
            grid.field(-down[0] * breath, -down[1] * breath),
            grid.field(across[0] * sway, across[1] * sway),
        ]
    )


def fill_weights(pose: Pose, jaw: float, movement: float, local: Array, head: Array) -> None:
    """The weights of both banks for a pose; `jaw` 0..1 is that of the drawn mouth."""
    local[0] = jaw
    local[1] = _signed(pose.brow_left)
    local[2] = _signed(pose.brow_right)
    local[3] = _signed(pose.brow_inner)
    local[4] = min(max(pose.smile, 0.0), 1.0)
    head[0] = movement * _bounded(pose.yaw, YAW_DEG)
    head[1] = movement * _bounded(pose.pitch, PITCH_DEG)
    head[2] = movement * _bounded(pose.roll, ROLL_DEG)
    head[3] = movement * min(max(pose.breath, 0.0), 1.0)
    head[4] = movement * _signed(pose.sway_x)


def _bounded(angle: float, limit: float) -> float:
    """The sine of an angle (degrees) that comes close to `limit` and never passes it."""
    return math.sin(math.radians(limit * math.tanh(0.8 * angle / limit)))


def _signed(value: float) -> float:
    return min(max(value, -1.0), 1.0)


def _bump(grid: FieldGrid, centre: tuple[float, float], radius: tuple[float, float]) -> Array:
    distance = np.hypot((grid.x - centre[0]) / radius[0], (grid.y - centre[1]) / radius[1])
    return smooth_step(1.0, 0.0, distance)


def _upwards(grid: FieldGrid, down: tuple[float, float], amount: Array) -> Array:
    return grid.field(-down[0] * amount, -down[1] * amount)


def _half_width(s: Array, t: Array, at: Array) -> Array:
    """Half the outline's width at each height; below it, that of the chin's last part."""
    order = np.argsort(t)
    heights, widths = t[order], np.abs(s[order])
    steps = np.linspace(heights[0], heights[-1], 24)
    half = np.array([widths[np.abs(heights - step).argsort()[:3]].max() for step in steps])
    # The chin moves as broad as it is, not as a point.
    half = np.maximum(half, 0.66 * np.interp(0.0, steps, half))
    return np.asarray(np.interp(at, steps, half), np.float32)


def _person_at(person: Array, grid: FieldGrid, soft_px: float) -> Array:
    """Where the person is, with a soft margin around it, at the grid's nodes."""
    scale = 1 / 4
    small = cv2.resize(person, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
    reach = max(1, round(soft_px * scale))
    grown = cv2.dilate(small, np.ones((2 * reach + 1, 2 * reach + 1), np.uint8))
    soft = cv2.GaussianBlur(grown, (0, 0), max(soft_px * scale, 1.0))
    at = cv2.remap(
        soft,
        (grid.x + 0.5) * scale - 0.5,
        (grid.y + 0.5) * scale - 0.5,
        cv2.INTER_LINEAR,
        borderMode=cv2.BORDER_REPLICATE,
    )
    return np.asarray(at, np.float32)


def _depth(points: Array, head: Head, grid: FieldGrid) -> Array:
    """How far each node lies before the axis that the head turns about, in pixels.

    The mesh's depth, smoothed; beyond the face it falls to that of the hair. What lies at the
    face's outline is nearly on the axis: so a turn hardly moves the background beside it.
    """
    soft = 0.075 * head.height
    x, y, z = (points[:, axis].astype(np.float32) for axis in range(3))
    edge = float(np.median(z[[234, 454, 127, 356, 93, 323, 10]]))
    near = np.maximum(edge - z, 0.0)
    weight = np.zeros(grid.shape, np.float32)
    total = np.zeros(grid.shape, np.float32)
    for px, py, pz in zip(x, y, near, strict=True):
        share = np.exp(-((grid.x - px) ** 2 + (grid.y - py) ** 2) / np.float32(2 * soft * soft))
        weight += share
        total += share * pz
    inside = total / np.maximum(weight, 1e-3)
    on_face = smooth_step(0.02, 1.2, weight)
    # Hair and neck: a shallow dome over the whole head.
    s, t = head.axes.along(grid.x, grid.y)
    away = np.hypot(s / (0.78 * head.width), (t + 0.06 * head.height) / (0.92 * head.height))
    dome = 0.10 * head.height * np.cos(np.clip(away, 0, 1) * np.pi / 2) ** 2
    result: Array = (0.72 * inside * on_face + dome).astype(np.float32)
    return result
