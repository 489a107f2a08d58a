"""Where the parts of a face are, from its mesh: curves along the axes of the face.

Indices are those of MediaPipe's canonical face model. "Left" and "right" are the viewer's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import cv2
import numpy as np

from renderers.contract import Rect
from renderers.warp import smooth_step
from renderers.warp.arrays import Array

REFERENCE_PX = 337.0
"""Forehead to chin of the drawn characters that mouth shapes are given for, in 720p."""

_OUTER_UPPER = (61, 185, 40, 39, 37, 0, 267, 269, 270, 409, 291)
_INNER_UPPER = (61, 191, 80, 81, 82, 13, 312, 311, 310, 415, 291)
_INNER_LOWER = (61, 95, 88, 178, 87, 14, 317, 402, 318, 324, 291)
_OUTER_LOWER = (61, 146, 91, 181, 84, 17, 314, 405, 321, 375, 291)
_LEFT_UPPER, _LEFT_LOWER = (
    (33, 246, 161, 160, 159, 158, 157, 173, 133),
    (33, 7, 163, 144, 145, 153, 154, 155, 133),
)
_RIGHT_UPPER, _RIGHT_LOWER = (
    (362, 398, 384, 385, 386, 387, 388, 466, 263),
    (362, 382, 381, 380, 374, 373, 390, 249, 263),
)
_LEFT_BROW, _RIGHT_BROW = (
    (70, 63, 105, 66, 107, 46, 53, 52, 65, 55),
    (
        *(300, 293, 334, 296, 336),
        *(276, 283, 282, 295, 285),
    ),
)
OVAL = (
    *(10, 338, 297, 332, 284, 251, 389, 356, 454, 323, 361, 288, 397, 365, 379, 378, 400, 377),
    *(152, 148, 176, 149, 150, 136, 172, 58, 132, 93, 234, 127, 162, 21, 54, 103, 67, 109),
)


@dataclass(frozen=True)
class Axes:
    """A frame of reference on the face: `origin`, and the direction `angle` (radians) in which its
    first axis runs."""

    origin: tuple[float, float]
    angle: float

    def along(self, x: Array, y: Array) -> tuple[Array, Array]:
        """Picture positions in this frame."""
        cos, sin = math.cos(self.angle), math.sin(self.angle)
        dx, dy = x - self.origin[0], y - self.origin[1]
        return dx * cos + dy * sin, dy * cos - dx * sin

    def back(self, s: Array, t: Array) -> tuple[Array, Array]:
        """And the way back."""
        cos, sin = math.cos(self.angle), math.sin(self.angle)
        return s * cos - t * sin + self.origin[0], s * sin + t * cos + self.origin[1]

    def point(self, s: float, t: float) -> tuple[float, float]:
        """The way back for one point."""
        x, y = self.back(np.asarray(s), np.asarray(t))
        return float(x), float(y)


@dataclass(frozen=True)
class Curve:
    """Heights at even steps from -`half` to `half`, in pixels along some `Axes`; level beyond."""

    half: float
    t: Array

    def __call__(self, at: Array) -> Array:
        step = 2 * self.half / (len(self.t) - 1)
        x = np.asarray((at + np.float32(self.half)) * np.float32(1 / step), np.float32)
        flat = np.atleast_2d(x)
        # OpenCV looks positions up at a tenth of what NumPy's interp takes.
        found = cv2.remap(
            self.t[None, :],
            flat,
            np.zeros_like(flat),
            cv2.INTER_LINEAR,
            borderMode=cv2.BORDER_REPLICATE,
        )
        return np.asarray(found, np.float32).reshape(x.shape)


@dataclass(frozen=True)
class Lips:
    """The mouth: `half` its half width; curves along `axes`, whose origin is its middle."""

    axes: Axes
    half: float
    outer_upper: Curve
    inner_upper: Curve
    inner_lower: Curve
    outer_lower: Curve
    nose: float
    """Height of the nose's base,"""
    chin: float
    """and of the chin."""

    @property
    def parted(self) -> float:
        """Greatest distance of the inner edges."""
        at = np.linspace(-self.half, self.half, 41)
        return float((self.inner_lower(at) - self.inner_upper(at)).max())


@dataclass(frozen=True)
class EyeShape:
    """One eye: curves of its lids along `axes` from corner to corner."""

    axes: Axes
    half: float
    upper: Curve
    lower: Curve
    brow: float
    """Height of the brow's lower edge."""


@dataclass(frozen=True)
class Head:
    """The head as a whole, along `axes` whose origin is the middle of the face."""

    axes: Axes
    unit: float
    """Its size by that of the characters that shapes are given for."""
    width: float
    height: float
    chin: tuple[float, float]
    """The chin along the axes."""
    brows: tuple[tuple[float, float], tuple[float, float]]
    """Middles of both, in the picture."""
    outline: Array
    """The face's outline along the axes, shape (36, 2)."""


def head_of(points: Array) -> Head:
    xy = points[:, :2]
    angle = _angle(xy[33], xy[263])
    middle = (xy[10] + xy[152] + xy[234] + xy[454]) / 4
    axes = Axes((float(middle[0]), float(middle[1])), angle)
    outline = np.stack(axes.along(xy[list(OVAL), 0], xy[list(OVAL), 1]), axis=1)
    chin = axes.along(*xy[152])
    brows = [xy[list(group)].mean(axis=0) for group in (_LEFT_BROW, _RIGHT_BROW)]
    height = float(np.hypot(*(xy[152] - xy[10])))
    return Head(
        axes=axes,
        unit=height / REFERENCE_PX,
        width=float(np.hypot(*(xy[454] - xy[234]))),
        height=height,
        chin=(float(chin[0]), float(chin[1])),
        brows=(
            (float(brows[0][0]), float(brows[0][1])),
            (float(brows[1][0]), float(brows[1][1])),
        ),
        outline=outline.astype(np.float32),
    )


def lips_of(points: Array) -> Lips:
    xy = points[:, :2]
    left, right = xy[61], xy[291]
    middle = (left + right) / 2
    axes = Axes((float(middle[0]), float(middle[1])), _angle(left, right))
    half = float(np.hypot(*(right - left))) / 2

    def curve(indices: tuple[int, ...]) -> Curve:
        return _curve(axes, xy[list(indices)], half)

    return Lips(
        axes=axes,
        half=half,
        outer_upper=curve(_OUTER_UPPER),
        inner_upper=curve(_INNER_UPPER),
        inner_lower=curve(_INNER_LOWER),
        outer_lower=curve(_OUTER_LOWER),
        nose=float(axes.along(*xy[2])[1]),
        chin=float(axes.along(*xy[152])[1]),
    )


def eyes_of(points: Array) -> tuple[EyeShape, EyeShape]:
    """The left one and the right one."""
    return (
        _eye(points[:, :2], _LEFT_UPPER, _LEFT_LOWER, _LEFT_BROW[5:]),
        _eye(points[:, :2], _RIGHT_UPPER, _RIGHT_LOWER, _RIGHT_BROW[5:]),
    )


def _eye(
    xy: Array, upper: tuple[int, ...], lower: tuple[int, ...], brow: tuple[int, ...]
) -> EyeShape:
    left, right = xy[upper[0]], xy[upper[-1]]
    middle = (left + right) / 2
    axes = Axes((float(middle[0]), float(middle[1])), _angle(left, right))
    half = float(np.hypot(*(right - left))) / 2
    brow_t = axes.along(xy[list(brow), 0], xy[list(brow), 1])[1]
    return EyeShape(
        axes=axes,
        half=half,
        upper=_curve(axes, xy[list(upper)], half),
        lower=_curve(axes, xy[list(lower)], half),
        brow=float(np.median(brow_t)),
    )


def _curve(axes: Axes, xy: Array, half: float) -> Curve:
    """A smooth curve through points of the mesh that run from one corner to the other."""
    s, t = axes.along(xy[:, 0], xy[:, 1])
    order = np.argsort(s)
    fine = np.linspace(-half, half, 129)
    heights = np.interp(fine, s[order], t[order])
    padded = np.pad(heights, 16, mode="reflect", reflect_type="odd")
    soft = cv2.GaussianBlur(padded[None].astype(np.float32), (0, 0), 4.0)[0, 16:-16]
    # The corners stay where all curves meet.
    ends = np.abs(np.linspace(-1, 1, 129)) ** 8
    return Curve(half, (soft * (1 - ends) + heights * ends).astype(np.float32))


def _angle(left: Array, right: Array) -> float:
    return math.atan2(float(right[1] - left[1]), float(right[0] - left[0]))


def even_box(x: Array, y: Array, size: tuple[int, int]) -> Rect:
    """The smallest rectangle of even sides within a picture around these positions."""
    left, top = (max(0, math.floor(float(v.min())) // 2 * 2) for v in (x, y))
    right = min(size[0], math.ceil(float(x.max())) // 2 * 2 + 2)
    bottom = min(size[1], math.ceil(float(y.max())) // 2 * 2 + 2)
    return Rect(left, top, right - left, bottom - top)


def pixel_grid(box: Rect) -> tuple[Array, Array]:
    """Positions of the pixels' centres in `box`, where pixel (0, 0) lies at 0, 0."""
    x, y = np.meshgrid(
        np.arange(box.x, box.x + box.width, dtype=np.float32),
        np.arange(box.y, box.y + box.height, dtype=np.float32),
    )
    return x, y


def border(box: Rect, soft_px: float) -> Array:
    """0 at the rim of `box`, 1 from `soft_px` within on."""
    x = np.arange(box.width, dtype=np.float32)
    y = np.arange(box.height, dtype=np.float32)[:, None]
    inwards = np.minimum(np.minimum(x, box.width - 1 - x), np.minimum(y, box.height - 1 - y))
    return smooth_step(0.0, soft_px, inwards)
