"""A picture on stage: the still plate, patches laid on the face, and the warp that moves it all."""

from __future__ import annotations

from typing import Any, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from renderers.contract import I420Frame, Rect
from renderers.warp.arrays import Array
from renderers.warp.colour import Planes, rgb_to_i420
from renderers.warp.fields import CELL_PX, FieldGrid, FieldMixer

STRIP_CELLS = 11
"""Rows of cells that are sampled together: their maps (half a megabyte) stay in the cache."""

STEP_PX = 1 / 16
"""Sampling positions are rounded to this, which no eye sees, so that what moves less is not
drawn again."""


class Patch(NamedTuple):
    """Opaque pixels for a rectangle of the plate; `x` and `y` are even."""

    x: int
    y: int
    planes: Planes


class WarpStage:
    """Draws a plate whose `region` is moved by displacement fields.

    `plate` is RGB of shape (height, width, 3), 0..255. Memory is taken once, here. What a frame
    shows depends on the weights and patches of that frame alone; only those strips of the region
    are sampled anew whose positions or pixels differ from the frame before.
    """

    def __init__(self, plate: Array, grid: FieldGrid, local: Array, head: Array) -> None:
        height, width = plate.shape[:2]
        region = grid.region
        if region.x + region.width > width or region.y + region.height > height:
            raise ValueError(f"the region {region} leaves the plate of {width}x{height}")
        self.region = region
        self._mixer = FieldMixer(grid, local, head)
        planes = rgb_to_i420(plate)
        self._shown = I420Frame.empty(width, height)
        for view, plane in zip(_views(self._shown), planes, strict=True):
            np.copyto(view, plane)
        self._face = Planes(*(np.ascontiguousarray(p) for p in _cut(planes, region)))
        self._targets = _cut(Planes(*_views(self._shown)), region)
        rows, columns = grid.shape
        self._position = np.empty((rows, columns, 2), np.float32)
        self._used = np.full((rows, columns, 2), np.nan, np.float32)
        self._axes = [np.empty((rows, columns), np.float32) for _ in range(4)]
        fine = ((STRIP_CELLS + 2) * CELL_PX, columns * CELL_PX)
        self._maps = [np.empty(fine, np.float32) for _ in range(2)]
        self._half_maps = [np.empty((fine[0] // 2, fine[1] // 2), np.float32) for _ in range(2)]
        self._laid: list[Rect] = []

    def lay(self, patch: Patch) -> None:
        """Replace a rectangle of the face; it stays until another patch covers it."""
        x, y = patch.x - self.region.x, patch.y - self.region.y
        height, width = patch.planes.y.shape
        self._laid.append(Rect(x, y, width, height))
        self._face.y[y : y + height, x : x + width] = patch.planes.y
        x, y, width, height = x // 2, y // 2, width // 2, height // 2
        self._face.u[y : y + height, x : x + width] = patch.planes.u
        self._face.v[y : y + height, x : x + width] = patch.planes.v

    def draw(self, local: Array, head: Array, frame: I420Frame) -> Rect:
        """Fill `frame`, with the fields of the two banks weighted by `local` and `head`.

        Returns what differs from the frame before; empty if nothing does.
        """
        position = self._position
        np.multiply(self._mixer.mix(local, head), 1 / STEP_PX, out=position)
        np.rint(position, out=position)
        np.multiply(position, STEP_PX, out=position)
        moved = position != self._used
        changed = moved[..., 0] | moved[..., 1]
        if not changed.all():
            for rect in self._laid:
                changed |= self._showing(rect)
        self._laid.clear()
        np.copyto(self._used, position)
        for axis in range(2):
            luma, chroma = self._axes[axis], self._axes[axis + 2]
            np.copyto(luma, position[..., axis])
            # A chroma sample sits between two luma samples: c = (l - 0.5) / 2.
            np.multiply(luma, 0.5, out=chroma)
            np.subtract(chroma, 0.25, out=chroma)
        dirty = self._sample(changed)
        np.copyto(frame.data, self._shown.data)
        return dirty

    def _showing(self, rect: Rect) -> NDArray[np.bool_]:
        """The nodes next to which pixels of `rect` are sampled."""
        x, y = self._position[..., 0], self._position[..., 1]
        reach = 4 * CELL_PX
        inside = (x > rect.x - reach) & (x < rect.x + rect.width + reach)
        inside &= (y > rect.y - reach) & (y < rect.y + rect.height + reach)
        return inside

    def _sample(self, changed: NDArray[np.bool_]) -> Rect:
        rows, columns = changed.shape
        cells_y, cells_x = rows - 2, columns - 2
        left, top, right, bottom = cells_x, cells_y, 0, 0
        for first_row in range(0, cells_y, STRIP_CELLS):
            last_row = min(first_row + STRIP_CELLS, cells_y)
            where = np.flatnonzero(changed[first_row : last_row + 2].any(axis=0))
            if not where.size:
                continue
            # Node n carries the pixels of the cells n - 2 to n.
            first, last = max(0, int(where[0]) - 2), min(cells_x, int(where[-1]) + 1)
            if first >= last:
                continue
            self._sample_cells(first_row, last_row, first, last)
            left, right = min(left, first), max(right, last)
            top, bottom = min(top, first_row), last_row
        if right <= left:
            return Rect(0, 0, 0, 0)
        return Rect(
            self.region.x + left * CELL_PX,
            self.region.y + top * CELL_PX,
            (right - left) * CELL_PX,
            (bottom - top) * CELL_PX,
        )

    def _sample_cells(self, top: int, bottom: int, left: int, right: int) -> None:
        nodes = np.s_[top : bottom + 2, left : right + 2]
        cells = (bottom - top + 2, right - left + 2)
        for half, planes in enumerate((slice(0, 1), slice(1, 3))):
            cell = CELL_PX >> half
            buffers: list[Any] = self._half_maps if half else self._maps
            height, width = cells[0] * cell, cells[1] * cell
            maps = []
            for axis in range(2):
                fine = buffers[axis][:height, :width]
                coarse = self._axes[axis + 2 * half][nodes]
                cv2.resize(coarse, (width, height), dst=fine, interpolation=cv2.INTER_LINEAR)
                maps.append(fine[cell:-cell, cell:-cell])
            window = np.s_[top * cell : bottom * cell, left * cell : right * cell]
            for face, target in zip(self._face[planes], self._targets[planes], strict=True):
                cv2.remap(
                    face,
                    maps[0],
                    maps[1],
                    cv2.INTER_LINEAR,
                    dst=target[window],
                    borderMode=cv2.BORDER_REPLICATE,
                )


def _views(frame: I420Frame) -> tuple[NDArray[np.uint8], NDArray[np.uint8], NDArray[np.uint8]]:
    return frame.y, frame.u, frame.v


def _cut(planes: Planes, rect: Rect) -> Planes:
    x, y, width, height = rect
    half = np.s_[y // 2 : (y + height) // 2, x // 2 : (x + width) // 2]
    return Planes(planes.y[y : y + height, x : x + width], planes.u[half], planes.v[half])
