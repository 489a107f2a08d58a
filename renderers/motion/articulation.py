"""What the lips of a `Pose` do, in numbers that hold for any renderer."""

from __future__ import annotations

import numpy as np

from renderers.contract import Pose
from renderers.motion.coarticulation import JAW

APERTURE = np.array(
    #  sil   PP    FF    TH    DD    kk    CH    SS    nn    RR    aa   E    ih    oh   ou
    [0.0, 0.0, 0.10, 0.35, 0.40, 0.50, 0.35, 0.25, 0.35, 0.35, 1.0, 0.60, 0.40, 0.70, 0.35],
    np.float32,
)
"""How far each viseme parts the lips, 1 being the widest: that of an open vowel."""

ROUNDING = np.array(
    [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.6, 0.0, 0.0, 0.55, 0.0, 0.0, 0.0, 0.8, 1.0], np.float32
)
"""How far each viseme rounds and protrudes the lips."""

_WIDEST_JAW = float(JAW.max())


def aperture(pose: Pose) -> float:
    """How far the lips are apart, 0 (closed) to 1: half the lips' own doing, half the jaw's."""
    return 0.5 * float(pose.visemes @ APERTURE) + 0.5 * pose.jaw / _WIDEST_JAW


def rounding(pose: Pose) -> float:
    """How far the lips are rounded, 0 to 1."""
    return float(pose.visemes @ ROUNDING)
