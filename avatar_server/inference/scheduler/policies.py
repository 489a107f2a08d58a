"""In which order jobs run. A policy sees the candidates of one engine, or of one device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from avatar_server.inference.scheduler.jobs import Candidate

PATIENCE_S = 5.0
"""A job this late is served as if it were heard: nobody waits for ever while others speak."""

RESERVE_S = 0.5
"""Of speech, that those being heard have left when the first sound of another is made. Without it
a burst of replies starts them all, and then keeps none of them (`simulate`, four sessions on two
slow cores: 38 gaps in 400 s without). From 0.3 s on there are none, and 1 s makes the last of a
burst wait: p95 2.6 s instead of 2.2 s in one of two seeds."""
ROUNDING_S = 1e-6
FAIRNESS = 0.25
"""Where not all can be met, a session yields this much for every second it used of late."""


class Policy(Protocol):
    """The `count` candidates to run next, the first first; `now` is the clock time.

    `places`: how many steps run at a time where the candidates wait.
    """

    def __call__(
        self, candidates: Sequence[Candidate], now: float, count: int, places: int = 1
    ) -> list[Candidate]: ...


def fifo(
    candidates: Sequence[Candidate], now: float, count: int, places: int = 1
) -> list[Candidate]:
    """In order of arrival."""
    return sorted(candidates, key=lambda c: c.job.order)[:count]


def edf(
    candidates: Sequence[Candidate], now: float, count: int, places: int = 1
) -> list[Candidate]:
    """Earliest deadline first."""
    return sorted(candidates, key=lambda c: (c.due, c.job.order))[:count]


def fair(
    candidates: Sequence[Candidate], now: float, count: int, places: int = 1
) -> list[Candidate]:
    """The session that used least of late first."""
    return sorted(candidates, key=lambda c: (c.used_s, c.job.order))[:count]


def laxity(
    candidates: Sequence[Candidate], now: float, count: int, places: int = 1
) -> list[Candidate]:
    """What can wait, waits; what cannot, goes first; and the rest by when it must be done.

    Speech that is being heard gains nothing by being made early, so it yields to whoever waits in
    silence for as long as that can be done without the sound breaking off, and goes first from
    then on; best effort does likewise until its time has come. Among those who wait the earliest
    deadline goes first (on one engine no order meets more deadlines, if one meets all), until
    another has no laxity left (its deadline less now and the work before it) for as long as that
    step would take: then the one with the least goes first, if the other can still be met after
    it. This is EDZL (Cho et al., Efficient real-time scheduling algorithms for multiprocessor
    systems, IEICE Trans. Commun. E85-B, 2002) over steps that cannot be interrupted. Where not
    all can be met, a session that used much of late yields.
    """
    rest = edf(candidates, now, len(candidates))
    order: list[Candidate] = []
    while rest and len(order) < count:
        best = _next(rest, now, places)
        rest.remove(best)
        order.append(best)
    return order


def _next(by_deadline: Sequence[Candidate], now: float, places: int) -> Candidate:
    waiting = [c for c in by_deadline if not c.hard and not _can_wait(c, now)]
    if not waiting:
        return by_deadline[0]
    best = _first_waiting(waiting, now, places)
    heard = [c for c in by_deadline if c.hard]
    # One more reply to keep up with is begun only while those being heard have a reserve.
    reserve_s = RESERVE_S if best.job.stream else 0.0
    if not heard or _all_met(heard, now + best.step_s + reserve_s):
        return best
    late_for_long = now - best.due > PATIENCE_S and best.due < heard[0].due
    return best if late_for_long else heard[0]


def _first_waiting(by_deadline: Sequence[Candidate], now: float, places: int) -> Candidate:
    first = by_deadline[0]
    engines = {c.job.engine for c in by_deadline}
    if not all(_all_met([c for c in by_deadline if c.job.engine == e], now) for e in engines):
        return min(by_deadline, key=lambda c: (_fair_due(c, now), c.job.order))
    for other in sorted(by_deadline[1:], key=lambda c: _laxity(c, now)):
        left = _laxity(other, now)
        if left >= first.step_s:
            break
        # With more places than one the first waits only for the next that is free.
        held_up = places == 1 or other.job.engine == first.job.engine
        if left >= 0 and not (held_up and _laxity(first, now) < other.step_s):
            return other
    return first


def _fair_due(candidate: Candidate, now: float) -> float:
    # Only what is late in any case makes way.
    late = _laxity(candidate, now) < 0
    return candidate.due + (FAIRNESS * candidate.used_s if late else 0.0)


def _can_wait(candidate: Candidate, now: float) -> bool:
    return candidate.job.best_effort and candidate.due > now


def _laxity(candidate: Candidate, now: float) -> float:
    return candidate.due - now - candidate.work_s


def _all_met(by_deadline: Sequence[Candidate], now: float) -> bool:
    """Whether all are done in time one after the other."""
    for candidate in by_deadline:
        now += candidate.work_s
        if now > candidate.due + ROUNDING_S:
            return False
    return True


POLICIES: dict[str, Policy] = {"laxity": laxity, "edf": edf, "fifo": fifo, "fair": fair}
