"""What work costs here and now, learned while it is done.

For each stage a line is fitted to (size, seconds) by least squares, with older work fading, and
the spread around it is kept: a job is predicted to take the line's value times the 95th percentile
of what was seen over what was fitted. Nothing set by hand outlives the first jobs: a prior gives
the line's shape until sizes have differed enough to show it, and never its level.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

FADE = 0.97
"""Weight that an observation keeps when another comes: some 33 count."""
SPREAD_WINDOW = 100
"""Ratios of seen to fitted that are kept for percentiles."""
UNSEEN_RATIO = 1.5
"""Assumed p95 over the mean until `FEW` ratios are known."""
PRIOR_FADE = 0.85
LEAST_PRIOR_WEIGHT = 0.002
"""What stays of the prior, for a shape while all jobs are of one size."""
WORST_RATIO = 20.0
"""More over the mean than this is an accident, and says nothing of the next job."""
FEW = 5
RESTORED_WEIGHT = 5.0
"""What was learned in an earlier run counts as this many observations of now."""


@dataclass(frozen=True, slots=True)
class Prior:
    """What a stage may cost before it was ever seen: `fixed_s` + `per_unit_s` * size."""

    fixed_s: float = 0.05
    per_unit_s: float = 0.0

    def at(self, size: float) -> float:
        return self.fixed_s + self.per_unit_s * size


@dataclass(frozen=True, slots=True)
class StageCost:
    """What is known of a stage: mean seconds are `fixed_s` + `per_unit_s` * size, of which 95 %
    stay below `p95_ratio` times. `count` jobs were seen in this run."""

    fixed_s: float
    per_unit_s: float
    p95_ratio: float
    count: int


@dataclass(slots=True)
class _Line:
    """A line fitted to weighted points, and what was seen over what it said."""

    prior: Prior
    count: int = 0
    weight: float = 0.0
    x: float = 0.0
    y: float = 0.0
    xx: float = 0.0
    xy: float = 0.0
    prior_y: float = 0.0
    prior_weight: float = 0.5
    ratios: deque[float] = field(default_factory=lambda: deque(maxlen=SPREAD_WINDOW))
    fixed_s: float = 0.0
    per_unit_s: float = 0.0
    p95_ratio: float = UNSEEN_RATIO

    def observe(self, size: float, seconds: float) -> None:
        expected = self.fixed_s + self.per_unit_s * size
        # The first one says nothing of the spread: its level was unknown.
        if self.weight and expected > 0:
            self.ratios.append(min(seconds / expected, WORST_RATIO))
        self.count += 1
        self.weight = self.weight * FADE + 1
        self.x = self.x * FADE + size
        self.y = self.y * FADE + seconds
        self.xx = self.xx * FADE + size * size
        self.xy = self.xy * FADE + size * seconds
        self.prior_y = self.prior_y * FADE + self.prior.at(size)
        self.prior_weight = max(LEAST_PRIOR_WEIGHT, self.prior_weight * PRIOR_FADE)
        self.refit()

    def refit(self) -> None:
        if self.weight:
            self._fit()
        else:
            self.fixed_s, self.per_unit_s = self.prior.fixed_s, self.prior.per_unit_s
        known = sorted(self.ratios)
        if len(known) >= FEW:
            self.p95_ratio = max(1.0, known[math.ceil(0.95 * len(known)) - 1])
        else:
            self.p95_ratio = max([UNSEEN_RATIO, *known])

    def _fit(self) -> None:
        n, x, y, xx, xy = self.weight, self.x, self.y, self.xx, self.xy
        # Two points of the prior's line, moved to the level that was seen, give its shape.
        level = y / self.prior_y if self.prior_y > 0 else 1.0
        w, far = self.prior_weight, 2 * x / n
        near_value, far_value = self.prior.at(0.0) * level, self.prior.at(far) * level
        n, x, y = n + 2 * w, x + w * far, y + w * (near_value + far_value)
        xx, xy = xx + w * far * far, xy + w * far * far_value
        spread = n * xx - x * x
        slope = (n * xy - x * y) / spread if spread > 1e-12 else 0.0
        slope = max(0.0, slope)
        fixed = (y - slope * x) / n
        if fixed < 0:
            fixed, slope = 0.0, xy / xx
        self.fixed_s, self.per_unit_s = fixed, slope


class CostModel:
    """Predicts how long a stage's job of a given size takes.

    A stage is a name (`stt`, `tts`, …) and its size whatever grows with the work: seconds of
    speech, characters, tokens; each stage's user keeps to one unit. Observing and predicting may
    be done by different threads as long as one thread at a time observes.
    """

    def __init__(self, priors: Mapping[str, Prior] | None = None) -> None:
        self._priors = dict(priors or {})
        self._lines: dict[str, _Line] = {}

    def observe(self, stage: str, size: float, seconds: float) -> None:
        """A job of `stage` and `size` took `seconds`. Impossible values are ignored."""
        if size >= 0 and 0 <= seconds < math.inf:
            self._line(stage).observe(size, seconds)

    def expected_s(self, stage: str, size: float = 1.0) -> float:
        """Mean seconds of a job."""
        line = self._line(stage)
        return line.fixed_s + line.per_unit_s * size

    def predict_s(self, stage: str, size: float = 1.0) -> float:
        """Seconds that 95 % of such jobs do not exceed."""
        line = self._line(stage)
        return (line.fixed_s + line.per_unit_s * size) * line.p95_ratio

    def seen(self, stage: str) -> int:
        """Jobs of the stage observed in this run."""
        return self._lines[stage].count if stage in self._lines else 0

    def stages(self) -> dict[str, StageCost]:
        """All stages that were observed, or restored."""
        return {
            name: StageCost(line.fixed_s, line.per_unit_s, line.p95_ratio, line.count)
            for name, line in list(self._lines.items())
            if line.weight
        }

    def snapshot(self) -> dict[str, Any]:
        """Everything learned, as plain values for a file."""
        return {
            name: {
                "weight": line.weight,
                "sums": [line.x, line.y, line.xx, line.xy, line.prior_y],
                "ratios": [round(ratio, 4) for ratio in line.ratios],
            }
            for name, line in list(self._lines.items())
            if line.weight
        }

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Begin with what an earlier run learned; new observations soon outweigh it.

        Raises `ValueError` where this is no snapshot, and changes nothing then.
        """
        lines: dict[str, _Line] = {}
        try:
            for name, known in snapshot.items():
                weight = float(known["weight"])
                sums = [float(value) for value in known["sums"]]
                ratios = [float(value) for value in known["ratios"]]
                if not (weight > 0 and len(sums) == 5 and all(map(math.isfinite, sums + ratios))):
                    raise ValueError(f"stage {name} has impossible values")
                share = min(1.0, RESTORED_WEIGHT / weight)
                line = _Line(self._prior(name), weight=weight * share)
                line.prior_weight = LEAST_PRIOR_WEIGHT
                line.x, line.y, line.xx, line.xy, line.prior_y = (v * share for v in sums)
                line.ratios.extend(ratios)
                line.refit()
                lines[name] = line
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"no snapshot of a cost model: {error!r}") from error
        self._lines.update(lines)

    def _prior(self, stage: str) -> Prior:
        return self._priors.get(stage, Prior())

    def _line(self, stage: str) -> _Line:
        line = self._lines.get(stage)
        if line is None:
            line = _Line(self._prior(stage))
            line.refit()
            line = self._lines.setdefault(stage, line)
        return line
