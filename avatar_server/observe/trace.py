"""Recent turns, kept in memory for the overlay and the operator."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence

import msgspec

from avatar_server.protocol.messages import TurnTrace


class Quantiles(msgspec.Struct, kw_only=True, frozen=True):
    """Median and 95th percentile, in ms, of `count` values."""

    count: int
    p50: float
    p95: float


class TurnSummary(msgspec.Struct, kw_only=True, frozen=True):
    """What a number of turns took. `stages_ms` are the lengths of their stages."""

    turns: int
    voice_to_voice_ms: Quantiles | None
    stages_ms: dict[str, Quantiles]


class TraceRing:
    """The last `size` finished turns of all sessions; the oldest go first."""

    def __init__(self, size: int) -> None:
        self._turns: deque[TurnTrace] = deque(maxlen=size)

    def add(self, trace: TurnTrace) -> None:
        self._turns.append(trace)

    def of_session(self, session: str) -> list[TurnTrace]:
        """A session's turns that are still kept, oldest first."""
        return [trace for trace in self._turns if trace.session == session]

    def all(self) -> list[TurnTrace]:
        return list(self._turns)


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that at least `percent` % of `values` do not exceed (nearest rank)."""
    if not values:
        raise ValueError("no values: a percentile of nothing is not a number")
    rank = math.ceil(percent / 100 * len(values))
    return sorted(values)[max(0, rank - 1)]


def quantiles(values: Sequence[float]) -> Quantiles:
    """`Quantiles` of at least one value."""
    return Quantiles(count=len(values), p50=percentile(values, 50), p95=percentile(values, 95))


def summarise(traces: Iterable[TurnTrace]) -> TurnSummary:
    """Latency and the stages' lengths; a stage that a turn ran twice counts with its sum."""
    turns = list(traces)
    latencies = [t.voice_to_voice_ms for t in turns if t.voice_to_voice_ms is not None]
    stages: dict[str, list[float]] = {}
    for trace in turns:
        lengths: dict[str, float] = {}
        for span in trace.stages:
            lengths[span.stage] = lengths.get(span.stage, 0.0) + (span.end - span.start) * 1e3
        for stage, length in lengths.items():
            stages.setdefault(stage, []).append(length)
    return TurnSummary(
        turns=len(turns),
        voice_to_voice_ms=quantiles(latencies) if latencies else None,
        stages_ms={stage: quantiles(values) for stage, values in sorted(stages.items())},
    )
