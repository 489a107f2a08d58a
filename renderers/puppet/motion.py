"""The displacement fields of a drawn face, and their weights for a pose."""

from __future__ import annotations

import math

import numpy as np

from renderers.contract import Pose
from renderers.puppet.rig import Mouth, Rig
from renderers.warp import FieldGrid, smooth_step
from renderers.warp.arrays import Array


def face_fields(rig: Rig, grid: FieldGrid) -> tuple[Array, Array]:
    """(local, head) banks for `WarpStage`, in the order that `face_weights` uses."""
    return _local_fields(rig, grid), _head_fields(rig, grid)


def jaw_profile(mouth: Mouth, y: Array) -> Array:
    """How much of the jaw's drop reaches the height `y` in the picture, 0..1."""
    return smooth_step(mouth.centre[1] - 4.0, mouth.centre[1] + 58.0, y)


def _bump(grid: FieldGrid, centre: tuple[float, float], radius: tuple[float, float]) -> Array:
    distance = np.hypot((grid.x - centre[0]) / radius[0], (grid.y - centre[1]) / radius[1])
    return smooth_step(1.0, 0.0, distance)


def _rising(low: float, high: Array, values: Array) -> Array:
    """`smooth_step` whose upper end differs from node to node."""
    return smooth_step(0.0, 1.0, (values - low) / (high - low))


def _local_fields(rig: Rig, grid: FieldGrid) -> Array:
    mouth, brows, head = rig.mouth, rig.brows, rig.head
    cx, cy = mouth.centre
    across = smooth_step(head.radius[0] * 1.12, mouth.half_width * 0.9, np.abs(grid.x - cx))
    falling = jaw_profile(mouth, grid.y) * smooth_step(head.chin + 90, head.chin + 6, grid.y)
    jaw = grid.field(0.0, mouth.jaw_px * across * falling)
    # The lid below the brow stays: only the skin between them stretches.
    above_lid = smooth_step(brows.left[1] + 26, brows.left[1] + 2, grid.y)
    raises = [
        grid.field(0.0, -brows.lift_px * above_lid * _bump(grid, centre, brows.radius))
        for centre in (brows.left, brows.right)
    ]
    inner_gap = 0.55
    inner = np.zeros(grid.shape, np.float32)
    pinch = np.zeros(grid.shape, np.float32)
    for centre, side in ((brows.left, 1.0), (brows.right, -1.0)):
        near = (centre[0] + side * brows.radius[0] * inner_gap, centre[1] + 4)
        bump = _bump(grid, near, (brows.radius[0] * 0.62, brows.radius[1])) * above_lid
        inner += bump
        pinch += side * bump
    inner_brow = grid.field(2.2 * pinch, -brows.lift_px * 0.85 * np.minimum(inner, 1.0))
    cheeks = np.zeros(grid.shape, np.float32)
    spread = np.zeros(grid.shape, np.float32)
    for side in (-1.0, 1.0):
        corner = (cx + side * mouth.half_width * 1.32, cy - 40)
        bump = _bump(grid, corner, (62.0, 74.0))
        cheeks += bump
        spread += side * bump
    smile = grid.field(3.0 * spread, -7.0 * cheeks)
    frown = grid.field(
        0.0,
        3.0 * _bump(grid, (cx, cy + 40), (80.0, 60.0))
        - 2.0 * _bump(grid, (cx, cy + 76), (60.0, 30.0)),
    )
    return np.stack([jaw, *raises, inner_brow, smile, frown])


def _head_fields(rig: Rig, grid: FieldGrid) -> Array:
    head, body = rig.head, rig.body
    x, y = grid.x - head.centre[0], grid.y - head.centre[1]
    edge = abs(rig.region.width) / 2
    follows = smooth_step(edge - 8, head.half_width, np.abs(x))
    follows = follows * smooth_step(head.still, head.chin - 40, grid.y)
    # A head is round: above its corners there is more room to come to rest in.
    crown = head.top + 0.4 * head.half_width * np.minimum(np.abs(x) / head.half_width, 1.1) ** 2
    above = _rising(float(rig.region.y), crown, grid.y)
    follows = follows * above
    away = np.hypot(x / head.radius[0], y / head.radius[1])
    # A bulge with bounded slope: a sphere's edge would fold the far cheek over.
    bulge = np.cos(np.clip(away, 0, 1.24) / 1.25 * np.pi / 2) ** 1.5
    nose = smooth_step(
        1.0,
        0.0,
        np.hypot(
            (grid.x - head.nose[0]) / head.nose_radius[0],
            (grid.y - head.nose[1]) / head.nose_radius[1],
        ),
    )
    depth = (head.axis_depth + head.depth * bulge + head.nose_depth * nose) * follows
    px, py = grid.x - head.pivot[0], grid.y - head.pivot[1]
    zero = np.zeros(grid.shape, np.float32)
    floor = smooth_step(float(rig.region.y + rig.region.height), body.shoulders, grid.y)
    sides = smooth_step(edge - 8, head.half_width * 0.8, np.abs(x))
    lift = floor * sides * above
    chest = smooth_step(head.chin - 30, body.shoulders, grid.y)
    return np.stack(
        [
            grid.field(depth, zero),
            grid.field(x * follows, zero),
            grid.field(zero, -depth),
            grid.field(zero, y * follows),
            grid.field(-py * follows, px * follows),
            grid.field(px * follows, py * follows),
            grid.field(zero, -body.breath_px * lift * (0.35 + 0.65 * chest)),
            grid.field(body.sway_px * lift, zero),
        ]
    )


def face_weights(pose: Pose, jaw: float, local: Array, head: Array) -> None:
    """Fill the weights of the two banks. `jaw` 0..1 is the drop of the drawn mouth."""
    local[0] = jaw
    local[1] = _signed(pose.brow_left)
    local[2] = _signed(pose.brow_right)
    local[3] = _signed(pose.brow_inner)
    local[4] = _unit(pose.smile)
    local[5] = _unit(pose.frown)
    yaw, pitch, roll = (
        math.radians(min(max(angle, -limit), limit))
        for angle, limit in ((pose.yaw, 16.0), (pose.pitch, 12.0), (pose.roll, 12.0))
    )
    head[0], head[1] = math.sin(yaw), math.cos(yaw) - 1.0
    head[2], head[3] = math.sin(pitch), math.cos(pitch) - 1.0
    head[4], head[5] = math.sin(roll), math.cos(roll) - 1.0
    head[6] = _unit(pose.breath)
    head[7] = _signed(pose.sway_x)


def _unit(value: float) -> float:
    return min(max(value, 0.0), 1.0)


def _signed(value: float) -> float:
    return min(max(value, -1.0), 1.0)
