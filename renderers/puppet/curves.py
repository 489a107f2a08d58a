"""Shapes given by one curve a column, drawn with exact vertical anti-aliasing."""

from __future__ import annotations

import numpy as np

from renderers.warp.arrays import Array


def between(ys: Array, top: Array, bottom: Array) -> Array:
    """The share of each pixel that lies between two curves, 0..1.

    `ys` holds pixel centres, shape (height, 1); `top` and `bottom` have shape (1, width). Where a
    curve is steep its edge is spread along the column, as an edge of that slope covers pixels.
    """
    half_top, half_bottom = _edge(top), _edge(bottom)
    above = np.clip((ys - top) / half_top * 0.5 + 0.5, 0.0, 1.0)
    below = np.clip((bottom - ys) / half_bottom * 0.5 + 0.5, 0.0, 1.0)
    # Thin shapes cover no more of a pixel than they are high.
    thin = np.clip(bottom - top, 0.0, 1.0)
    result: Array = (above * below * thin).astype(np.float32)
    return result


def _edge(curve: Array) -> Array:
    slope = np.gradient(curve, axis=1)
    result: Array = np.clip(0.5 * np.sqrt(1.0 + slope * slope), 0.5, 2.5)
    return result
