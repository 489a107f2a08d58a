"""`avatar-server eval`: figures on labelled data."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress

from avatar_server.command_line import WRONG_USE, parse_sets
from avatar_server.paths import assets_dir

eval_app = typer.Typer(no_args_is_help=True, help="Measure decisions on labelled data.")


@eval_app.callback()
def _group() -> None:
    """Measure decisions on labelled data."""


@eval_app.command("router")
def router_command(
    dataset: Annotated[
        Path | None,
        typer.Option("--dataset", help="Rows as JSONL; default: the shipped test set."),
    ] = None,
    engine: Annotated[
        list[str] | None,
        typer.Option(
            "--engine",
            help="Repeat, or part by commas, to compare. Known: embedding (what is shipped), head "
            "(it without the reader), llamacpp, openai, vllm (language models; see --set).",
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option("--limit", min=1, help="Take this many rows, evenly out of all of them."),
    ] = None,
    config: Annotated[
        str, typer.Option("--config", "-c", help="Settings of the language models.")
    ] = "cpu",
    change: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY.PATH=VALUE", help="Change one setting, as for serve."),
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the figures to this file.")
    ] = None,
    png: Annotated[
        Path | None, typer.Option("--png", help="Draw the confusion table to this file.")
    ] = None,
) -> None:
    """How often routes and continuations are right, and how long a decision takes.

    With one engine the JSON holds its figures; with several, an object by engine's name.
    """
    # Imported here: every other command starts faster without them.
    from avatar_server.config import ConfigError, load_settings
    from avatar_server.eval.drawing import comparison, write_picture
    from avatar_server.eval.engines import ENGINES
    from avatar_server.eval.router import eval_router
    from avatar_server.inference.llm.engine import EngineError
    from avatar_server.inference.llm.router import DatasetError, load_examples
    from avatar_server.models import ModelError

    for path in (json_file, png):
        if path is not None and not path.absolute().parent.is_dir():
            raise _wrong_use(f"{path}: there is no folder {path.absolute().parent}")
    given = [name.strip() for each in engine or ["embedding"] for name in each.split(",")]
    names = list(dict.fromkeys(name for name in given if name))
    if unknown := [name for name in names if name not in ENGINES]:
        raise _wrong_use(f"unknown engine {unknown[0]!r}; known are {sorted(ENGINES)}")
    console = Console(stderr=True)
    with ExitStack() as stack:
        try:
            settings = load_settings(config, parse_sets(change or []))
            examples = load_examples(
                dataset or assets_dir() / "eval" / "routing-test.jsonl", lenient=True
            )
            if limit is not None and limit < len(examples):
                examples = [examples[n * len(examples) // limit] for n in range(limit)]
            with console.status("preparing"):
                engines = {name: ENGINES[name](settings, stack) for name in names}
            with Progress(console=console, transient=True) as bar:
                tasks = {name: bar.add_task(name, total=len(examples)) for name in names}
                results = eval_router(
                    examples, engines, lambda name, done, _: bar.update(tasks[name], completed=done)
                )
        except (DatasetError, ConfigError, ModelError, EngineError) as error:
            raise _wrong_use(str(error)) from error
    Console().print(comparison(results))
    if json_file is not None:
        figures = results[names[0]] if len(names) == 1 else results
        json_file.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    if png is not None:
        write_picture(png, results)


def _wrong_use(message: str) -> typer.Exit:
    typer.echo(message, err=True)
    return typer.Exit(WRONG_USE)
