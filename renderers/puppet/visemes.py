"""What the lips, teeth and tongue do for each viseme, and how poses blend them.

The shapes follow the articulation that phonetics describes for each class of sound (lips closed
for bilabials, lower lip under the upper teeth for labiodentals, tongue tip between the teeth for
dentals, at the ridge for alveolars, body raised for velars, lips rounded for `ou`, `oh`, `ch`,
`rr`), with amounts set by eye on the drawn face.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from renderers.contract import Pose, Viseme
from renderers.warp.arrays import Array


class MouthShape(NamedTuple):
    """One mouth. `gap` and `lift` in pixels of the picture, the rest 0..1 unless said."""

    gap: float = 0.0
    """Opening between the lips at the middle."""
    jaw: float = 0.0
    """How far the chin drops."""
    width: float = 0.0
    """Corners outwards (+) or inwards (-), -1..1."""
    round: float = 0.0
    """Lips rounded and pushed forward."""
    lift: float = 0.0
    """Upper lip raised, baring the upper teeth."""
    tuck: float = 0.0
    """Lower lip drawn in under the upper teeth."""
    press: float = 0.0
    """Lips pressed together, their red drawn in."""
    upper: float = 0.0
    """Light on the upper teeth."""
    lower: float = 0.0
    """Lower teeth raised towards the upper ones."""
    tongue: float = 0.0
    """Height of the tongue, floor to ridge."""
    tip: float = 0.0
    """Tongue tip between the teeth."""
    back: float = 0.0
    """Back of the tongue raised."""
    smile: float = 0.0
    """Corners up (+) or down (-), -1..1."""


_SHAPES: dict[Viseme, MouthShape] = {
    Viseme.SIL: MouthShape(),
    Viseme.PP: MouthShape(press=1.0, width=-0.06),
    Viseme.FF: MouthShape(gap=8.5, jaw=0.06, lift=5.0, tuck=1.0, upper=1.0, width=0.05),
    Viseme.TH: MouthShape(gap=16.0, jaw=0.2, lift=3.0, upper=0.9, tongue=0.5, tip=1.0, width=0.08),
    Viseme.DD: MouthShape(
        gap=19.0, jaw=0.32, lift=3.0, upper=0.9, lower=0.3, tongue=1.0, width=0.1
    ),
    Viseme.KK: MouthShape(gap=21.0, jaw=0.5, lift=1.0, upper=0.6, lower=0.1, back=1.0),
    Viseme.CH: MouthShape(
        gap=14.0, jaw=0.12, width=-0.5, round=0.6, lift=3.0, upper=1.0, lower=1.0
    ),
    Viseme.SS: MouthShape(gap=13.0, jaw=0.04, lift=4.5, upper=1.0, lower=1.0, width=0.4),
    Viseme.NN: MouthShape(gap=12.0, jaw=0.16, lift=1.0, upper=0.62, tongue=0.9),
    Viseme.RR: MouthShape(gap=14.0, jaw=0.18, width=-0.42, round=0.55, upper=0.3, tongue=0.55),
    Viseme.AA: MouthShape(gap=38.0, jaw=0.85, lift=3.0, upper=0.85, tongue=0.2),
    Viseme.E: MouthShape(
        gap=22.0, jaw=0.38, lift=4.0, upper=1.0, lower=0.35, tongue=0.45, width=0.36
    ),
    Viseme.IH: MouthShape(
        gap=16.0, jaw=0.2, lift=3.4, upper=0.95, lower=0.6, tongue=0.3, width=0.5
    ),
    Viseme.OH: MouthShape(gap=28.0, jaw=0.55, width=-0.58, round=0.8, upper=0.1, tongue=0.15),
    Viseme.OU: MouthShape(gap=14.0, jaw=0.22, width=-0.92, round=1.0),
}

SHAPES: Array = np.array([_SHAPES[viseme] for viseme in Viseme], np.float32)
"""Shape (15, len(MouthShape._fields)): one row a viseme."""

_NONE, _ALL = np.float32(0.0), np.float32(1.0)

_STEPS = (
    *(0.75, 1 / 24, 1 / 24, 1 / 12, 0.5, 1 / 10, 1 / 8, 1 / 8, 1 / 8, 1 / 10, 1 / 8, 1 / 6),
    1 / 14,
)
"""The smallest difference of each field that is drawn: at most half a pixel of lip."""

MOUTH_TOLERANCE = (1.0, 1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 1.0, 1.0, 2.0, 2.0, 2.0, 2.0)
"""Steps of each field by which one drawing may stand for another: a pixel of lip, and the tongue.
Not two steps of the light on the teeth, which would be seen to flicker."""

CLOSED = (0,)
"""Fields that must be 0 in both of two such drawings, or in neither: the gap."""

Key = tuple[int, ...]


def mouth_key(pose: Pose) -> Key:
    """The mouth of `pose` in whole steps, so that equal mouths share one drawing.

    Viseme weights that sum to less than 1 leave the rest to silence; more are scaled to 1.
    """
    weights = np.minimum(np.maximum(pose.visemes, _NONE), _ALL)
    total = float(weights.sum())
    values = np.dot(weights, SHAPES if total <= 1.0 else SHAPES / np.float32(total)).tolist()
    gap, jaw, width, rounded, lift, tuck, press, upper, lower, tongue, tip, back, _ = values
    extra = min(max(pose.jaw, 0.0), 1.0) * (1.0 - 0.85 * press) * (1.0 - 0.7 * tuck)
    smile = min(max(pose.smile, 0.0), 1.0) - min(max(pose.frown, 0.0), 1.0)
    happy = max(smile, 0.0)
    # A broad smile parts the lips over the upper teeth, unless a sound needs them otherwise.
    beam = max(0.0, smile - 0.5) * 2.0 * (1.0 - press) * (1.0 - rounded)
    shape = (
        max(gap, gap * 0.6 + 32.0 * extra, 9.0 * beam),
        max(jaw, jaw * 0.5 + 0.8 * extra),
        width + 0.5 * happy * (1 - rounded) - 0.06 * max(-smile, 0.0),
        rounded,
        max(lift, 4.0 * beam) + 1.2 * happy * min(1.0, gap / 8),
        tuck,
        press,
        max(upper, min(1.0, 0.7 * extra) * (1 - rounded), beam),
        lower,
        tongue,
        tip,
        back,
        smile,
    )
    return tuple([round(value / step) for value, step in zip(shape, _STEPS, strict=True)])


def shape_of(key: Key) -> MouthShape:
    """The mouth that `key` stands for."""
    return MouthShape(*(count * step for count, step in zip(key, _STEPS, strict=True)))
