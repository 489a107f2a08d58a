"""A plan as JSON, as a table for the terminal, and as a diagram."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from avatar_server.capacity.planner.catalogue import PlanError
from avatar_server.capacity.planner.plan import Plan
from avatar_server.capacity.planner.validate import Check, typical_error


def as_json(plan: Plan, price_per_hour: float | None = None) -> dict[str, Any]:
    """The plan's keys as `plan --json` writes them."""
    return {
        "gpu": plan.gpu.title,
        "model": plan.model.title,
        "precision": plan.precision,
        "sessions": plan.workload.sessions,
        "fits": plan.fits,
        "usable": plan.usable,
        "reasons": plan.reasons,
        "memory_gib": {part: round(gib, 2) for part, gib in plan.memory_gib.items()},
        "memory_bound_gib": round(plan.memory_bound_gib, 2),
        "latency_ms": {stage: round(ms, 1) for stage, ms in plan.latency_ms.items()},
        "voice_to_voice_ms": round(plan.voice_to_voice_ms, 1),
        "budget_ms": plan.workload.budget_ms,
        "tokens_per_second": round(plan.tokens_per_second, 1),
        "gpu_share": round(plan.gpu_share, 3),
        "cpu_cores": round(plan.cpu_cores, 2),
        "binding": plan.binding,
        "sessions_max": plan.sessions_max,
        "cost_per_avatar_month": round(plan.cost_per_avatar_month(price_per_hour), 2),
        "price_per_hour_assumed": price_per_hour is None,
    }


def verdict(plan: Plan) -> str:
    """One sentence for the terminal."""
    sessions = plan.workload.sessions
    count = "1 session" if sessions == 1 else f"{sessions} sessions"
    what = f"{plan.model.title} ({plan.precision}) on {plan.gpu.title}, {count}"
    if plan.usable:
        return f"{what}: it fits, and one can converse with it."
    lead = "it fits, but is not usable for conversation" if plan.fits else "it does not fit"
    return f"{what}: {lead}. " + "; ".join(plan.reasons) + "."


def table(plan: Plan, price_per_hour: float | None = None) -> Table:
    """Every line that the verdicts rest on."""
    out = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    out.add_column()
    out.add_column(justify="right")
    out.add_column()
    out.add_row("[bold]Memory[/bold]", "GiB")
    for part, gib in plan.memory_gib.items():
        out.add_row("  " + part.replace("_", " "), f"{gib:.2f}")
    total = sum(plan.memory_gib.values())
    out.add_row("  together", f"{total:.1f}", f"of {plan.memory_bound_gib:.1f} that may be planned")
    out.add_row("[bold]A turn, all sessions talking[/bold]", "ms")
    for stage, ms in plan.latency_ms.items():
        out.add_row(f"  {stage}", f"{ms:.0f}")
    budget = f"budget {plan.workload.budget_ms:.0f}"
    out.add_row("  voice to voice", f"{plan.voice_to_voice_ms:.0f}", budget)
    out.add_row("[bold]Pace[/bold]", "")
    out.add_row("  tokens a second, each session", f"{plan.tokens_per_second:.0f}")
    out.add_row("  GPU time in use", f"{plan.gpu_share:.0%}")
    out.add_row("  CPU cores", f"{plan.cpu_cores:.1f}", "drawing, encoding, sending, engine")
    if not plan.gpu.nvenc:
        out.add_row("", "", "this GPU has no video encoder: encoding is CPU work")
    if plan.sessions_max is not None:
        out.add_row("Most sessions", f"{plan.sessions_max}", f"then bound by: {plan.binding}")
    cost = plan.cost_per_avatar_month(price_per_hour)
    price = plan.price(price_per_hour)
    said = "assumed; set --price" if price_per_hour is None else "given"
    out.add_row(
        "Cost of an avatar, a month", f"{cost:,.0f}", f"USD, at {price:.2f} an hour ({said})"
    )
    return out


def comparison(plans: Sequence[Plan], price_per_hour: float | None = None) -> Table:
    """Plans side by side."""
    out = Table(box=None, padding=(0, 2, 0, 0))
    for name in ("model", "GPU"):
        out.add_column(name)
    for name in ("GiB", "fits", "v2v ms", "tok/s", "usable", "sessions", "cores", "$/avatar"):
        out.add_column(name, justify="right")
    out.add_column("bound by")
    for plan in plans:
        out.add_row(
            f"{plan.model.title} {plan.precision}",
            plan.gpu.title,
            f"{sum(plan.memory_gib.values()):.1f}",
            "yes" if plan.fits else "no",
            f"{plan.voice_to_voice_ms:.0f}",
            f"{plan.tokens_per_second:.0f}",
            "yes" if plan.usable else "no",
            "" if plan.sessions_max is None else str(plan.sessions_max),
            f"{plan.cpu_cores:.1f}",
            f"{plan.cost_per_avatar_month(price_per_hour):,.0f}" if plan.usable else "",
            plan.binding,
        )
    return out


def check_table(checks: Sequence[Check]) -> Table:
    """Predictions beside published measurements."""
    out = Table(box=None, padding=(0, 2, 0, 0))
    for name in ("model", "GPU", "what"):
        out.add_column(name)
    for name in ("published ms", "predicted ms", "error"):
        out.add_column(name, justify="right")
    out.add_column("used in fitting")
    out.add_column("source")
    for one in checks:
        m = one.measurement
        what = one.quantity + (f" @{m.prompt_tokens}" if m.prompt_tokens else "")
        out.add_row(
            f"{m.model} {m.precision}",
            m.gpu,
            what,
            f"{one.measured_ms:.1f}",
            f"{one.predicted_ms:.1f}",
            f"{one.error:+.0%}",
            "yes" if one.fitted else "no",
            m.source,
        )
    return out


def errors_by_kind(checks: Sequence[Check]) -> dict[str, float]:
    """Typical error (see `typical_error`) of each quantity, and of what was not fitted."""
    kinds = {
        "decode": [c for c in checks if c.fitted and c.quantity == "decode"],
        "first_token": [c for c in checks if c.fitted and c.quantity == "first token"],
        "not_fitted": [c for c in checks if not c.fitted],
    }
    return {kind: typical_error(some) for kind, some in kinds.items()}


def draw(plans: Sequence[Plan], path: Path) -> None:
    """Memory by part and latency by stage, a bar for each plan, to a PNG, SVG or PDF file.

    Raises `PlanError` where matplotlib is not installed or cannot write such a file.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise PlanError(
            "diagrams need matplotlib: pip install 'avatar-server[plot]' -c constraints.txt"
        ) from error
    figure: Any = Figure(figsize=(11, 1.9 + 0.55 * len(plans)), layout="constrained")
    memory, latency = figure.subplots(1, 2)
    names = [f"{plan.model.title} {plan.precision}\n{plan.gpu.title}" for plan in plans]
    rows = range(len(plans))
    for axes, parts, title in (
        (memory, [plan.memory_gib for plan in plans], "GPU memory, GiB"),
        (latency, [plan.latency_ms for plan in plans], "voice to voice, ms, all sessions talking"),
    ):
        left = [0.0] * len(plans)
        for key in dict.fromkeys(key for part in parts for key in part):
            widths = [part.get(key, 0.0) for part in parts]
            axes.barh(rows, widths, left=left, height=0.6, label=key.replace("_", " "))
            left = [have + width for have, width in zip(left, widths, strict=True)]
        axes.set_title(title, fontsize=10)
        axes.set_yticks(list(rows), names if axes is memory else [""] * len(plans), fontsize=8)
        axes.invert_yaxis()
        axes.legend(fontsize=7, ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.12))
    for row, plan in enumerate(plans):
        memory.plot([plan.memory_bound_gib] * 2, [row - 0.38, row + 0.38], color="black")
        latency.plot([plan.workload.budget_ms] * 2, [row - 0.38, row + 0.38], color="black")
    try:
        figure.savefig(path, dpi=150)
    except (OSError, ValueError) as error:
        raise PlanError(f"cannot write the diagram {path}: {error}") from error
