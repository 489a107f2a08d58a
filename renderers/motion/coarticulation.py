"""From viseme spans to mouth weights over time.

Dominance functions after Cohen & Massaro (1993): every segment pulls the mouth towards its shape
with a strength that falls off exponentially before and after it, and the mouth is the weighted
mean. Timing after JALI (Edwards et al. 2016): lips move about 120 ms ahead of a sound and
let go 120 ms after, rounding takes 150 ms and starts early. What the eye checks first, closed
lips at p/b/m and the lip on the teeth at f/v, is forced after the blend.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from renderers.contract import Viseme, VisemeSpan

RATE_HZ = 100
"""Samples a second of a mouth track."""

PADDING_S = 0.3
"""A track starts this long before its sound and ends this long after it."""

_N = len(Viseme)

# Strength with which a shape asserts itself against its neighbours. Rounding is stubborn,
# sounds made inside the mouth take on the lips of the vowels around them, and what must be closed
# is forced below, so it need not pull here.
_STRENGTH = np.array(
    #  sil   PP   FF   TH   DD    kk    CH   SS    nn    RR   aa   E    ih   oh   ou
    [0.45, 0.9, 0.9, 1.3, 0.75, 0.55, 1.5, 1.1, 0.75, 1.0, 1.15, 1.0, 0.9, 1.35, 1.6],
    np.float64,
)
_ONSET_S = np.full(_N, 0.120)
_DECAY_S = np.full(_N, 0.120)
_ONSET_S[[Viseme.OU, Viseme.OH, Viseme.CH, Viseme.RR]] = 0.150
_DECAY_S[[Viseme.OU, Viseme.OH, Viseme.CH]] = 0.150
_ONSET_S[[Viseme.PP, Viseme.FF]] = 0.090
_DECAY_S[[Viseme.PP, Viseme.FF]] = 0.080

# At the stated onset or decay time a segment's pull has fallen to about a tenth.
_FALL = 2.3
_SHARPNESS = 1.5
_FORCED = (Viseme.PP, Viseme.FF)
_FORCED_RAMP_S = 0.035

JAW = np.array(
    #  sil   PP    FF    TH    DD    kk    CH    SS    nn    RR    aa   E    ih    oh   ou
    [0.0, 0.0, 0.08, 0.16, 0.20, 0.28, 0.16, 0.06, 0.18, 0.22, 0.95, 0.60, 0.36, 0.62, 0.26],
    np.float32,
)
"""Jaw opening (0..1) of each viseme."""


def mouth_track(spans: Sequence[VisemeSpan]) -> NDArray[np.float32]:
    """Weights at `RATE_HZ`, shape (n, 15), the first at `PADDING_S` before the sound's start.

    Rows sum to at most 1; what is missing to 1 is the mouth at rest. Raises `ValueError` for
    spans that run backwards or name no viseme.
    """
    end = 0.0
    for span in spans:
        if span.end < span.start or span.start < end - 1e-3:
            raise ValueError(f"viseme spans must follow each other in time, got {span}")
        if not 0 <= span.viseme < _N:
            raise ValueError(f"no viseme {span.viseme}")
        end = span.end
    count = round((end + 2 * PADDING_S) * RATE_HZ) + 1
    if not spans:
        return np.zeros((count, _N), np.float32)

    visemes = np.array([span.viseme for span in spans])
    starts = np.array([span.start for span in spans])
    ends = np.array([span.end for span in spans])
    # Silence around the sound lets the mouth open from rest and come back to it.
    visemes = np.concatenate(([0], visemes, [0]))
    starts = np.concatenate(([-10.0], starts, [end]))
    ends = np.concatenate(([spans[0].start], ends, [end + 10.0]))

    t = (np.arange(count) / RATE_HZ - PADDING_S)[:, None]
    before = np.maximum(starts - t, 0.0) / _ONSET_S[visemes]
    after = np.maximum(t - ends, 0.0) / _DECAY_S[visemes]
    # Short segments have less time to be reached; vowels of 80 ms and more are reached fully.
    length = np.clip((ends - starts) / 0.08, 0.35, 1.0)
    pull = _STRENGTH[visemes] * length * np.exp(-_FALL * (before + after))
    weights = np.zeros((count, _N))
    for column in range(len(visemes)):
        weights[:, visemes[column]] += pull[:, column]
    weights /= weights.sum(axis=1, keepdims=True)
    # The plain mean mumbles: at conversational speed no shape is reached. Sharpened, the shape
    # that leads comes through, and the transitions stay smooth.
    weights **= _SHARPNESS
    weights /= weights.sum(axis=1, keepdims=True)

    for forced in _FORCED:
        hold = np.zeros(count)
        for column in (int(i) for i in np.flatnonzero(visemes == forced)):
            # Full in the middle half of the sound, and for one frame at least.
            middle = (starts[column] + ends[column]) / 2
            half = max((ends[column] - starts[column]) / 4, 0.018)
            distance = np.abs(t[:, 0] - middle) - half
            hold = np.maximum(hold, np.clip(1.0 - distance / _FORCED_RAMP_S, 0.0, 1.0))
        hold = hold * hold * (3 - 2 * hold)
        weights *= (1.0 - hold)[:, None]
        weights[:, forced] += hold
    weights[:, Viseme.SIL] = 0.0
    return weights.astype(np.float32)
