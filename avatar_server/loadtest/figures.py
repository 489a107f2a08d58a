"""Figures from what was received: rates, freezes, offsets, quantiles. Pure functions.

Times are seconds of one monotonic clock, series are in the order of time.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np

Quantiles = dict[str, float | None]


def quantiles(values: Sequence[float], digits: int = 1) -> Quantiles:
    """`p50`, `p95` and `max`; None of each where there are no values.

    Percentiles are interpolated linearly between the two nearest values.
    """
    if not len(values):
        return {"p50": None, "p95": None, "max": None}
    p50, p95 = np.percentile(values, [50, 95])
    return {
        "p50": round(float(p50), digits),
        "p95": round(float(p95), digits),
        "max": round(float(max(values)), digits),
    }


def percentile(values: Sequence[float], percent: float, digits: int = 1) -> float | None:
    """A percentile, interpolated; None where there are no values."""
    return round(float(np.percentile(values, percent)), digits) if len(values) else None


def within(times: Sequence[float], start: float, end: float) -> slice:
    """The part of rising `times` that lies in [start, end)."""
    return slice(bisect_left(times, start), bisect_left(times, end))


def fps_by_second(shown: Sequence[float], start: float, end: float) -> list[float]:
    """Pictures a second in each whole second of [start, end).

    A second's rate is its pictures divided by the time since the last picture before it: steady
    30 pictures a second are 30 in every second wherever its borders fall, and one lost picture
    makes 29. A second without pictures is 0.
    """
    rates = []
    for second in range(math.floor(end - start + 1e-9)):
        first = bisect_left(shown, start + second)
        after = bisect_left(shown, start + second + 1)
        count = after - first
        if not count:
            rates.append(0.0)
        elif first:
            rates.append(count / max(shown[after - 1] - shown[first - 1], 1e-3))
        else:
            span = shown[after - 1] - shown[first]
            rates.append((count - 1) / span if span > 0 else float(count))
    return rates


def intervals_ms(shown: Sequence[float], start: float, end: float) -> list[float]:
    """Milliseconds between consecutive pictures, for each that ends in [start, end).

    A picture that stands at the end of the window counts with the time it has stood so far.
    """
    first, after = bisect_left(shown, start), bisect_left(shown, end)
    times = [shown[first - 1] if first else start, *shown[first:after]]
    steps = [(b - a) * 1e3 for a, b in pairwise(times)]
    if after == len(shown):
        steps.append((end - times[-1]) * 1e3)
    return steps


def freezes(steps_ms: Sequence[float], bound_ms: float) -> list[float]:
    """The intervals longer than `bound_ms`; one of exactly `bound_ms` is none."""
    return [step for step in steps_ms if step > bound_ms + 1e-6]


def missed_frames(pts: Sequence[int]) -> int:
    """Frames that the stream's own timestamps leave out; the usual step is one frame."""
    steps = np.diff(np.asarray(pts, np.int64))
    steps = steps[steps > 0]
    if not steps.size:
        return 0
    usual = float(np.median(steps))
    return int(np.maximum(np.rint(steps / usual) - 1, 0).sum())


def av_offsets_ms(
    video: Sequence[tuple[float, float]], audio: Sequence[tuple[float, float]]
) -> list[float]:
    """By how much each picture came later than the sound of the same moment (negative: earlier).

    Both are (capture time by the sender's reports, arrival), in the order of capture; pictures
    outside the sound's span are left out.
    """
    if len(audio) < 2 or not video:
        return []
    captured, arrived = np.asarray(audio, np.float64).T
    moments, shown = np.asarray(video, np.float64).T
    inside = (moments >= captured[0]) & (moments <= captured[-1])
    heard = np.interp(moments[inside], captured, arrived)
    return [float(value) for value in (shown[inside] - heard) * 1e3]


class AudibleTimes:
    """When something was to be heard: (first, last) audible moment of each piece of sound."""

    def __init__(self) -> None:
        self._first: list[float] = []
        self._last: list[float] = []

    def add(self, first: float, last: float) -> None:
        """A piece with audible sound; pieces come in the order of time."""
        self._first.append(first)
        self._last.append(last)

    @property
    def last(self) -> float | None:
        return self._last[-1] if self._last else None

    def first_after(self, since: float) -> float | None:
        """The first audible moment after `since`."""
        at = bisect_right(self._first, since)
        if at and self._last[at - 1] > since:
            return since
        return self._first[at] if at < len(self._first) else None

    def last_before(self, until: float) -> float | None:
        """The last audible moment of the pieces that begin before `until`."""
        at = bisect_left(self._first, until)
        return self._last[at - 1] if at else None

    def stop_after(self, since: float, silence_s: float, until: float) -> float | None:
        """When sound that goes on after `since` stops for `silence_s`, known at `until`.

        `since` itself where it is silent already; None where it has not stopped by `until`.
        """
        at = bisect_left(self._last, since)
        stopped = since
        while at < len(self._first) and self._first[at] - stopped < silence_s:
            stopped = self._last[at]
            at += 1
        return stopped if until - stopped >= silence_s else None


def stage_quantiles(stages: Sequence[Mapping[str, tuple[float, float]]]) -> dict[str, Quantiles]:
    """Quantiles of each stage's length over turns of {stage: (start, end)} in ms."""
    lengths: dict[str, list[float]] = {}
    for turn in stages:
        for stage, (start, end) in turn.items():
            lengths.setdefault(stage, []).append(end - start)
    return {stage: quantiles(values) for stage, values in lengths.items()}
