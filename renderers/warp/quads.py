"""Samples a picture four pixels at a time.

Finding where a sample lies costs `cv2.remap` more than mixing its neighbours: four channels take
1.2 times what one takes. So each pixel of the source carries itself and three of its neighbours as
four channels, and one sample fills four pixels of the target, which thereby move together.
"""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from renderers.contract import Rect
from renderers.warp.arrays import Array
from renderers.warp.colour import Planes

CELL_PX = 8
"""Distance between the nodes of a map, in luma pixels."""

NO_LIGHT = 128
"""The level of `QuadSampler.light` that changes nothing."""

UNSEEN_LEVELS = 1
"""A patch is not laid where it differs from what lies there by this or less."""

_PACKED = np.dtype("<u4")
_PAIR = np.dtype("<u2")


class QuadSampler:
    """Fills windows of `targets` with what a coarse map picks from `face`.

    Both are I420 planes of the same size, with sides that are multiples of `2 * CELL_PX`. A luma
    sample is a square of 2x2 pixels; a chroma sample two pixels beside each other, in both planes.
    """

    def __init__(self, face: Planes, targets: Planes, shape: tuple[int, int], rows: int) -> None:
        """`shape` is that of the map's nodes, one cell beyond the picture on each side; at most
        `rows` rows of cells are asked for at once."""
        self._face = face
        height, width = face.y.shape
        self._luma = np.empty((height, width), _PACKED)
        self._chroma = np.empty((height // 2, width // 2), _PACKED)
        self._pack(0, 0, width, height)
        self._exact = np.empty((2, *shape), np.float32)
        self._axes = [np.empty(shape, np.float32) for _ in range(4)]
        # Rows of the target two at a time, and all pixels in pairs.
        even, odd = targets.y[0::2].view(_PAIR), targets.y[1::2].view(_PAIR)
        self._luma_target = targets.y
        self._pairs = ((even, odd), (targets.u.view(_PAIR), targets.v.view(_PAIR)))
        cells = (rows + 2) * shape[1]
        self._maps = [np.empty(cells * CELL_PX**2, np.float32) for _ in range(2)]
        self._found = np.empty(cells * 16 * 4, np.uint8)
        self._light: NDArray[np.uint8] | None = None
        self._shine = np.empty(cells * CELL_PX**2, np.uint8)

    def lay(self, x: int, y: int, planes: Planes) -> Rect:
        """Replace a rectangle of the face; `x` and `y` are even. Returns what differed."""
        height, width = planes.y.shape
        half = np.s_[y // 2 : (y + height) // 2, x // 2 : (x + width) // 2]
        views = (
            self._face.y[y : y + height, x : x + width],
            self._face.u[half],
            self._face.v[half],
        )
        left, top, right, bottom = width // 2, height // 2, 0, 0
        for view, plane, scale in zip(views, planes, (2, 1, 1), strict=True):
            differs = cv2.absdiff(view, plane)
            _, differs = cv2.threshold(differs, UNSEEN_LEVELS, 255, cv2.THRESH_TOZERO)
            column, row, columns, rows = cv2.boundingRect(differs)
            if columns:
                left, top = min(left, column // scale), min(top, row // scale)
                right = max(right, -(-(column + columns) // scale))
                bottom = max(bottom, -(-(row + rows) // scale))
        if right <= left:
            return Rect(0, 0, 0, 0)
        for view, plane, scale in zip(views, planes, (2, 1, 1), strict=True):
            part = np.s_[top * scale : bottom * scale, left * scale : right * scale]
            view[part] = plane[part]
        changed = Rect(x + 2 * left, y + 2 * top, 2 * (right - left), 2 * (bottom - top))
        self._pack(*changed)
        return changed

    def aim(self, position: Array) -> None:
        """Sample at `position`, shape (2, rows, columns): x and y of a luma pixel for each node."""
        np.copyto(self._exact, position)
        x, y, chroma_x, chroma_y = self._axes
        # A sample lies in the middle of its pixels, and is found at the first of them. Chroma
        # pixel c lies between two of luma: c = (l - 0.5) / 2.
        np.subtract(position[0], 0.5, out=x)
        np.subtract(position[1], 0.5, out=y)
        np.multiply(x, 0.5, out=chroma_x)
        np.subtract(chroma_x, 0.5, out=chroma_x)
        np.multiply(y, 0.5, out=chroma_y)

    def light(self, levels: NDArray[np.uint8] | None) -> None:
        """From now on add `levels` less `NO_LIGHT`, one for each node, to the luma that is sampled;
        None adds nothing. The array is read at each `sample`."""
        self._light = levels

    def sample(self, top: int, bottom: int, left: int, right: int) -> None:
        """Fill the cells of these rows and columns."""
        for kind, (packed, step) in enumerate(((self._luma, 4), (self._chroma, 2))):
            x, y = self._fine(
                self._axes[2 * kind : 2 * kind + 2], top, bottom, left, right, 4, step
            )
            found = self._found[: x.size * 4].reshape(*x.shape, 4)
            source: Any = packed.view(np.uint8).reshape(*packed.shape, 4)
            cv2.remap(source, x, y, cv2.INTER_LINEAR, dst=found, borderMode=cv2.BORDER_REPLICATE)
            window = np.s_[top * 4 : bottom * 4, left * step : right * step]
            pairs: Any = [plane[window] for plane in self._pairs[kind]]
            cv2.mixChannels([found.view(_PAIR)], pairs, [0, 0, 1, 1])
        self._add_light(top, bottom, left, right)

    def sample_luma(self, top: int, bottom: int, left: int, right: int) -> None:
        """Fill the luma of these rows and columns of cells pixel by pixel."""
        x, y = self._fine(self._exact, top, bottom, left, right, CELL_PX, CELL_PX)
        window = np.s_[top * CELL_PX : bottom * CELL_PX, left * CELL_PX : right * CELL_PX]
        cv2.remap(
            self._face.y,
            x,
            y,
            cv2.INTER_LINEAR,
            dst=self._luma_target[window],
            borderMode=cv2.BORDER_REPLICATE,
        )
        self._add_light(top, bottom, left, right)

    def _add_light(self, top: int, bottom: int, left: int, right: int) -> None:
        if self._light is None:
            return
        height, width = (bottom - top + 2) * CELL_PX, (right - left + 2) * CELL_PX
        fine = self._shine[: height * width].reshape(height, width)
        nodes = self._light[top : bottom + 2, left : right + 2]
        cv2.resize(nodes, (width, height), dst=fine, interpolation=cv2.INTER_LINEAR)
        window = self._luma_target[
            top * CELL_PX : bottom * CELL_PX, left * CELL_PX : right * CELL_PX
        ]
        inner = fine[CELL_PX:-CELL_PX, CELL_PX:-CELL_PX]
        cv2.addWeighted(window, 1.0, inner, 1.0, -NO_LIGHT, dst=window)

    def _fine(
        self, axes: Any, top: int, bottom: int, left: int, right: int, down: int, across: int
    ) -> list[Array]:
        """The map of some cells with `down` x `across` samples a cell."""
        height, width = (bottom - top + 2) * down, (right - left + 2) * across
        maps = []
        for coarse, buffer in zip(axes, self._maps, strict=True):
            fine = buffer[: height * width].reshape(height, width)
            nodes = coarse[top : bottom + 2, left : right + 2]
            cv2.resize(nodes, (width, height), dst=fine, interpolation=cv2.INTER_LINEAR)
            maps.append(fine[down:-down, across:-across])
        return maps

    def _pack(self, x: int, y: int, width: int, height: int) -> None:
        """Bring the packed pictures up to date with a changed rectangle of the face."""
        luma = _beside(self._face.y, x, y, width, height, below=True)
        pairs = luma[:, 1:] << 8
        pairs |= luma[:, :-1]
        square = self._luma[max(y - 1, 0) : y + height, max(x - 1, 0) : x + width]
        np.left_shift(pairs[1:], 16, out=square)
        square |= pairs[:-1]
        x, y, width, height = x // 2, y // 2, width // 2, height // 2
        both = _beside(self._face.v, x, y, width, height)
        both <<= 16
        both |= _beside(self._face.u, x, y, width, height)
        pair = self._chroma[y : y + height, max(x - 1, 0) : x + width]
        np.left_shift(both[:, 1:], 8, out=pair)
        pair |= both[:, :-1]


def _beside(
    plane: NDArray[np.uint8], x: int, y: int, width: int, height: int, *, below: bool = False
) -> NDArray[np.uint32]:
    """A rectangle with the pixels left and right of it (and above and below), those at the
    picture's far border repeated."""
    rows, columns = plane.shape
    bottom = y + height
    cut = plane[max(y - 1, 0) if below else y : min(bottom + 1, rows) if below else bottom]
    cut = cut[:, max(x - 1, 0) : min(x + width + 1, columns)]
    if x + width == columns or (below and bottom == rows):
        pad_row = 1 if below and bottom == rows else 0
        pad_column = 1 if x + width == columns else 0
        cut = np.pad(cut, ((0, pad_row), (0, pad_column)), mode="edge")
    return cut.astype(_PACKED)
