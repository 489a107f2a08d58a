"""Laying a drawn mouth over a picture, without a seam."""

from __future__ import annotations

from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from renderers.contract import I420Frame, Rect
from renderers.warp import Planes, rgb_to_i420
from renderers.warp.arrays import Array

Pixels = NDArray[np.uint8]
Weights = Array
"""float32, 0..1."""

_HALF = 0.5
"""Networks of this kind see a face's upper half, and draw the lower."""


class _Layer(NamedTuple):
    """Of one plane: how much the new face counts, how much the picture, and room for both scaled by
    the strength."""

    new: Weights
    old: Weights
    new_scaled: Weights
    old_scaled: Weights


class Paste:
    """Lays faces of a fixed box size over frames. One thread at a time.

    The lower half of the box is taken over. Within `feather` (a share of the box) of its left,
    right and lower edges, and above the half, it goes over into the picture.
    """

    def __init__(self, width: int, height: int, feather: float) -> None:
        """`width` and `height` of the box are even."""
        self._top = 2 * int((_HALF - feather) * height / 2)
        self._size = (width, height)
        mask = _mask(width, height, feather)[self._top :]
        half = cv2.resize(mask, (width // 2, len(mask) // 2), interpolation=cv2.INTER_AREA)
        self._layers = [_layer(mask), _layer(np.asarray(half, np.float32))]

    def area(self, box: Rect) -> Rect:
        """What `lay` changes of a frame."""
        return Rect(box.x, box.y + self._top, box.width, box.height - self._top)

    def lay(self, face: Planes, box: Rect, strength: float, frame: I420Frame) -> None:
        """Blend `face`, the planes of the whole box at any size, into `frame`; `strength` 0..1."""
        area = self.area(box)
        width, height = self._size
        for plane, target, scale in (
            (face.y, frame.y, 1),
            (face.u, frame.u, 2),
            (face.v, frame.v, 2),
        ):
            side = (width // scale, height // scale)
            grown = cv2.resize(plane, side, interpolation=cv2.INTER_CUBIC)[self._top // scale :]
            x, y, wide, high = (value // scale for value in area)
            part = target[y : y + high, x : x + wide]
            layer = self._layers[scale - 1]
            new, old = layer.new, layer.old
            if strength < 1:
                new = np.multiply(layer.new, np.float32(strength), out=layer.new_scaled)
                old = np.subtract(np.float32(1), new, out=layer.old_scaled)
            part[:] = cv2.blendLinear(np.ascontiguousarray(grown), part.copy(), new, old)


def planes_of(face: Pixels) -> Planes:
    """A face RGB (size, size, 3), with an even size, as planes."""
    return rgb_to_i420(face.astype(np.float32))


def _layer(mask: Weights) -> _Layer:
    return _Layer(mask, np.asarray(1 - mask, np.float32), np.zeros_like(mask), np.zeros_like(mask))


def _mask(width: int, height: int, feather: float) -> Weights:
    x = (np.arange(width, dtype=np.float32) + 0.5) / width
    y = (np.arange(height, dtype=np.float32) + 0.5) / height
    across = _rise(np.minimum(x, 1 - x), feather)
    down = _rise(y - (_HALF - feather), feather) * _rise(1 - y, feather)
    return np.ascontiguousarray(down[:, None] * across[None, :], np.float32)


def _rise(distance: Weights, over: float) -> Weights:
    """0 at 0, 1 from `over` on, smooth."""
    t = np.clip(distance / max(over, 1e-6), 0, 1)
    return np.asarray(t * t * (3 - 2 * t), np.float32)
