"""A picture on stage: the still plate, patches laid on the face, and the warp that moves it all."""

from __future__ import annotations

from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from renderers.contract import I420Frame, Rect
from renderers.warp.arrays import Array
from renderers.warp.colour import Planes, rgb_to_i420
from renderers.warp.fields import CELL_PX, FieldGrid, FieldMixer


class Patch(NamedTuple):
    """Opaque pixels for a rectangle of the plate; `x` and `y` are even."""

    x: int
    y: int
    planes: Planes


class WarpStage:
    """Draws a plate whose `region` is moved by displacement fields.

    `plate` is RGB of shape (height, width, 3), 0..255. Memory is taken once, here.
    """

    def __init__(self, plate: Array, grid: FieldGrid, local: Array, head: Array) -> None:
        height, width = plate.shape[:2]
        region = grid.region
        if region.x + region.width > width or region.y + region.height > height:
            raise ValueError(f"the region {region} leaves the plate of {width}x{height}")
        self.region = region
        self._mixer = FieldMixer(grid, local, head)
        planes = rgb_to_i420(plate)
        self._still = I420Frame.empty(width, height)
        for view, plane in zip(_views(self._still), planes, strict=True):
            np.copyto(view, plane)
        self._face = Planes(*(np.ascontiguousarray(p) for p in _cut(planes, region)))
        rows, columns = grid.shape
        fine = (rows * CELL_PX, columns * CELL_PX)
        half = (fine[0] // 2, fine[1] // 2)
        self._map_luma = [np.empty(fine, np.float32) for _ in range(2)]
        self._map_chroma = [np.empty(half, np.float32) for _ in range(2)]
        self._coarse = [np.empty((rows, columns), np.float32) for _ in range(2)]
        self._coarse_half = [np.empty((rows, columns), np.float32) for _ in range(2)]

    def lay(self, patch: Patch) -> None:
        """Replace a rectangle of the face; it stays until another patch covers it."""
        x, y = patch.x - self.region.x, patch.y - self.region.y
        height, width = patch.planes.y.shape
        self._face.y[y : y + height, x : x + width] = patch.planes.y
        x, y, width, height = x // 2, y // 2, width // 2, height // 2
        self._face.u[y : y + height, x : x + width] = patch.planes.u
        self._face.v[y : y + height, x : x + width] = patch.planes.v

    def draw(self, local: Array, head: Array, frame: I420Frame) -> None:
        """Fill `frame`, with the fields of the two banks weighted by `local` and `head`."""
        self._fill_around(frame)
        source = self._mixer.mix(local, head)
        luma, chroma = self._maps(source)
        targets = _cut(Planes(*_views(frame)), self.region)
        maps = (luma, chroma, chroma)
        for face, target, (map_x, map_y) in zip(self._face, targets, maps, strict=True):
            cv2.remap(
                face,
                map_x,
                map_y,
                cv2.INTER_LINEAR,
                dst=target,
                borderMode=cv2.BORDER_REPLICATE,
            )

    def _fill_around(self, frame: I420Frame) -> None:
        # The caller's buffer may hold anything, so all that the remap leaves out is copied.
        for still, target, face in zip(_views(self._still), _views(frame), self._face, strict=True):
            scale = self._still.width // still.shape[1]
            x, y = self.region.x // scale, self.region.y // scale
            height, width = face.shape
            target[:y] = still[:y]
            target[y + height :] = still[y + height :]
            target[y : y + height, :x] = still[y : y + height, :x]
            target[y : y + height, x + width :] = still[y : y + height, x + width :]

    def _maps(self, source: Array) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        pad = CELL_PX
        luma, chroma = [], []
        for axis in range(2):
            coarse, half = self._coarse[axis], self._coarse_half[axis]
            np.copyto(coarse, source[..., axis])
            # A chroma sample sits between two luma samples: c = (l - 0.5) / 2.
            np.multiply(coarse, 0.5, out=half)
            np.subtract(half, 0.25, out=half)
            fine, fine_c = self._map_luma[axis], self._map_chroma[axis]
            cv2.resize(coarse, fine.shape[::-1], dst=fine, interpolation=cv2.INTER_LINEAR)
            cv2.resize(half, fine_c.shape[::-1], dst=fine_c, interpolation=cv2.INTER_LINEAR)
            luma.append(fine[pad:-pad, pad:-pad])
            chroma.append(fine_c[pad // 2 : -pad // 2, pad // 2 : -pad // 2])
        return (luma[0], luma[1]), (chroma[0], chroma[1])


def _views(frame: I420Frame) -> tuple[NDArray[np.uint8], NDArray[np.uint8], NDArray[np.uint8]]:
    return frame.y, frame.u, frame.v


def _cut(planes: Planes, rect: Rect) -> Planes:
    x, y, width, height = rect
    half = np.s_[y // 2 : (y + height) // 2, x // 2 : (x + width) // 2]
    return Planes(planes.y[y : y + height, x : x + width], planes.u[half], planes.v[half])
