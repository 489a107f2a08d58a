"""Whether a drawn mouth shows what its pose asks for, seen in the picture alone."""

from __future__ import annotations

from enum import Enum

import cv2
import numpy as np
from numpy.typing import NDArray

from renderers import I420Frame, Pose, Renderer, Viseme

_SMILE = 0.1
"""The same in all pictures, so that only what is said makes them differ."""


class Picture(Enum):
    """Mouths that can be told from others in a picture, each with the visemes that look so."""

    CLOSED = (Viseme.PP, Viseme.SIL)
    ON_TEETH = (Viseme.FF,)
    ROUNDED = (Viseme.OU, Viseme.OH, Viseme.RR, Viseme.CH)


class SeenMouth:
    """Draws mouths with the head at rest, and says which viseme's picture each is most like."""

    def __init__(self, renderer: Renderer) -> None:
        self._renderer = renderer
        self._frame = I420Frame.empty(*renderer.size)
        self._examples = {viseme: self._draw(_said(viseme)) for viseme in Viseme}

    def shows(self, wanted: Picture, pose: Pose) -> bool:
        """Whether the mouth of `pose` looks like `wanted` rather than like any other viseme."""
        seen = self._draw(Pose(visemes=pose.visemes, jaw=pose.jaw, smile=_SMILE))
        nearest = min(self._examples, key=lambda viseme: _difference(self._examples[viseme], seen))
        return nearest in wanted.value

    def _draw(self, pose: Pose) -> NDArray[np.uint8]:
        self._renderer.draw(pose, self._frame)
        return self._frame.y.copy()


def _said(viseme: Viseme) -> Pose:
    pose = Pose(smile=_SMILE)
    pose.visemes[viseme] = 1.0
    return pose


def _difference(one: NDArray[np.uint8], other: NDArray[np.uint8]) -> float:
    return float(cv2.norm(one, other, cv2.NORM_L2))
