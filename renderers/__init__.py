"""Faces: renderers that turn a `Pose` into video frames. Usable without the server."""

from renderers.contract import (
    VISEMES,
    Attitude,
    CutoutRenderer,
    I420Frame,
    Pose,
    Rect,
    Renderer,
    Sound,
    SoundDriven,
    Viseme,
    VisemeSpan,
)

__all__ = [
    "VISEMES",
    "Attitude",
    "CutoutRenderer",
    "I420Frame",
    "Pose",
    "Rect",
    "Renderer",
    "Sound",
    "SoundDriven",
    "Viseme",
    "VisemeSpan",
]
