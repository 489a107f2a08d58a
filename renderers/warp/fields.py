"""Coarse displacement fields over a region of the picture."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from renderers.contract import Rect
from renderers.warp.arrays import Array

CELL_PX = 8
"""Distance between field nodes: the fields are smooth over 30 px and more."""

HOLD_PX = 0.25
"""A head that has moved by less than this since it was last drawn is left where it is. A resting
head drifts by 0.1 px a frame: it then steps at 15 Hz by what an eye does not resolve (and an
encoder's motion vectors do not either), at half the cost."""

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
        self._local = np.ascontiguousarray(local.reshape(len(local), -1))
        self._head = np.ascontiguousarray(head.reshape(len(head), -1))
        self._reach = np.abs(self._local).max(axis=1, initial=0.0)
        self._fresh = True
        self._local_weights = np.zeros(len(local), np.float32)
        self._head_weights = np.zeros(len(head), np.float32)
        self._local_sum = np.empty((rows, columns, 2), np.float32)
        self._head_sum = np.empty((rows, columns, 2), np.float32)
        self._sampled = np.empty((rows, columns, 2), np.float32)
        self._node = np.empty((rows, columns, 2), np.float32)
        self._unposed = np.empty((rows, columns, 2), np.float32)
        nodes = np.mgrid[0:rows, 0:columns].astype(np.float32)
        self._rest = np.ascontiguousarray(np.stack([nodes[1], nodes[0]], -1))
        self.source = np.empty((rows, columns, 2), np.float32)
        """The map: for each node, the point of the resting region (in region pixels, x then y)
        that shows there."""
        self._one_map: Any = None  # remap takes both axes in one map; its stubs know only two.
        self._first = np.float32((CELL_PX - 1) / 2 - CELL_PX)

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
            np.copyto(self._sampled, self._head_sum)
            for _ in range(2):
                self._step_back(self._rest, self._sampled)
                self._sample(self._head_sum)
            self._step_back(self._rest, self._sampled)
            np.copyto(self._unposed, self._node)
        np.copyto(self._node, self._unposed)
        for _ in range(3):
            self._sample(self._local_sum)
            self._step_back(self._unposed, self._sampled)
        np.multiply(self._node, CELL_PX, out=self.source)
        np.add(self.source, self._first, out=self.source)
        return True

    def _take_head(self, weights: Array) -> bool:
        step = weights - self._head_weights
        held = not step.any() or np.abs(np.dot(step, self._head)).max() <= HOLD_PX
        if held and not self._fresh:
            return False
        np.copyto(self._head_weights, weights)
        np.dot(weights, self._head, out=self._head_sum.reshape(-1))
        return True

    def look_up(self, values: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """For each node, the entry of `values` (one a node of the resting region) nearest to what
        `mix` last said that it shows."""
        found = cv2.remap(
            values,
            self._node,
            self._one_map,
            cv2.INTER_NEAREST,
            borderMode=cv2.BORDER_REPLICATE,
        )
        return np.asarray(found, np.uint8)

    def _step_back(self, base: Array, displacement_px: Array) -> None:
        np.multiply(displacement_px, -1.0 / CELL_PX, out=self._node)
        np.add(self._node, base, out=self._node)

    def _sample(self, field: Array) -> None:
        cv2.remap(
            field,
            self._node,
            self._one_map,
            cv2.INTER_LINEAR,
            dst=self._sampled,
            borderMode=cv2.BORDER_REPLICATE,
        )
