"""The simulation's figures as a table, as JSON, and as a diagram."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from avatar_server.capacity.simulator.profile import Profile
from avatar_server.capacity.simulator.simulate import Comparison, Outcome, most_sessions

COLUMNS = 4
"""Utilisation of this many devices is shown."""


class PlotError(RuntimeError):
    """The diagram cannot be drawn; the message says what to do."""


def table(outcomes: Sequence[Outcome]) -> Table:
    """One row for each number of sessions and policy."""
    devices = list(outcomes[0].utilisation)[:COLUMNS] if outcomes else []
    made = Table(
        title="n sessions: voice to voice in ms, late frames, gaps in speech, use of devices",
        title_justify="left",
    )
    for name in ("n", "policy", "turns", "answered", "p50", "p95", "late", "gaps"):
        made.add_column(name, justify="left" if name == "policy" else "right", no_wrap=True)
    for device in devices:
        made.add_column(device, justify="right")
    made.add_column("binds", no_wrap=True)
    made.add_column("objective", no_wrap=True)
    for o in outcomes:
        made.add_row(
            str(o.sessions),
            o.policy,
            str(o.turns),
            str(o.answered),
            _ms(o.p50_ms),
            _ms(o.p95_ms),
            f"{o.late_frames:.2%}",
            str(o.gaps),
            *(f"{o.utilisation[device]:.0%}" for device in devices),
            o.binding,
            "holds" if o.meets else f"not: {', '.join(o.why_not)}",
        )
    return made


def as_json(
    profile: Profile, outcomes: Sequence[Outcome], duration_s: float, seed: int
) -> dict[str, Any]:
    """Everything, with the profile that it rests on."""
    return {
        "profile": profile.model_dump(),
        "duration_s": duration_s,
        "seed": seed,
        "outcomes": [outcome.as_json() for outcome in outcomes],
        "sessions_that_meet_the_objective": most_sessions(outcomes),
    }


def comparison_json(comparison: Comparison, allowed: float) -> dict[str, Any]:
    """Prediction beside measurement."""
    return {
        "sessions": comparison.sessions,
        "predicted_ms": {"p50": comparison.predicted_p50_ms, "p95": comparison.predicted_p95_ms},
        "measured_ms": {"p50": comparison.measured_p50_ms, "p95": comparison.measured_p95_ms},
        "error_p50": round(comparison.error, 4),
        "within": abs(comparison.error) <= allowed,
    }


def draw(outcomes: Sequence[Outcome], budget_ms: float, path: Path) -> None:
    """Latency, and use of the devices, over sessions for each policy. Raises `PlotError`."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise PlotError(
            "--plot needs matplotlib, which is not installed: pip install 'avatar-server[plot]'"
        ) from error
    figure = Figure(figsize=(10, 7), layout="constrained")
    latency, use = figure.subplots(2, 1, sharex=True)
    for policy in dict.fromkeys(o.policy for o in outcomes):
        own = [o for o in outcomes if o.policy == policy and o.p95_ms is not None]
        counts = [o.sessions for o in own]
        (line,) = latency.plot(counts, [o.p95_ms for o in own], marker="o", label=f"{policy}, p95")
        latency.plot(counts, [o.p50_ms for o in own], linestyle=":", color=line.get_color())
    latency.axhline(budget_ms, color="grey", linewidth=1)
    latency.set_ylabel("voice to voice, ms (dotted: p50)")
    latency.set_yscale("log")
    latency.legend()
    first = outcomes[0].policy
    for device in outcomes[0].utilisation:
        own = [o for o in outcomes if o.policy == first]
        use.plot([o.sessions for o in own], [o.utilisation[device] for o in own], label=device)
    use.set_ylabel(f"use under {first}")
    use.set_xlabel("sessions")
    use.set_ylim(0, 1.02)
    use.legend()
    try:
        figure.savefig(path, dpi=120)
    except (OSError, ValueError) as error:
        raise PlotError(f"--plot {path}: {error}") from error


def _ms(value: float | None) -> str:
    return "–" if value is None else f"{value:.0f}"
