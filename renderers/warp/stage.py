"""A picture on stage: the still plate, patches laid on the face, and the warp that moves it all."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from renderers.contract import I420Frame, Rect
from renderers.warp.arrays import Array
from renderers.warp.colour import Planes, rgb_to_i420
from renderers.warp.fields import CELL_PX, FieldGrid, FieldMixer

STRIP_CELLS = 12
"""At most so many rows of cells are sampled together: few calls, yet strips that follow the shape
of what moved."""

BAND_CELLS = 22
"""Rows of cells whose smooth parts are brought up to date together."""

STEP_PX = 1 / 16
"""Sampling positions are rounded to this, which no eye sees, so that what moves less is not
drawn again."""

SMOOTH_STEP_PX = 1.0
SMOOTH_SLOPE = 1.0
"""Where the picture changes by less than `SMOOTH_SLOPE` levels a pixel, as an unfocused
background does, it is sampled anew only once it is `SMOOTH_STEP_PX` off: a level, at most two."""


class Patch(NamedTuple):
    """Opaque pixels for a rectangle of the plate; `x` and `y` are even."""

    x: int
    y: int
    planes: Planes


class WarpStage:
    """Draws a plate whose `region` is moved by displacement fields.

    `plate` is RGB of shape (height, width, 3), 0..255. Memory is taken once, here. Only
    those parts of the region are sampled anew whose positions or pixels differ from the frame
    before, so a still head costs little and an unfocused background is mostly left alone.
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
        self._used = np.full((rows, columns, 2), -1e6, np.float32)
        self._detail = _detail(self._face, grid.shape)
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
        cells = np.s_[
            y // CELL_PX : (y + height) // CELL_PX + 3, x // CELL_PX : (x + width) // CELL_PX + 3
        ]
        self._detail[cells] = 255
        self._face.y[y : y + height, x : x + width] = patch.planes.y
        x, y, width, height = x // 2, y // 2, width // 2, height // 2
        self._face.u[y : y + height, x : x + width] = patch.planes.u
        self._face.v[y : y + height, x : x + width] = patch.planes.v

    def draw(self, local: Array, head: Array, frame: I420Frame) -> Rect:
        """Fill `frame`, with the fields of the two banks weighted by `local` and `head`.

        Returns what differs from the frame before; empty if nothing does.
        """
        position = self._position
        moved = self._mixer.mix(local, head)
        if not moved and not self._laid:
            np.copyto(frame.data, self._shown.data)
            return Rect(0, 0, 0, 0)
        if moved:
            np.multiply(self._mixer.source, 1 / STEP_PX, out=position)
            np.rint(position, out=position)
            np.multiply(position, STEP_PX, out=position)
        off = np.abs(position - self._used)
        off = np.maximum(off[..., 0], off[..., 1])
        changed = off > 0
        if not changed.all():
            for rect in self._laid:
                changed |= self._showing(rect)
        self._laid.clear()
        # What a node shows now, and what it showed, must both be smooth for it to wait.
        late = off > SMOOTH_STEP_PX
        urgent = changed & (late | (self._mixer.look_up(self._detail) > 0))
        for axis in range(2):
            luma, chroma = self._axes[axis], self._axes[axis + 2]
            np.copyto(luma, position[..., axis])
            # A chroma sample sits between two luma samples: c = (l - 0.5) / 2.
            np.multiply(luma, 0.5, out=chroma)
            np.subtract(chroma, 0.25, out=chroma)
        dirty = self._sample(changed, urgent, late)
        np.copyto(frame.data, self._shown.data)
        return dirty

    def _showing(self, rect: Rect) -> NDArray[np.bool_]:
        """The nodes next to which pixels of `rect` are sampled."""
        x, y = self._position[..., 0], self._position[..., 1]
        reach = 4 * CELL_PX
        inside = (x > rect.x - reach) & (x < rect.x + rect.width + reach)
        inside &= (y > rect.y - reach) & (y < rect.y + rect.height + reach)
        return inside

    def _sample(
        self, changed: NDArray[np.bool_], urgent: NDArray[np.bool_], late: NDArray[np.bool_]
    ) -> Rect:
        due: Array = urgent.copy()
        for first in range(0, len(due) - 2, BAND_CELLS):
            # Once a part that could wait no longer can, its band is brought up to date, so that
            # its parts do not fall due one by one.
            band = slice(first, first + BAND_CELLS + 2)
            if late[band].any():
                due[band] = changed[band]
        # Node n carries the pixels of the cells n - 2 to n.
        due = due[:-2] | due[1:-1] | due[2:]
        due = due[:, :-2] | due[:, 1:-1] | due[:, 2:]
        done = np.zeros_like(due)
        left, top, right, bottom = due.shape[1], due.shape[0], 0, 0
        for first_row, last_row in _strips(np.asarray(due.any(axis=1))):
            where = np.flatnonzero(due[first_row:last_row].any(axis=0))
            first, last = int(where[0]), int(where[-1]) + 1
            self._sample_cells(first_row, last_row, first, last)
            done[first_row:last_row, first:last] = True
            left, right = min(left, first), max(right, last)
            top, bottom = min(top, first_row), last_row
        if right <= left:
            return Rect(0, 0, 0, 0)
        whole = np.pad(done, 2, constant_values=True)
        whole = whole[:-2] & whole[1:-1] & whole[2:]
        whole = whole[:, :-2] & whole[:, 1:-1] & whole[:, 2:]
        np.copyto(self._used, self._position, where=whole[..., None])
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


def _strips(rows: Array) -> list[tuple[int, int]]:
    """Runs of set rows (first, one past the last), in even parts of at most `STRIP_CELLS`."""
    edges = np.flatnonzero(np.diff(rows, prepend=False, append=False))
    strips = []
    for first, last in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
        parts = -(-(last - first) // STRIP_CELLS)
        cuts = [first + (last - first) * part // parts for part in range(parts + 1)]
        strips += list(pairwise(cuts))
    return strips


def _views(frame: I420Frame) -> tuple[NDArray[np.uint8], NDArray[np.uint8], NDArray[np.uint8]]:
    return frame.y, frame.u, frame.v


def _cut(planes: Planes, rect: Rect) -> Planes:
    x, y, width, height = rect
    half = np.s_[y // 2 : (y + height) // 2, x // 2 : (x + width) // 2]
    return Planes(planes.y[y : y + height, x : x + width], planes.u[half], planes.v[half])


def _detail(face: Planes, shape: tuple[int, int]) -> NDArray[np.uint8]:
    """255 at the nodes in or beside whose cell the picture is not smooth, else 0."""
    height, width = face.y.shape
    slopes = np.zeros((height, width), np.float32)
    for plane in face:
        rise = np.gradient(plane.astype(np.float32))
        steep = np.maximum(np.abs(rise[0]), np.abs(rise[1]))
        if steep.shape != slopes.shape:
            steep = cv2.resize(steep, (width, height), interpolation=cv2.INTER_LINEAR) * 0.5
        slopes = np.maximum(slopes, steep)
    cells = slopes.reshape(height // CELL_PX, CELL_PX, width // CELL_PX, CELL_PX).max(axis=(1, 3))
    nodes = np.zeros(shape, np.uint8)
    nodes[1:-1, 1:-1] = np.where(cells > SMOOTH_SLOPE, 255, 0)
    return np.asarray(cv2.dilate(nodes, np.ones((5, 5), np.uint8)), np.uint8)
