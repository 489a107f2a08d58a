"""Painting on a small picture whose colour planes lie apart.

A blend of an interleaved picture by a mask costs NumPy ten times what it costs plane by plane,
so patches are painted as (3, height, width) in luma and chroma differences, the encoder's own
colours, and never pass through RGB.
"""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from renderers.puppet.rig import rgb
from renderers.warp import Planes, rgb_to_ycc, ycc_to_i420
from renderers.warp.arrays import Array

_LARGE = 8192
"""Pixels from which blending plane by plane is cheaper: the temporaries stay in the cache."""


def tone(colour: str | tuple[float, float, float]) -> Array:
    """Luma and chroma differences of `#rrggbb` or (r, g, b): shape (3, 1, 1)."""
    values = rgb(colour) if isinstance(colour, str) else colour
    return rgb_to_ycc(np.array([[values]], np.float32))


def sprite(rgba: Array) -> Array:
    """Colour planes and alpha, (4, height, width), of premultiplied RGBA (height, width, 4)."""
    return np.concatenate(
        [rgb_to_ycc(np.ascontiguousarray(rgba[..., :3])), rgba[None, ..., 3]]
    ).astype(np.float32)


def moved(picture: Array, matrix: NDArray[np.float64], size: tuple[int, int]) -> Array:
    """A sprite under an affine map, on a canvas of `size` (width, height)."""
    planes = [cv2.warpAffine(plane, matrix, size, flags=cv2.INTER_LINEAR) for plane in picture]
    return np.stack(planes)


class Shifted:
    """A sprite that moves up and down by quarter pixels, cut from copies made once."""

    _PHASES = 4

    def __init__(self, rgba: Array, margin: int = 64) -> None:
        planes = sprite(rgba)
        _, height, width = planes.shape
        self._margin = margin
        padded = np.zeros((4, height + 2 * margin, width), np.float32)
        padded[:, margin : margin + height] = planes
        below = np.zeros_like(padded)
        below[:, 1:] = padded[:, :-1]
        self._copies = [
            padded + (below - padded) * np.float32(phase / self._PHASES)
            for phase in range(self._PHASES)
        ]

    def cut(self, rows: slice, columns: slice, down_px: float) -> Array:
        """What shows in a window of the resting picture when the sprite is `down_px` lower."""
        quarters = round(down_px * self._PHASES)
        whole, phase = divmod(quarters, self._PHASES)
        first = rows.start - whole + self._margin
        return self._copies[phase][:, first : first + rows.stop - rows.start, columns]


def bell(distance: Array) -> Array:
    """A smooth hump: 1 at 0, 0.4 at 1, 0 from 2 on; close to a Gaussian, at a third of its cost."""
    t = distance * distance
    t *= np.float32(-0.25)
    t += 1.0
    np.maximum(t, 0.0, out=t)
    result: Array = t * t * t
    return result


def mix(picture: Array, colour: Array, alpha: Array) -> None:
    """Blend `colour`, of shape (3, 1, 1) or the picture's, into `picture` in place."""
    if alpha.size < _LARGE:
        step = colour - picture
        step *= alpha
        picture += step
        return
    for plane, target in zip(picture, colour, strict=True):
        step = target - plane
        step *= alpha
        plane += step


def planes_of(picture: Array) -> Planes:
    """The picture as I420."""
    return ycc_to_i420(picture)
