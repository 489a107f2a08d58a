"""Coarse displacement fields over a region of the picture."""

from __future__ import annotations

import math

import cv2
import numpy as np

from renderers.contract import Rect
from renderers.warp.arrays import Array

CELL_PX = 8
"""Distance between field nodes: the fields are smooth over 30 px and more."""

HOLD_PX = 0.3
"""A head that has moved by less than this since it was last drawn is left where it is. A resting
head drifts by 0.1 px a frame: it then steps at 15 Hz by what an eye does not resolve (and an
encoder's motion vectors do not either), at half the cost."""

NEAR_PX = 0.75
"""After a step this small the map of the frame before is a start from which one round of inverting
the fields is as good as two from nothing: it leaves the slope's share of the step."""

HOLD_LOCAL_PX = 0.05
"""The same for each field on the face; less, as several may reach one place."""


def smooth_step(low: float, high: float, values: Array) -> Array:
    """0 below `low`, 1 above `high`, with zero first and second derivative at both (Perlin's
    quintic); `low` > `high` gives the falling edge."""
    t = np.clip((values - low) / (high - low), 0.0, 1.0)
    return (t * t * t * (t * (t * 6.0 - 15.0) + 10.0)).astype(np.float32)


class FieldGrid:
    """Nodes every `CELL_PX` over `region`, one cell beyond it on each side.

    `x` and `y` hold the nodes' positions in the picture, shape `shape`; a field over the grid has
    shape (rows, columns, 2) in pixels, and says where a point of the resting face moves to.
    """

    def __init__(self, region: Rect) -> None:
        if region.width % (2 * CELL_PX) or region.height % (2 * CELL_PX):
            raise ValueError(f"the region's sides must be multiples of {2 * CELL_PX}: {region}")
        if region.x % 2 or region.y % 2:
            raise ValueError(f"the region must start at even pixels: {region}")
        self.region = region
        self.shape = (region.height // CELL_PX + 2, region.width // CELL_PX + 2)
        rows, columns = self.shape
        # cv2.resize samples at pixel centres: node 1 lies in the middle of the first cell.
        first = -CELL_PX + (CELL_PX - 1) / 2
        along_x = (first + CELL_PX * np.arange(columns) + region.x).astype(np.float32)
        along_y = (first + CELL_PX * np.arange(rows) + region.y).astype(np.float32)
        self.x, self.y = np.meshgrid(along_x, along_y)
        self.window = self._window()

    def field(self, dx: Array | float, dy: Array | float) -> Array:
        """The field (dx, dy), brought to zero at the region's border."""
        out = np.empty((*self.shape, 2), np.float32)
        out[..., 0] = dx * self.window
        out[..., 1] = dy * self.window
        return out

    def _window(self) -> Array:
        rows, columns = self.shape
        ramp_px = 2.0 * CELL_PX

        def edge(count: int) -> Array:
            # The two outermost nodes are zero, so that every border pixel is exactly still.
            inner = (np.minimum(np.arange(count), count - 1 - np.arange(count)) - 1) * CELL_PX
            return smooth_step(0.0, ramp_px, inner.astype(np.float32))

        return np.outer(edge(rows), edge(columns)).astype(np.float32)


class FieldMixer:
    """Adds two banks of fields by weight and turns the sum into a sampling map.

    `local` fields move features on the face (jaw, brows), `head` fields move the whole face; the
    map undoes the second and then the first, so that a turned face keeps its features in place.
    All buffers are made once.
    """

    def __init__(self, grid: FieldGrid, local: Array, head: Array) -> None:
        """`local` and `head` have shape (number of fields, rows, columns, 2)."""
        rows, columns = grid.shape
        for bank in (local, head):
            if bank.shape[1:] != (rows, columns, 2):
                raise ValueError(f"fields of shape {bank.shape[1:]} on a grid of {grid.shape}")
        self._reach = np.abs(local).reshape(len(local), -1).max(axis=1, initial=0.0)
        # Local fields fill a part of the grid. Steps are in cells and point back; x and y lie
        # apart, which OpenCV samples faster than pairs.
        self._near = near = _extent(local)
        cut = local[:, near.y : near.y + near.height, near.x : near.x + near.width]
        self._local = _flat(cut / -CELL_PX)
        self._head = _flat(head / -CELL_PX)
        self._fresh = True
        self._stride_px = math.inf
        self._local_weights = np.zeros(len(local), np.float32)
        self._head_weights = np.zeros(len(head), np.float32)
        self._local_sum = np.empty((2, near.height, near.width), np.float32)
        self._head_sum = np.zeros((2, rows, columns), np.float32)
        self._next_head_sum = np.empty_like(self._head_sum)
        self._step = np.empty((2, rows, columns), np.float32)
        self._rest = np.ascontiguousarray(np.mgrid[0:rows, 0:columns][::-1], np.float32)
        self._unposed = self._rest.copy()
        self._node = self._rest.copy()
        self.source = np.empty((2, rows, columns), np.float32)
        """The map: for each node, the point of the resting region (x and y, in region pixels)
        that shows there."""

    def mix(self, local: Array, head: Array) -> bool:
        """Bring `source` up to date with these weights; whether it changed.

        Weights by which nothing moves visibly (`HOLD_PX`) since they last took effect do not.
        """
        head_moved = self._take_head(head)
        far = np.abs(local - self._local_weights) * self._reach > HOLD_LOCAL_PX
        far |= self._fresh
        self._fresh = False
        if far.any():
            self._local_weights[far] = local[far]
            np.dot(self._local_weights, self._local, out=self._local_sum.reshape(-1))
        elif not head_moved:
            return False
        # Fixed-point inversion of p -> p + field(p): a contraction, as the fields do not fold.
        if head_moved:
            rounds = 1
            if self._stride_px > NEAR_PX:
                np.add(self._rest, self._head_sum, out=self._unposed)
                rounds = 2
            for _ in range(rounds):
                for step, field in zip(self._step, self._head_sum, strict=True):
                    _sample(field, self._unposed, step)
                np.add(self._rest, self._step, out=self._unposed)
        np.copyto(self._node, self._unposed)
        self._undo_local()
        np.multiply(self._node, CELL_PX, out=self.source)
        np.add(self.source, np.float32((CELL_PX - 1) / 2 - CELL_PX), out=self.source)
        return True

    def look_up(self, values: Array) -> Array:
        """For each node, the entry of `values` (one a node of the resting region) nearest to what
        `mix` last said that it shows."""
        found = cv2.remap(
            values,
            self._node[0],
            self._node[1],
            cv2.INTER_NEAREST,
            borderMode=cv2.BORDER_REPLICATE,
        )
        return np.asarray(found, np.float32)

    def _take_head(self, weights: Array) -> bool:
        if not self._fresh and np.array_equal(weights, self._head_weights):
            return False
        field, step = self._next_head_sum, self._step
        np.dot(weights, self._head, out=field.reshape(-1))
        np.subtract(field, self._head_sum, out=step)
        stride_px = float(max(step.max(), -step.min())) * CELL_PX
        if stride_px <= HOLD_PX and not self._fresh:
            return False
        self._stride_px = math.inf if self._fresh else stride_px
        np.copyto(self._head_weights, weights)
        self._head_sum, self._next_head_sum = field, self._head_sum
        return True

    def _undo_local(self) -> None:
        """Take the local fields back, at the nodes that the head may have brought over them."""
        near = self._near
        reach = int(max(self._head_sum.max(), -self._head_sum.min())) + 2
        rows = slice(max(0, near.y - reach), near.y + near.height + reach)
        columns = slice(max(0, near.x - reach), near.x + near.width + reach)
        node = self._node[:, rows, columns]
        node -= np.array([[[near.x]], [[near.y]]], np.float32)
        base, point = node.copy(), node.copy()
        step = self._step[:, rows, columns]
        # Features move up and down, and sideways only a little: that comes last.
        for _ in range(2):
            _sample(self._local_sum[1], point, step[1])
            np.add(base[1], step[1], out=point[1])
        for axis in range(2):
            _sample(self._local_sum[axis], point, step[axis])
        np.add(self._unposed[:, rows, columns], step, out=node)


def _sample(field: Array, at: Array, out: Array) -> None:
    cv2.remap(field, at[0], at[1], cv2.INTER_LINEAR, dst=out, borderMode=cv2.BORDER_REPLICATE)


def _flat(bank: Array) -> Array:
    """Fields as rows, all of x before all of y."""
    return np.ascontiguousarray(bank.transpose(0, 3, 1, 2).reshape(len(bank), -1), np.float32)


def _extent(bank: Array) -> Rect:
    """The nodes that a bank moves and, where the grid goes on, one more on each side."""
    _, rows, columns, _ = bank.shape
    moved = (bank != 0).any(axis=(0, 3))
    ys, xs = np.flatnonzero(moved.any(axis=1)), np.flatnonzero(moved.any(axis=0))
    if not len(ys):
        return Rect(0, 0, 2, 2)
    top, left = max(int(ys[0]) - 1, 0), max(int(xs[0]) - 1, 0)
    bottom, right = min(int(ys[-1]) + 2, rows), min(int(xs[-1]) + 2, columns)
    return Rect(left, top, right - left, bottom - top)
