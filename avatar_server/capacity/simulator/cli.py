"""`avatar-server simulate`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml
from rich.console import Console

from avatar_server.capacity.simulator.measured import measured_profile
from avatar_server.capacity.simulator.profile import Profile, ProfileError, load_profile
from avatar_server.capacity.simulator.report import (
    PlotError,
    as_json,
    comparison_json,
    draw,
    table,
)
from avatar_server.capacity.simulator.simulate import (
    ComparisonError,
    Outcome,
    compare,
    most_sessions,
    sweep,
)
from avatar_server.capacity.simulator.workload import Workload
from avatar_server.config import ConfigError, load_settings
from avatar_server.inference.scheduler import POLICIES

FINE, FAILED, WRONG_USE = 0, 1, 2
MOST_SESSIONS = 512
TABLE_WIDTH = 110
ALLOWED_ERROR = 0.2
"""Of the predicted p50, with which the simulator counts as right about a machine."""


def simulate_command(
    profile: Annotated[
        str, typer.Option(help="What a host's stages cost: a shipped profile, or a YAML file.")
    ] = "h100",
    sessions: Annotated[
        str, typer.Option(help="Sessions: a number, a range like 1-32, or several by comma.")
    ] = "1-8",
    policy: Annotated[
        str, typer.Option(help=f"Policies by comma: {', '.join(POLICIES)}.")
    ] = "laxity,edf,fifo,fair",
    duration: Annotated[
        float, typer.Option(min=30, max=36_000, help="Seconds of conversation, in virtual time.")
    ] = 300.0,
    seed: Annotated[int, typer.Option(help="The same seed gives the same conversations.")] = 1,
    made: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            help="Share of answers that the language model makes: 0.5, or as the load test's.",
        ),
    ] = None,
    pause: Annotated[
        float, typer.Option(min=0.1, help="Seconds from an answer to the viewer's next word.")
    ] = 3.0,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the figures to this file.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Write a diagram to this file (.png, .svg, .pdf).")
    ] = None,
    compare_with: Annotated[
        Path | None,
        typer.Option("--compare", help="Predict this result of `load --json`, and show the error."),
    ] = None,
    measure: Annotated[
        Path | None,
        typer.Option(help="Write a profile of this machine, as the server measured it, and end."),
    ] = None,
    config: Annotated[
        str, typer.Option("--config", "-c", help="With --measure: the configuration.")
    ] = "cpu",
) -> None:
    """How many sessions a host would carry, with the server's own scheduler in virtual time.

    Exit code 1 where --compare is off by more than 20 % of the measured p50.
    """
    console = Console(highlight=False, soft_wrap=True)
    console.width = max(console.width, TABLE_WIDTH)
    try:
        for option, path in (("--json", json_file), ("--plot", plot), ("--measure", measure)):
            if path is not None and not path.parent.is_dir():
                raise ProfileError(f"{option} {path}: there is no folder {path.parent}")
        if measure is not None:
            _measure(measure, config)
            console.print(f"Wrote {measure}. Use it with --profile {measure}.")
            return
        loaded = load_profile(profile)
        workload = Workload(made=0.5 if made is None else made, pause_s=pause)
        policies = parse_policies(policy)
        if compare_with is not None:
            within = _compare(
                console,
                loaded,
                compare_with,
                policies[0],
                workload if made is not None else None,
                seed,
                duration,
                json_file,
            )
            raise typer.Exit(FINE if within else FAILED)
        outcomes = _sweep(parse_sessions(sessions), policies, loaded, duration, workload, seed)
        if plot is not None:
            draw(outcomes, loaded.budget_ms, plot)
    except (ProfileError, ComparisonError, ConfigError, PlotError) as error:
        print(error, file=sys.stderr)
        raise typer.Exit(WRONG_USE) from error
    console.print(f"{loaded.title}; budget {loaded.budget_ms:.0f} ms")
    console.print(table(outcomes))
    for name, count in most_sessions(outcomes).items():
        console.print(f"{name}: the objective holds for up to {count} session(s)")
    if json_file is not None:
        _write(json_file, as_json(loaded, outcomes, duration, seed))


def parse_sessions(text: str) -> list[int]:
    """ "1-4,8" to [1, 2, 3, 4, 8]; raises `ProfileError`."""
    counts: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise ProfileError(f"--sessions {text!r}: write a number, a range like 1-32, or 1,2,4")
        low, high = int(first), int(last or first)
        if not 1 <= low <= high <= MOST_SESSIONS:
            raise ProfileError(f"--sessions {text!r}: from 1 to {MOST_SESSIONS}, the smaller first")
        counts.update(range(low, high + 1))
    return sorted(counts)


def parse_policies(text: str) -> list[str]:
    """ "laxity,fifo" to a list without repetition; raises `ProfileError`."""
    names = [part.strip() for part in text.split(",")]
    for name in names:
        if name not in POLICIES:
            raise ProfileError(f"--policy {name!r}: choose from {', '.join(POLICIES)}")
    return list(dict.fromkeys(names))


def _sweep(
    counts: list[int],
    policies: list[str],
    profile: Profile,
    duration: float,
    workload: Workload,
    seed: int,
) -> list[Outcome]:
    console = Console(stderr=True, highlight=False)
    whole = len(counts) * len(policies)
    with console.status("simulating") as status:
        done = 0

        def tell(outcome: Outcome) -> None:
            nonlocal done
            done += 1
            status.update(f"simulating: {done} of {whole} ({outcome.sessions} sessions)")

        return sweep(
            profile,
            counts,
            policies,
            duration_s=duration,
            workload=workload,
            seed=seed,
            progress=tell,
        )


def _compare(
    console: Console,
    profile: Profile,
    path: Path,
    policy: str,
    workload: Workload | None,
    seed: int,
    duration: float,
    json_file: Path | None,
) -> bool:
    try:
        load = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ComparisonError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise ComparisonError(f"{path} is not JSON: {error}") from error
    found = compare(profile, load, policy, workload=workload, seed=seed, duration_s=duration)
    figures = comparison_json(found, ALLOWED_ERROR)
    console.print(
        f"{found.sessions} session(s), {policy}: p50 predicted {found.predicted_p50_ms:.0f} ms, "
        f"measured {found.measured_p50_ms:.0f} ms ({found.error:+.0%}); p95 predicted "
        f"{found.predicted_p95_ms:.0f} ms, measured {found.measured_p95_ms:.0f} ms"
    )
    if json_file is not None:
        _write(json_file, figures)
    return bool(figures["within"])


def _measure(path: Path, config: str) -> None:
    values = measured_profile(load_settings(config))
    _write_text(path, yaml.safe_dump(values, sort_keys=False, width=100))


def _write(path: Path, figures: dict[str, Any]) -> None:
    _write_text(path, json.dumps(figures, indent=2) + "\n")


def _write_text(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ProfileError(f"cannot write {path}: {error.strerror}") from error
