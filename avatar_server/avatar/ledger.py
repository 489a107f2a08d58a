"""A turn's ledger: where its time went, what each stage was granted, and which overran.

The budget is divided by shares. A stage is granted its share of what is left, relative to the
shares of the stages still to come: what one saves flows on to those after it, what one takes too
much of they lack.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from avatar_server.protocol.messages import LedgerEntry


def ledger(
    path: Sequence[tuple[str, float]], budget_ms: float, shares: Mapping[str, float]
) -> list[LedgerEntry]:
    """Entries for `path`: what happened one after the other, as (stage, seconds).

    A stage that comes twice has one entry, at its first place. Stages of `shares` that did not
    happen save their share; one without a share is granted nothing.
    """
    took: dict[str, float] = {}
    for stage, seconds in path:
        took[stage] = took.get(stage, 0.0) + max(0.0, seconds)
    left_ms, left_share = budget_ms, sum(shares.get(stage, 0.0) for stage in took)
    entries = []
    for stage, seconds in took.items():
        share = shares.get(stage, 0.0)
        granted_ms = left_ms * share / left_share if left_share > 0 else 0.0
        entries.append(
            LedgerEntry(
                stage=stage, granted_ms=round(granted_ms, 1), took_ms=round(seconds * 1e3, 1)
            )
        )
        left_ms = max(0.0, left_ms - seconds * 1e3)
        left_share -= share
    return entries


def overran(entries: Sequence[LedgerEntry], budget_ms: float) -> str:
    """The stage that took most over what it was granted; empty where the budget was kept."""
    if sum(entry.took_ms for entry in entries) <= budget_ms:
        return ""
    return max(entries, key=lambda entry: entry.took_ms - entry.granted_ms).stage
