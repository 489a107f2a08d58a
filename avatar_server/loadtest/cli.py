"""`avatar-server load`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from avatar_server.command_line import (
    FAILED,
    INTERRUPTED,
    WRONG_USE,
    ConfigOption,
    JsonOption,
    SetOption,
    check_json_file,
    ensure_models,
    settings_or_exit,
    stop_with,
)

MOST_SESSIONS = 256
"""`--find-max` stops there: more viewers than that need more than one machine to make them."""


def load_command(
    sessions: Annotated[
        int, typer.Option(min=1, max=MOST_SESSIONS, help="Avatars at once; --find-max: the first.")
    ] = 4,
    viewers: Annotated[int, typer.Option(min=1, max=64, help="Viewers of each session.")] = 1,
    talkers: Annotated[
        int | None,
        typer.Option(min=0, help="Sessions whose viewer talks; default: all of them."),
    ] = None,
    duration: Annotated[float, typer.Option(min=5, max=86_400, help="Seconds to measure.")] = 60,
    json_file: JsonOption = None,
    html: Annotated[
        Path | None, typer.Option("--html", help="Write a report with plots to this file.")
    ] = None,
    url: Annotated[str | None, typer.Option(help="A running server; default: start one.")] = None,
    avatar: Annotated[
        list[str] | None,
        typer.Option(help="Which avatar to start; repeat, taken in turn. Default: all of them."),
    ] = None,
    speech: Annotated[
        Path | None, typer.Option(help="Folder of recordings to speak; default: synthesised.")
    ] = None,
    kill: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PROCESS@SECONDS", help="kill -9 avatar:2 or inference under load; repeat."
        ),
    ] = None,
    find_most: Annotated[
        bool, typer.Option("--find-max", help="Raise the sessions until the objective breaks.")
    ] = False,
    policy: Annotated[
        str | None, typer.Option(help="Short for --set scheduler.policy=…, of the server started.")
    ] = None,
    against: Annotated[
        list[str] | None,
        typer.Option(
            "--against",
            metavar="KEY.PATH=VALUE",
            help="Run A B A B, B with this setting changed too; repeat for more settings.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Another seed: other words and pauses.")] = 0,
    config: ConfigOption = "cpu",
    sets: SetOption = None,
) -> None:
    """Talk to many avatars at once, and measure what their viewers receive.

    The objective, and how viewers behave, are the settings loadtest.*. Exit code 1: it was missed.
    """
    # Imported here: every other command starts faster without them.
    from avatar_server.loadtest.compare import compare
    from avatar_server.loadtest.conduct import run_load
    from avatar_server.loadtest.crew import CrewError
    from avatar_server.loadtest.plan import LoadPlan, parse_kill
    from avatar_server.loadtest.report import write_report
    from avatar_server.loadtest.server import ServerFailed
    from avatar_server.loadtest.speech import prepared, recorded
    from avatar_server.loadtest.table import print_figures
    from avatar_server.loadtest.target import LoadError
    from avatar_server.paths import cache_dir

    given = [*(sets or []), *([f"scheduler.policy={policy}"] if policy else [])]
    settings = settings_or_exit(config, given, {})
    settings_or_exit(config, [*given, *(against or [])], {})
    check_json_file(json_file)
    if html is not None and not html.absolute().parent.is_dir():
        raise stop_with(f"--html {html}: there is no folder {html.parent}", WRONG_USE)
    console = Console(stderr=True, highlight=False)
    try:
        kills = [parse_kill(text, sessions, duration) for text in kill or []]
        if sum(map(bool, (kills, find_most, against))) > 1:
            raise LoadError("use one of --kill, --find-max and --against")
        if url is not None and (policy or against):
            raise LoadError("--policy and --against change a server that is started for the test")
        if speech is not None:
            recorded(speech)
    except (LoadError, ValueError, OSError) as error:
        raise stop_with(str(error), WRONG_USE) from error
    if url is None:
        ensure_models(settings, console)
    try:
        plan = LoadPlan(
            sessions=sessions,
            viewers=viewers,
            talkers=sessions if talkers is None else min(talkers, sessions),
            duration_s=duration,
            speech=(speech or prepared(cache_dir() / "loadtest")).resolve(),
            avatars=avatar or [],
            kills=kills,
            seed=seed,
        )

        def run(more: list[str]) -> dict[str, Any]:
            pairs = [part for pair in (*given, *more) for part in ("--set", pair)]
            return run_load(
                settings=settings,
                arguments=["--config", config, *pairs],
                url=url,
                plan=plan,
                find_most=find_most,
                console=console,
            )

        figures = compare(run, against) if against else run([])
    except LoadError as error:
        raise stop_with(str(error), WRONG_USE) from error
    except (CrewError, ServerFailed) as error:
        raise stop_with(str(error), FAILED) from error
    except KeyboardInterrupt:
        raise stop_with("Stopped; nothing was measured to the end.", INTERRUPTED) from None
    print_figures(console, figures)
    if json_file is not None:
        json_file.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    if html is not None:
        write_report(html, figures)
    brief = {key: value for key, value in figures.items() if key != "detail"}
    sys.stdout.write(json.dumps(brief, indent=2) + "\n")
    if not figures["verdict"]["pass"]:
        raise typer.Exit(FAILED)
