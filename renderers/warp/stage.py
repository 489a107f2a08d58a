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
from renderers.warp.quads import NO_LIGHT, QuadSampler

BLOCK_CELLS, STRIP_CELLS = 4, 24
CALL_CELLS = 200
"""What is due is looked through in blocks of so many rows of cells. Blocks are sampled together, up
to a strip's height, where that takes fewer than `CALL_CELLS` cells more: what a further round of
calls costs."""

BAND_CELLS = 22
"""Rows of cells whose smooth parts are brought up to date together."""

STEP_PX = 1 / 16
"""Sampling positions are rounded to this, which no eye sees, so that what moves less is not
drawn again."""

PATIENCE_PX = (0.125, 1.0)
PATIENCE_LEVELS = 1.0
"""A part of the picture is sampled anew once it is this far off: by so many pixels that some pixel
of it could be `PATIENCE_LEVELS` off, within bounds. So the contours of a face follow at once,
and an unfocused background waits."""

TOGETHER_PX = 0.25
"""Once a part that could wait longest no longer can, what is so far off in its band comes along, so
that parts do not fall due one by one."""

STEEP, ROUGH_PX = 0.2, 0.3
"""Where neighbouring pixels show points whose distance differs from a pixel by more than `STEEP`,
a square of pixels moved as one has some a tenth of a pixel off and more. That shows where the
picture has edges (a patience under `ROUGH_PX`): there pixels are sampled one by one."""

_AROUND = np.ones((3, 3), np.uint8)

_AT_ONCE = -1.0
"""The patience of pixels that were replaced."""


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

    def __init__(
        self,
        plate: Array,
        grid: FieldGrid,
        local: Array,
        head: Array,
        light: Array | None = None,
    ) -> None:
        """`light`, of shape (number of fields of `head`, rows, columns), is by how many levels the
        luma of each node of the resting plate changes for a weight of 1 in `head`."""
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
        face = Planes(*(np.ascontiguousarray(p) for p in _cut(planes, region)))
        targets = _cut(Planes(*_views(self._shown)), region)
        self._sampler = QuadSampler(face, targets, grid.shape, STRIP_CELLS)
        rows, columns = grid.shape
        # Cell c lies around node c + 1: what is kept by cell leaves the outermost nodes out.
        self._position = np.empty((2, rows, columns), np.float32)
        self._used = np.full((2, rows - 2, columns - 2), -1e6, np.float32)
        self._off = np.empty((2, rows - 2, columns - 2), np.float32)
        self._slopes = (
            np.empty((2, rows - 1, columns - 2), np.float32),
            np.empty((2, rows - 2, columns - 1), np.float32),
        )
        self._steep = np.zeros((rows - 2, columns - 2), np.bool_)
        self._patience = _patience(face, grid.shape)
        self._laid: list[Rect] = []
        self._aimed = False
        self._light = None if light is None else light.reshape(len(light), -1)
        self._levels = np.empty(grid.shape, np.float32)

    def lay(self, patch: Patch) -> None:
        """Replace a rectangle of the face; it stays until another patch covers it."""
        changed = self._sampler.lay(patch.x - self.region.x, patch.y - self.region.y, patch.planes)
        if changed.empty:
            return
        # Cells beside the patch may show some of it, too.
        x, y = changed.x // CELL_PX, changed.y // CELL_PX
        right = (changed.x + changed.width - 1) // CELL_PX + 3
        bottom = (changed.y + changed.height - 1) // CELL_PX + 3
        nodes = Rect(x, y, right - x, bottom - y)
        self._laid.append(nodes)
        self._await(nodes, _AT_ONCE)

    def draw(self, local: Array, head: Array, frame: I420Frame) -> Rect:
        """Fill `frame`, with the fields of the two banks weighted by `local` and `head`.

        Returns what differs from the frame before; empty if nothing does.
        """
        moved = self._mixer.mix(local, head)
        if not moved and not self._laid:
            np.copyto(frame.data, self._shown.data)
            return Rect(0, 0, 0, 0)
        if moved:
            self._aim()
            self._shed(head)
        np.subtract(self._position[:, 1:-1, 1:-1], self._used, out=self._off)
        np.abs(self._off, out=self._off)
        off = np.maximum(self._off[0], self._off[1])
        patience = self._mixer.look_up(self._patience)[1:-1, 1:-1]
        for nodes in self._laid:
            self._await(nodes, PATIENCE_PX[0])
        self._laid.clear()
        dirty = self._sample(off, patience)
        np.copyto(frame.data, self._shown.data)
        return dirty

    def moved(self, plane: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """A further plane of the plate, shape (height, width), moved as the last frame was.

        For stills: it takes as long as a whole frame, and new memory. Before the first frame the
        plane comes back as it is.
        """
        result = plane.copy()
        if not self._aimed:
            return result
        rows, columns = self._position.shape[1:]
        whole = (columns * CELL_PX, rows * CELL_PX)
        inner = np.s_[CELL_PX:-CELL_PX, CELL_PX:-CELL_PX]
        x, y = (
            np.ascontiguousarray(cv2.resize(axis, whole, interpolation=cv2.INTER_LINEAR)[inner])
            for axis in self._position
        )
        left, top, width, height = self.region
        part = np.s_[top : top + height, left : left + width]
        face = np.ascontiguousarray(plane[part])
        result[part] = cv2.remap(face, x, y, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
        return result

    def _await(self, nodes: Rect, patience_px: float) -> None:
        x, y, width, height = nodes
        self._patience[y : y + height, x : x + width] = patience_px

    def _aim(self) -> None:
        self._aimed = True
        position = self._position
        np.multiply(self._mixer.source, 1 / STEP_PX, out=position)
        np.rint(position, out=position)
        np.multiply(position, STEP_PX, out=position)
        self._sampler.aim(position)
        # How far neighbours are from a cell's distance, at the nodes within the border.
        down, across = self._slopes
        np.subtract(position[:, 1:, 1:-1], position[:, :-1, 1:-1], out=down)
        np.subtract(position[:, 1:-1, 1:], position[:, 1:-1, :-1], out=across)
        down[1] -= CELL_PX
        across[0] -= CELL_PX
        np.abs(down, out=down)
        np.abs(across, out=across)
        np.maximum(down[0], down[1], out=down[0])
        np.maximum(across[0], across[1], out=across[0])
        rows = np.maximum(down[0, :-1], down[0, 1:])
        np.maximum(rows, across[0, :, :-1], out=rows)
        np.maximum(rows, across[0, :, 1:], out=rows)
        np.greater(rows, STEEP * CELL_PX, out=self._steep)

    def _shed(self, head: Array) -> None:
        if self._light is None:
            return
        np.dot(head, self._light, out=self._levels.reshape(-1))
        if np.abs(self._levels).max() < 0.5:
            self._sampler.light(None)
            return
        # Where a node of the face has moved to, it takes its light along.
        lit = self._mixer.look_up(self._levels)
        lit += NO_LIGHT + 0.5
        self._sampler.light(lit.astype(np.uint8))

    def _sample(self, off: Array, patience: Array) -> Rect:
        due: NDArray[np.bool_] = off > patience
        far = off > TOGETHER_PX
        # A cell's far pixels lie halfway to the next one, which may move more than it does. (Where
        # the next one may wait, so may what lies towards it.)
        np.multiply(off, due, out=off)
        due |= cv2.dilate(off, _AROUND) * 0.5 > patience
        last = due & (patience >= PATIENCE_PX[1])
        if last.any():
            for first in range(0, len(due), BAND_CELLS):
                band = slice(first, first + BAND_CELLS)
                if last[band].any():
                    due[band] |= far[band]
        steep = due & self._steep
        steep &= patience < ROUGH_PX
        rects = _rects(due)
        for rect in rects:
            top, bottom, left, right = rect
            self._sampler.sample(*rect)
            cells = np.s_[:, top:bottom, left:right]
            self._used[cells] = self._position[:, 1:-1, 1:-1][cells]
        if steep.any():
            for rect in _rects(steep):
                self._sampler.sample_luma(*rect)
        if not rects:
            return Rect(0, 0, 0, 0)
        top, bottom = rects[0][0], rects[-1][1]
        left, right = min(rect[2] for rect in rects), max(rect[3] for rect in rects)
        return Rect(
            self.region.x + left * CELL_PX,
            self.region.y + top * CELL_PX,
            (right - left) * CELL_PX,
            (bottom - top) * CELL_PX,
        )


def _rects(cells: NDArray[np.bool_]) -> list[tuple[int, int, int, int]]:
    """Rectangles (top, bottom, left, right) that cover all set cells, from top to bottom."""
    rows, columns = cells.shape
    padded = np.zeros((-(-rows // BLOCK_CELLS) * BLOCK_CELLS, columns), np.bool_)
    padded[:rows] = cells
    blocks: NDArray[np.bool_] = np.asarray(padded.reshape(-1, BLOCK_CELLS, columns).any(axis=1))
    lefts, rights = blocks.argmax(axis=1).tolist(), blocks[:, ::-1].argmax(axis=1).tolist()
    rects: list[tuple[int, int, int, int]] = []
    top, bottom, left, right = 0, -rows, 0, 0
    for block, wanted in enumerate(blocks[np.arange(len(lefts)), lefts].tolist()):
        if not wanted:
            continue
        first, last = lefts[block], columns - rights[block]
        start = block * BLOCK_CELLS
        end = start + BLOCK_CELLS
        low = first if first < left else left
        high = last if last > right else right
        apart = (bottom - top) * (right - left) + BLOCK_CELLS * (last - first)
        if end - top <= STRIP_CELLS and (end - top) * (high - low) - apart < CALL_CELLS and rects:
            left, right, bottom = low, high, end
            rects[-1] = (top, bottom, left, right)
        else:
            top, bottom, left, right = start, end, first, last
            rects.append((top, bottom, left, right))
    if rects:
        rects[-1] = (top, min(bottom, rows), left, right)
    return rects


def _views(frame: I420Frame) -> tuple[NDArray[np.uint8], NDArray[np.uint8], NDArray[np.uint8]]:
    return frame.y, frame.u, frame.v


def _cut(planes: Planes, rect: Rect) -> Planes:
    x, y, width, height = rect
    half = np.s_[y // 2 : (y + height) // 2, x // 2 : (x + width) // 2]
    return Planes(planes.y[y : y + height, x : x + width], planes.u[half], planes.v[half])


def _patience(face: Planes, shape: tuple[int, int]) -> Array:
    """By how many pixels each node may be off; see `PATIENCE_PX`."""
    height, width = face.y.shape
    slopes = np.zeros((height, width), np.float32)
    for plane in face:
        rise = np.gradient(plane.astype(np.float32))
        steep = np.maximum(np.abs(rise[0]), np.abs(rise[1]))
        if steep.shape != slopes.shape:
            steep = cv2.resize(steep, (width, height), interpolation=cv2.INTER_LINEAR) * 0.5
        slopes = np.maximum(slopes, steep)
    cells = slopes.reshape(height // CELL_PX, CELL_PX, width // CELL_PX, CELL_PX).max(axis=(1, 3))
    nodes = np.full(shape, PATIENCE_PX[1], np.float32)
    nodes[1:-1, 1:-1] = np.clip(PATIENCE_LEVELS / np.maximum(cells, 1e-3), *PATIENCE_PX)
    # A cell may show half of one beside that of its node.
    return np.asarray(cv2.erode(nodes, _AROUND), np.float32)
