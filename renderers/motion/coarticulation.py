"""From viseme spans to mouth weights over time.

Dominance functions after Cohen & Massaro (1993): every segment pulls the mouth towards its shape
with a strength that falls off exponentially before and after it, and the mouth is the weighted
mean. Timing after JALI (Edwards et al. 2016): lips move about 120 ms ahead of a sound and
let go 120 ms after, rounding takes 150 ms and starts early. What the eye checks first is forced
after the blend and after all smoothing: rounded lips in the middle of a rounded vowel, then closed
lips at p/b/m and the lip on the teeth at f/v.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

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
_ROUNDED = [Viseme.OU, Viseme.OH, Viseme.CH, Viseme.RR]
_ONSET_S[_ROUNDED] = 0.150
_DECAY_S[_ROUNDED] = 0.150
_ONSET_S[[Viseme.PP, Viseme.FF]] = 0.090
_DECAY_S[[Viseme.PP, Viseme.FF]] = 0.080

# At the stated onset or decay time a segment's pull has fallen to about a tenth.
_FALL = 2.3
_SHARPNESS = 1.5
_JAW_SMOOTHING_S = 0.06
"""The jaw is heavier than the lips: its way is averaged over this time,"""
_JAW_RAMP_S = 0.11
"""and it takes this long from an open vowel to closed lips."""


class _Forced(NamedTuple):
    """A viseme whose weight is at least `level` in the middle of its sound.

    It is taken up and given back within `ramp_s`: some 70 ms for lips that close (Löfqvist &
    Gracco 1997: bilabial closing and opening movements take 50 to 100 ms).
    """

    viseme: Viseme
    level: float
    ramp_s: float


_ROUNDINGS = (_Forced(Viseme.OH, 0.72, 0.08), _Forced(Viseme.OU, 0.72, 0.08))
_CLOSURES = (_Forced(Viseme.PP, 1.0, 0.07), _Forced(Viseme.FF, 1.0, 0.07))
_SHORTEST_HOLD_S = 0.044
"""A frame at 30 a second falls into it, wherever frames lie between the samples of a track."""

JAW = np.array(
    #  sil   PP    FF    TH    DD    kk    CH    SS    nn    RR    aa   E    ih    oh   ou
    [0.0, 0.0, 0.08, 0.16, 0.20, 0.28, 0.16, 0.06, 0.18, 0.22, 0.95, 0.60, 0.36, 0.62, 0.26],
    np.float32,
)
"""Jaw opening (0..1) of each viseme."""


class MouthTrack(NamedTuple):
    """A mouth at `RATE_HZ`, the first sample `PADDING_S` before the sound's start.

    `weights` is float32 of shape (n, 15); rows sum to at most 1, and what is missing to 1 is the
    mouth at rest. `jaw` is float32 of shape (n,), 0..1.
    """

    weights: NDArray[np.float32]
    jaw: NDArray[np.float32]


def mouth_track(spans: Sequence[VisemeSpan]) -> MouthTrack:
    """The mouth that says `spans`, which may begin up to `PADDING_S` before the sound.

    Raises `ValueError` for spans that run backwards or name no viseme.
    """
    end = -PADDING_S
    for span in spans:
        if span.end < span.start or span.start < end - 1e-3:
            raise ValueError(f"viseme spans must follow each other in time, got {span}")
        if not 0 <= span.viseme < _N:
            raise ValueError(f"no viseme {span.viseme}")
        end = span.end
    count = round((max(end, 0.0) + 2 * PADDING_S) * RATE_HZ) + 1
    if not spans:
        return MouthTrack(np.zeros((count, _N), np.float32), np.zeros(count, np.float32))

    visemes = np.array([span.viseme for span in spans])
    starts = np.array([span.start for span in spans])
    ends = np.array([span.end for span in spans])
    t = np.arange(count) / RATE_HZ - PADDING_S
    weights = _blended(t, visemes, starts, ends)
    for forced in _ROUNDINGS:
        hold = forced.level * _holds(t, visemes, starts, ends, (forced,))[0]
        _raise(weights, forced.viseme, hold)
    # Together, so that lips on their way from one closure to the other (m to f) do both in turn.
    holds = _holds(t, visemes, starts, ends, _CLOSURES)
    jaw = _smoothed(weights @ JAW)
    weights *= (1.0 - np.sum(holds, axis=0))[:, None]
    slower = [forced._replace(ramp_s=_JAW_RAMP_S) for forced in _CLOSURES]
    jaw_holds = _holds(t, visemes, starts, ends, slower)
    for forced, hold, jaw_hold in zip(_CLOSURES, holds, jaw_holds, strict=True):
        weights[:, forced.viseme] += hold
        jaw = jaw * (1.0 - jaw_hold) + JAW[forced.viseme] * jaw_hold
    weights[:, Viseme.SIL] = 0.0
    return MouthTrack(weights.astype(np.float32), jaw.astype(np.float32))


def _blended(
    t: NDArray[np.float64],
    visemes: NDArray[np.int64],
    starts: NDArray[np.float64],
    ends: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Weights of shape (times, 15), each row summing to 1 with silence."""
    # Silence around the sound lets the mouth open from rest and come back to it.
    visemes = np.concatenate(([0], visemes, [0]))
    first, last = starts[0], ends[-1]
    starts = np.concatenate(([-10.0], starts, [last]))
    ends = np.concatenate(([first], ends, [last + 10.0]))
    before = np.maximum(starts - t[:, None], 0.0) / _ONSET_S[visemes]
    after = np.maximum(t[:, None] - ends, 0.0) / _DECAY_S[visemes]
    # Short segments have less time to be reached; vowels of 80 ms and more are reached fully.
    length = np.clip((ends - starts) / 0.08, 0.35, 1.0)
    pull = _STRENGTH[visemes] * length * np.exp(-_FALL * (before + after))
    weights = np.zeros((len(t), _N))
    for column in range(len(visemes)):
        weights[:, visemes[column]] += pull[:, column]
    weights /= weights.sum(axis=1, keepdims=True)
    # The plain mean mumbles: at conversational speed no shape is reached. Sharpened, the shape
    # that leads comes through, and the transitions stay smooth.
    weights **= _SHARPNESS
    weights /= weights.sum(axis=1, keepdims=True)
    return weights


def _holds(
    t: NDArray[np.float64],
    visemes: NDArray[np.int64],
    starts: NDArray[np.float64],
    ends: NDArray[np.float64],
    kinds: Sequence[_Forced],
) -> list[NDArray[np.float64]]:
    """How far each kind is held at each time, 0..1; in sum at most 1.

    Full in the middle half of each sound. Where two are so near that their ways would overlap, one
    goes over into the other.
    """
    holds = [np.zeros(len(t)) for _ in kinds]
    which = {kind.viseme: index for index, kind in enumerate(kinds)}
    held: list[tuple[int, float, float]] = []
    for viseme, start, end in zip(visemes.tolist(), starts.tolist(), ends.tolist(), strict=True):
        index = which.get(Viseme(viseme))
        if index is not None:
            middle = (start + end) / 2
            half = max((end - start) / 4, _SHORTEST_HOLD_S / 2)
            held.append((index, middle - half, middle + half))
    for place, (index, start, end) in enumerate(held):
        rise = fall = kinds[index].ramp_s
        if place + 1 < len(held):
            # Two very short ones would overlap in full: each keeps its half.
            gap = held[place + 1][1] - end
            end, fall = min(end, end + gap / 2), min(fall, max(gap, 1e-3))
            # What the first loses there it takes earlier: lips may lead.
            start = min(start, end - _SHORTEST_HOLD_S)
        if place > 0:
            gap = start - held[place - 1][2]
            start, rise = max(start, start - gap / 2), min(rise, max(gap, 1e-3))
        up = np.clip((t - start) / rise + 1.0, 0.0, 1.0)
        down = np.clip((end - t) / fall + 1.0, 0.0, 1.0)
        level = np.minimum(up, down)
        # Half smooth step, half straight: lips have a top speed, too.
        eased = 0.5 * level + 0.5 * level * level * (3 - 2 * level)
        holds[index] = np.maximum(holds[index], eased)
    over = np.maximum(np.sum(holds, axis=0), 1.0)
    return [hold / over for hold in holds]


def _raise(weights: NDArray[np.float64], viseme: Viseme, least: NDArray[np.float64]) -> None:
    """Bring the weight of `viseme` to at least `least`; the others share the rest as before."""
    has = weights[:, viseme].copy()
    short = least > has
    share = np.where(short, (1.0 - least) / np.maximum(1.0 - has, 1e-9), 1.0)
    weights *= share[:, None]
    weights[:, viseme] = np.where(short, least, has)


def _smoothed(values: NDArray[np.float64]) -> NDArray[np.float64]:
    window = np.hanning(round(_JAW_SMOOTHING_S * RATE_HZ) + 3)
    smooth = np.convolve(values, window / window.sum(), mode="same")
    return np.asarray(smooth)
