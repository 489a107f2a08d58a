"""Moves a flat picture of a head as if it had depth, by one displacement field a frame."""

from renderers.warp.colour import Planes, i420_to_rgb, rgb_to_i420, rgb_to_ycc, ycc_to_i420
from renderers.warp.fields import FieldGrid, smooth_step
from renderers.warp.stage import Patch, WarpStage

__all__ = [
    "FieldGrid",
    "Patch",
    "Planes",
    "WarpStage",
    "i420_to_rgb",
    "rgb_to_i420",
    "rgb_to_ycc",
    "smooth_step",
    "ycc_to_i420",
]
