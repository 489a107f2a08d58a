"""Runs the virtual host with numbers of sessions under policies, and says what came of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from avatar_server.capacity.simulator.host import Host
from avatar_server.capacity.simulator.profile import Profile
from avatar_server.capacity.simulator.session import SimSession, TurnResult
from avatar_server.capacity.simulator.workload import Workload, turns
from avatar_server.observe.trace import percentile

WARM_UP_S = 20.0
"""Left out of the figures: sessions begin one after the other, and costs are not learned yet."""
RUN_OUT_S = 10.0
"""Turns that end in the last seconds get their answer."""
MADE_MS = 100.0
"""From then on a reply's first words are the language model's; what is known takes a few ms."""
KEPT_MS = 3.0
"""A clause's first sound that took less was there already."""
MOST_LATE = 0.001
"""Share of late frames with which the objective still holds."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What `sessions` under `policy` came to. Latencies in ms; None where nothing was answered.

    `late_frames` is a share, `gaps` how often speech broke off while it was heard.
    """

    sessions: int
    policy: str
    turns: int
    answered: int
    p50_ms: float | None
    p95_ms: float | None
    max_ms: float | None
    late_frames: float
    gaps: int
    utilisation: dict[str, float]
    binding: str
    meets: bool
    why_not: dict[str, str]
    """What breaks the objective: `answers`, `latency`, `frames`, `speech`, each with a sentence."""

    def as_json(self) -> dict[str, Any]:
        """As the command writes it; named like the load test's keys."""
        latency = {"p50": self.p50_ms, "p95": self.p95_ms, "max": self.max_ms}
        return {
            "sessions": self.sessions,
            "policy": self.policy,
            "turns": {
                "count": self.turns,
                "answered": self.answered,
                "voice_to_voice_ms": latency,
            },
            "late_frames": self.late_frames,
            "audio_gaps": self.gaps,
            "utilisation": self.utilisation,
            "binding": self.binding,
            "meets_objective": self.meets,
            "why_not": self.why_not,
        }


def simulate(
    profile: Profile,
    sessions: int,
    policy: str = "laxity",
    *,
    duration_s: float = 300.0,
    workload: Workload | None = None,
    seed: int = 1,
) -> Outcome:
    """`sessions` conversations for `duration_s` of virtual time. The same seed, the same result."""
    workload = workload or Workload()
    host = Host(profile, policy, seed)
    viewers = [
        SimSession(host, number, turns(workload, seed, number), workload)
        for number in range(sessions)
    ]
    for number, viewer in enumerate(viewers):
        viewer.start(number * WARM_UP_S / 2 / sessions)
    host.start_frames(sessions)
    until = WARM_UP_S + duration_s
    host.timeline.run(until + RUN_OUT_S, host.dispatch)
    results = [r for viewer in viewers for r in viewer.results if WARM_UP_S <= r.ended_at <= until]
    return _outcome(host, sessions, policy, results)


def _outcome(host: Host, sessions: int, policy: str, results: list[TurnResult]) -> Outcome:
    felt = [result.first_s * 1e3 for result in results if result.first_s is not None]
    p50, p95, most = (round(percentile(felt, p), 1) if felt else None for p in (50, 95, 100))
    late = host.frames.late / max(1, host.frames.total)
    gaps = sum(result.gaps for result in results)
    used = host.utilisation()
    why_not = {}
    if len(felt) < len(results) or not results:
        why_not["answers"] = f"{len(results) - len(felt)} of {len(results)} were not answered"
    if p95 is not None and p95 > host.profile.budget_ms:
        why_not["latency"] = f"p95 is over the budget of {host.profile.budget_ms:.0f} ms"
    if late > MOST_LATE:
        why_not["frames"] = f"{late:.1%} of the frames are late"
    if gaps:
        why_not["speech"] = f"it broke off {gaps} times"
    return Outcome(
        sessions=sessions,
        policy=policy,
        turns=len(results),
        answered=len(felt),
        p50_ms=p50,
        p95_ms=p95,
        max_ms=most,
        late_frames=round(late, 5),
        gaps=gaps,
        utilisation=used,
        binding=max(used, key=used.__getitem__),
        meets=not why_not,
        why_not=why_not,
    )


def sweep(
    profile: Profile,
    sessions: Iterable[int],
    policies: Iterable[str],
    *,
    duration_s: float = 300.0,
    workload: Workload | None = None,
    seed: int = 1,
    progress: Callable[[Outcome], None] = lambda outcome: None,
) -> list[Outcome]:
    """`simulate` for every number of sessions under every policy."""
    outcomes = []
    policies = list(policies)
    for count in sessions:
        for policy in policies:
            outcome = simulate(
                profile, count, policy, duration_s=duration_s, workload=workload, seed=seed
            )
            progress(outcome)
            outcomes.append(outcome)
    return outcomes


def most_sessions(outcomes: Iterable[Outcome]) -> dict[str, int]:
    """By policy, the most sessions up to which the objective holds without a break."""
    best: dict[str, int] = {}
    broken: set[str] = set()
    for outcome in sorted(outcomes, key=lambda o: o.sessions):
        best.setdefault(outcome.policy, 0)
        if not outcome.meets:
            broken.add(outcome.policy)
        elif outcome.policy not in broken:
            best[outcome.policy] = outcome.sessions
    return best


class ComparisonError(ValueError):
    """A load test's result that cannot be compared with; the message says why."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """What was predicted and what was measured; latencies in ms."""

    sessions: int
    predicted_p50_ms: float
    measured_p50_ms: float
    predicted_p95_ms: float
    measured_p95_ms: float

    @property
    def error(self) -> float:
        """Of the predicted p50, relative to the measured one."""
        return self.predicted_p50_ms / self.measured_p50_ms - 1


def compare(
    profile: Profile,
    load: Any,
    policy: str = "laxity",
    *,
    workload: Workload | None = None,
    seed: int = 1,
    duration_s: float = 300.0,
) -> Comparison:
    """Predict what `load`, the JSON of `avatar-server load`, measured. Raises `ComparisonError`.

    Of the measurement only what is the load test's doing goes in: how often each viewer spoke,
    which share of the questions the language model had to answer and which had been answered
    before (without `workload`), and the CPU time that the viewers themselves, and others, took of
    the same machine.
    """
    sessions, cycle_s, p50, p95 = _measured(load)
    profile = profile.model_copy(update={"other_cores": _others_cores(load) / sessions})
    workload = workload or _mix(load)
    for _ in range(3):
        trial = simulate(
            profile, sessions, policy, workload=workload, seed=seed, duration_s=duration_s
        )
        if not trial.turns:
            break
        pause_s = workload.pause_s + cycle_s - sessions * duration_s / trial.turns
        workload = replace(workload, pause_s=max(0.2, pause_s))
    outcome = simulate(
        profile, sessions, policy, workload=workload, seed=seed, duration_s=2 * duration_s
    )
    if outcome.p50_ms is None or outcome.p95_ms is None:
        raise ComparisonError("in the simulation no turn was answered: see --sessions")
    return Comparison(sessions, outcome.p50_ms, p50, outcome.p95_ms, p95)


def _others_cores(load: Any) -> float:
    used = load.get("cpu_ms_per_s") or {}
    if not used.get("avatar"):
        # The server was on another machine.
        return 0.0
    parts = (used.get("load"), used.get("other"), used.get("foreign"))
    return sum(float(part) for part in parts if isinstance(part, int | float)) / 1e3


def _mix(load: Any) -> Workload:
    """What the load test's questions are like, by how they were answered."""
    try:
        spans: list[Mapping[str, Any]] = [turn["stages_ms"] for turn in load["detail"]["turns"]]
        took = [
            {stage: float(end) - float(begin) for stage, (begin, end) in stages.items()}
            for stages in spans
        ]
    except (KeyError, TypeError, ValueError):
        return Workload()
    answered = [stages for stages in took if "llm" in stages and "tts" in stages]
    if not answered:
        return Workload()
    others = [stages for stages in answered if stages["llm"] < MADE_MS]
    kept = sum(stages["tts"] < KEPT_MS for stages in others)
    return Workload(made=1 - len(others) / len(answered), kept=kept / max(1, len(others)))


def _measured(load: Any) -> tuple[int, float, float, float]:
    """Sessions, seconds between a viewer's turns, p50 and p95 of a load test."""
    try:
        sessions, seconds = int(load["sessions"]), float(load["duration_s"])
        spoken = int(load["turns"]["count"])
        latency: Mapping[str, Any] = load["turns"]["voice_to_voice_ms"]
        p50, p95 = float(latency["p50"]), float(latency["p95"])
    except (KeyError, TypeError, ValueError) as error:
        raise ComparisonError(
            f"this is no result of `avatar-server load --json` ({type(error).__name__}: {error})"
        ) from error
    if sessions < 1 or spoken < 1 or seconds <= 0 or p50 <= 0:
        raise ComparisonError("the load test has no answered turns to compare with")
    return sessions, sessions * seconds / spoken, p50, p95
