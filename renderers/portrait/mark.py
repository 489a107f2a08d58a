"""The sign on the picture that says that it is no recording of somebody."""

from __future__ import annotations

import cv2
import numpy as np

from renderers.contract import Rect
from renderers.warp.arrays import Array

_FONT = cv2.FONT_HERSHEY_DUPLEX
_LARGER = 4


def draw_mark(plate: Array, text: str) -> Rect:
    """Write `text` into the lower left corner of an RGB picture, in place. Returns where."""
    height, width = plate.shape[:2]
    letter = max(10.0, height * 0.0195)
    scale = _LARGER * letter / 22.0
    (across, up), below = cv2.getTextSize(text, _FONT, scale, _LARGER)
    pad = round(letter * 0.6) * _LARGER
    size = (across + 2 * pad, up + below + pad + pad // 2)
    large = np.zeros((size[1], size[0]), np.uint8)
    cv2.putText(large, text, (pad, pad * 3 // 4 + up), _FONT, scale, 255, _LARGER + 1, cv2.LINE_AA)
    small = (min(size[0] // _LARGER, width), size[1] // _LARGER)
    ink = cv2.resize(large, small, interpolation=cv2.INTER_AREA).astype(np.float32)[..., None] / 255
    # So far from the side that it is whole on a screen of 16:10, which cuts the sides off.
    x = min(round(width * 0.072), width - small[0])
    y = height - round(height * 0.028) - small[1]
    view = plate[y : y + small[1], x : x + small[0]]
    view *= 0.45
    view += (245.0 - view) * ink
    return Rect(x, y, small[0], small[1])
