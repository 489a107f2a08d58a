"""A small picture of what a session shows just now, for its operator."""

from __future__ import annotations

import cv2

from avatar_server.avatar.encodes import shrink
from renderers.contract import I420Frame
from renderers.warp.colour import i420_to_rgb

WIDTH = 320
QUALITY = 80
"""JPEG quality, of 100."""


def thumbnail_jpeg(frame: I420Frame, width: int = WIDTH) -> bytes:
    """`frame` as a JPEG file of `width` pixels or a little less; some 2 ms."""
    scale = min(1.0, width / frame.width)
    # Sides of an I420 frame are divisible by 4.
    small = I420Frame.empty(
        max(4, int(frame.width * scale) // 4 * 4), max(4, int(frame.height * scale) // 4 * 4)
    )
    shrink(frame, small)
    picture = cv2.cvtColor(i420_to_rgb(small), cv2.COLOR_RGB2BGR)
    made, data = cv2.imencode(".jpg", picture, [cv2.IMWRITE_JPEG_QUALITY, QUALITY])
    if not made:
        raise RuntimeError("the picture could not be written as JPEG")
    return bytes(data.tobytes())
