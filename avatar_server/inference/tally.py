"""What the inference process has done so far, for its status."""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Mapping

REMEMBERED = 200
"""Times of each stage that its median is of."""


class JobTally:
    """Jobs done and failed, and the times of their stages."""

    def __init__(self) -> None:
        self.done: dict[str, int] = {}
        """By kind of job."""
        self.failed = 0
        self._stages: dict[str, deque[float]] = {}

    def count(self, kind: str, stages_ms: Mapping[str, float]) -> None:
        """A job of this kind is done; its stages took so long."""
        self.done[kind] = self.done.get(kind, 0) + 1
        for stage, value in stages_ms.items():
            self._stages.setdefault(stage, deque(maxlen=REMEMBERED)).append(value)

    def medians_ms(self) -> dict[str, float]:
        """Of each stage's last times."""
        return {
            stage: round(statistics.median(values), 1) for stage, values in self._stages.items()
        }
