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

Array = NDArray[np.float32]


def tone(colour: str | tuple[float, float, float]) -> Array:
    """Luma and chroma differences of `#rrggbb` or (r, g, b): shape (3, 1, 1)."""
    values = rgb(colour) if isinstance(colour, str) else colour
    return rgb_to_ycc(np.array([[values]], np.float32))


def sprite(rgba: Array) -> Array:
    """A premultiplied RGBA picture (height, width, 4) as (4, height, width): colour planes, alpha."""
    return np.concatenate(
        [rgb_to_ycc(np.ascontiguousarray(rgba[..., :3])), rgba[None, ..., 3]]
    ).astype(np.float32)


def moved(picture: Array, matrix: NDArray[np.float64], size: tuple[int, int]) -> Array:
    """A sprite under an affine map, on a canvas of `size` (width, height)."""
    planes = [cv2.warpAffine(plane, matrix, size, flags=cv2.INTER_LINEAR) for plane in picture]
    return np.stack(planes)


def bell(distance: Array) -> Array:
    """A smooth hump: 1 at 0, 0.4 at 1, 0 from 2 on; close to a Gaussian, at a third of its cost."""
    t = np.maximum(1.0 - np.float32(0.25) * (distance * distance), 0.0)
    return t * t * t


def mix(picture: Array, colour: Array, alpha: Array) -> None:
    """Blend `colour`, of shape (3, 1, 1) or the picture's, into `picture` in place."""
    picture += (colour - picture) * alpha


def planes_of(picture: Array) -> Planes:
    """The picture as I420."""
    return ycc_to_i420(picture)
