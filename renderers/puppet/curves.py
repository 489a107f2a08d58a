"""Shapes given by one curve a column, drawn with exact vertical anti-aliasing."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]


def between(ys: Array, top: Array, bottom: Array) -> Array:
    """The share of each pixel that lies between two curves, 0..1.

    `ys` holds pixel centres, shape (height, 1); `top` and `bottom` have shape (1, width).
    """
    covered = np.minimum(ys + 0.5, bottom) - np.maximum(ys - 0.5, top)
    return np.clip(covered, 0.0, 1.0).astype(np.float32)
