"""RGB to I420 and back: BT.709 primaries, limited range (ITU-R BT.709-6, section 3)."""

from __future__ import annotations

from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from renderers.contract import I420Frame
from renderers.warp.arrays import Array

_KR, _KB = 0.2126, 0.0722
_KG = 1.0 - _KR - _KB
_Y_SPAN, _C_SPAN = 219.0 / 255.0, 112.0 / 255.0

# Rows Y, U, V over (R, G, B, 1) with components 0..255.
_TO_YUV = np.array(
    [
        [_KR * _Y_SPAN, _KG * _Y_SPAN, _KB * _Y_SPAN, 16.0],
        [-_KR / (1 - _KB) * _C_SPAN, -_KG / (1 - _KB) * _C_SPAN, _C_SPAN, 128.0],
        [_C_SPAN, -_KG / (1 - _KR) * _C_SPAN, -_KB / (1 - _KR) * _C_SPAN, 128.0],
    ],
    np.float32,
)
_TO_RGB = np.linalg.inv(np.vstack([_TO_YUV, [0.0, 0.0, 0.0, 1.0]]))[:3].astype(np.float32)


class Planes(NamedTuple):
    """Y of shape (height, width), U and V of half that in both directions; uint8."""

    y: NDArray[np.uint8]
    u: NDArray[np.uint8]
    v: NDArray[np.uint8]


def rgb_to_i420(rgb: Array) -> Planes:
    """The planes of a picture of shape (height, width, 3), 0..255, with even sides."""
    height, width = rgb.shape[:2]
    if height % 2 or width % 2:
        raise ValueError(f"I420 needs even sides, got {width}x{height}")
    luma = cv2.transform(rgb, _TO_YUV[:1])
    half = cv2.resize(rgb, (width // 2, height // 2), interpolation=cv2.INTER_AREA)
    chroma = cv2.transform(half, _TO_YUV[1:])
    return Planes(_bytes(luma), _bytes(chroma[..., 0]), _bytes(chroma[..., 1]))


def rgb_to_ycc(rgb: Array) -> Array:
    """Y, Cb, Cr without their offsets of 16 and 128, of a picture (height, width, 3): shape
    (3, height, width). Black is zero, so that mixing and shading work as they do in RGB."""
    shifted = cv2.transform(rgb, _TO_YUV[:, :3])
    return np.ascontiguousarray(shifted.transpose(2, 0, 1))


def ycc_to_i420(ycc: Array) -> Planes:
    """The planes of what `rgb_to_ycc` gives, with even sides."""
    _, height, width = ycc.shape
    half = (width // 2, height // 2)
    u, v = (cv2.resize(plane, half, interpolation=cv2.INTER_AREA) for plane in ycc[1:])
    return Planes(_bytes(ycc[0] + 16.0), _bytes(u + 128.0), _bytes(v + 128.0))


def i420_to_rgb(frame: I420Frame) -> NDArray[np.uint8]:
    """RGB of `frame`, shape (height, width, 3): for stills and tests, too slow for video."""
    size = (frame.width, frame.height)
    yuv = cv2.merge(
        [
            frame.y.astype(np.float32),
            cv2.resize(frame.u.astype(np.float32), size, interpolation=cv2.INTER_LINEAR),
            cv2.resize(frame.v.astype(np.float32), size, interpolation=cv2.INTER_LINEAR),
        ]
    )
    return np.ascontiguousarray(_bytes(cv2.transform(yuv, _TO_RGB)))


def _bytes(values: Array) -> NDArray[np.uint8]:
    # convertScaleAbs would fold negative values over, so clip first.
    return np.clip(np.rint(values), 0, 255).astype(np.uint8)
