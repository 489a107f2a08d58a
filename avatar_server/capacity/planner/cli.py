"""`avatar-server plan`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from avatar_server.capacity.planner.catalogue import PlanError, gpus, language_models
from avatar_server.capacity.planner.plan import Plan, Workload, make_plan
from avatar_server.capacity.planner.report import (
    as_json,
    check_table,
    comparison,
    draw,
    errors_by_kind,
    table,
    verdict,
)
from avatar_server.capacity.planner.validate import checks

FINE, UNUSABLE, WRONG_USE = 0, 1, 2


def plan_command(
    gpu: Annotated[str, typer.Option(help="A GPU; --list names those known.")] = "h100",
    model: Annotated[
        str, typer.Option(help="A language model and its precision.")
    ] = "qwen3.6-35b-a3b-fp8",
    sessions: Annotated[int, typer.Option(min=1, max=256, help="Avatars that run at once.")] = 4,
    compare: Annotated[
        str | None,
        typer.Option(help="More to put beside it, by comma: models, GPUs, or gpu:model."),
    ] = None,
    budget_ms: Annotated[
        float, typer.Option(min=100, help="Voice-to-voice latency that a turn may take.")
    ] = 800.0,
    context_tokens: Annotated[
        int, typer.Option(min=512, help="Context kept for each session.")
    ] = 8_192,
    neural: Annotated[bool, typer.Option(help="A neural renderer shares the GPU.")] = False,
    price: Annotated[
        float | None, typer.Option(min=0, help="Price of the GPU, USD an hour.")
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the figures to this file.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Write a diagram to this file (.png, .svg, .pdf).")
    ] = None,
    validate: Annotated[
        bool, typer.Option(help="Show predictions beside published measurements.")
    ] = False,
    listing: Annotated[bool, typer.Option("--list", help="Name the GPUs and models.")] = False,
) -> None:
    """Whether a model and so many sessions fit on a GPU, and whether one can converse with them.

    Exit code 1 where they do not.
    """
    console = Console(highlight=False, soft_wrap=True)
    if listing:
        _list(console)
        return
    try:
        _check_folders(json_file, plot)
        workload = Workload(
            sessions=sessions, budget_ms=budget_ms, context_tokens=context_tokens, neural=neural
        )
        plans = [make_plan(gpu, model, workload)]
        for other_gpu, other_model in _others(compare, gpu, model):
            plans.append(make_plan(other_gpu, other_model, workload))
        if plot is not None:
            draw(plans, plot)
    except PlanError as error:
        print(error, file=sys.stderr)
        raise typer.Exit(WRONG_USE) from error
    _print(console, plans, price)
    done = checks()
    if validate:
        console.print()
        console.print(check_table(done))
    errors = errors_by_kind(done)
    console.print(
        f"\nPredictions differ from {len(done)} published measurements by typically "
        f"{errors['decode']:.0%} (time a token, to which the constants are fitted), "
        f"{errors['first_token']:.0%} (time to the first token) and {errors['not_fitted']:.0%} "
        "(other engines, which had no part in fitting)."
    )
    if json_file is not None:
        figures = as_json(plans[0], price)
        figures["compared"] = [as_json(plan, price) for plan in plans[1:]]
        figures["typical_error"] = {kind: round(error, 3) for kind, error in errors.items()}
        json_file.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    if not plans[0].usable:
        raise typer.Exit(UNUSABLE)


def _print(console: Console, plans: list[Plan], price: float | None) -> None:
    console.print(verdict(plans[0]))
    console.print()
    console.print(table(plans[0], price))
    if len(plans) > 1:
        console.print()
        console.print(comparison(plans, price))


def _list(console: Console) -> None:
    console.print("GPUs")
    for name, gpu in gpus().items():
        console.print(f"  {name:18} {gpu.title}")
    console.print("Models (add -bf16, -fp8 or -int4)")
    for name, model in language_models().items():
        console.print(f"  {name:18} {model.title}")


def _others(compare: str | None, gpu: str, model: str) -> list[tuple[str, str]]:
    """`"l40s,qwen3-8b-fp8,h200:qwen3.6-27b-fp8"` to pairs of GPU and model."""
    pairs = []
    for item in (compare or "").split(","):
        name = item.strip()
        if not name:
            continue
        if ":" in name:
            left, _, right = name.partition(":")
            pairs.append((left, right))
        elif name.lower() in gpus():
            pairs.append((name, model))
        else:
            pairs.append((gpu, name))
    return pairs


def _check_folders(*paths: Path | None) -> None:
    for path in paths:
        if path is not None and not path.parent.is_dir():
            raise PlanError(f"{path}: there is no folder {path.parent}")
