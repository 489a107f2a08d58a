"""The command line. Exit codes: 0 fine, 1 a check failed, 2 wrong use."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Annotated

import typer
from rich.console import Console

import avatar_server
from avatar_server.avatars import AvatarSpec
from avatar_server.avatars_cli import avatar_app
from avatar_server.bench.cli import bench_app
from avatar_server.capacity.planner.cli import plan_command
from avatar_server.capacity.simulator.cli import simulate_command
from avatar_server.command_line import (
    FAILED,
    FINE,
    INTERRUPTED,
    WRONG_USE,
    ConfigOption,
    SetOption,
    avatars_or_exit,
    ensure_models,
    read_settings,
    settings_or_exit,
    stop_with,
    usable_avatars,
)
from avatar_server.config import Settings
from avatar_server.eval.cli import eval_app
from avatar_server.gateway.children import ChildCommands
from avatar_server.loadtest.cli import load_command
from avatar_server.observe.logging import setup_logging
from avatar_server.operate.cli import add_commands
from avatar_server.security import KeyStore
from avatar_server.security.cli import keys_app

app = typer.Typer(
    help="A WebRTC server for talking avatars.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
models_app = typer.Typer(help="Model files.", no_args_is_help=True)
app.add_typer(models_app, name="models")
app.add_typer(avatar_app, name="avatar")
app.add_typer(bench_app, name="bench")
app.add_typer(eval_app, name="eval")
app.add_typer(keys_app, name="keys")
app.command("plan")(plan_command)
add_commands(app)
app.command("simulate")(simulate_command)
app.command("load")(load_command)


def child_commands() -> ChildCommands:
    """The processes that `serve` starts."""
    return ChildCommands()


def check_video_encoder(settings: Settings) -> None:
    """Exit code 2 where the video encoder that is insisted on is not here."""
    if settings.media.video.encoder == "h264_nvenc":
        from avatar_server.avatar.encoder import EncoderError, require_encoder

        try:
            require_encoder(settings.media.video)
        except EncoderError as error:
            raise stop_with(f"media.video.encoder: {error}.", WRONG_USE) from error


def _version(wanted: bool) -> None:
    if wanted:
        print(f"avatar-server {avatar_server.__version__}")
        raise typer.Exit(FINE)


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """A WebRTC server for talking avatars."""


@app.command()
def serve(
    config: ConfigOption = "cpu",
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port; 0 for any free one.")] = None,
    sessions: Annotated[
        int | None, typer.Option(help="Sessions at once, at most; default: as many as fit.")
    ] = None,
    recalibrate: Annotated[
        bool, typer.Option("--recalibrate", help="Measure this machine anew.")
    ] = False,
    sets: SetOption = None,
) -> None:
    """Start the server; fetches missing models first. Ctrl-C ends it."""
    from avatar_server.gateway.exposure import NotSafe, check_exposure, tls_context
    from avatar_server.gateway.serve import CannotListen, open_port
    from avatar_server.gateway.serve import serve as run_gateway
    from avatar_server.start_report import StartReport

    flags = {
        "http.host": host,
        "http.port": port,
        "sessions.max_sessions": sessions,
        "capacity.recalibrate": recalibrate or None,
    }
    given = {key: value for key, value in flags.items() if value is not None}
    settings = settings_or_exit(config, sets, given)
    setup_logging(settings.observe, "gateway")
    avatars = avatars_or_exit(settings)
    check_video_encoder(settings)
    console = Console(highlight=False)

    def read_anew() -> tuple[Settings, Mapping[str, AvatarSpec]]:
        fresh = read_settings(config, sets, given)
        return fresh, usable_avatars(fresh)

    try:
        check_exposure(settings, KeyStore())
        tls = tls_context(settings.http)
        listener = open_port(settings.http)
    except (CannotListen, NotSafe) as error:
        raise stop_with(str(error), WRONG_USE) from error
    with listener:
        try:
            ensure_models(settings, console)
        except KeyboardInterrupt:
            raise stop_with(
                "Stopped. The next start goes on with the models.", INTERRUPTED
            ) from None
        asyncio.run(
            run_gateway(
                settings,
                avatars,
                listener,
                commands=child_commands(),
                on_running=StartReport(console, settings),
                tls=tls,
                source=read_anew,
            )
        )
    console.print("Stopped.")


@app.command()
def doctor(
    config: ConfigOption = "cpu",
    sets: SetOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    quick: Annotated[bool, typer.Option(help="Do not measure what was not measured yet.")] = False,
) -> None:
    """What is here, how many sessions it carries, and how to mend what is wrong.

    Exit code 1 where something is wrong.
    """
    from avatar_server.doctor import examine
    from avatar_server.doctor.cli import print_json, show

    settings = settings_or_exit(config, sets, {})
    diagnosis = examine(settings, measure=not quick)
    if as_json:
        print_json(diagnosis)
    else:
        show(Console(highlight=False), diagnosis)
    if not diagnosis.ok:
        raise typer.Exit(FAILED)


@models_app.command("list")
def models_list(config: ConfigOption = "cpu", sets: SetOption = None) -> None:
    """The known models, their licences, and which are here; * marks those of the configuration."""
    from rich.table import Table

    from avatar_server.models import CATALOGUE, ModelStore, default_models

    settings = settings_or_exit(config, sets, {})
    store = ModelStore()
    used = set(default_models(settings))
    table = Table("", "name", "size", "licence", "here", "what it is")
    for name, entry in CATALOGUE.items():
        here = "no" if store.missing([name]) else "yes"
        mark = "*" if name in used else ""
        size = f"{entry.size_bytes / 1e6:,.0f} MB"
        table.add_row(mark, name, size, entry.licence, here, entry.title)
    Console(highlight=False).print(table)


@models_app.command("fetch")
def models_fetch(
    names: Annotated[
        list[str] | None, typer.Argument(help="Models; default: those of the configuration.")
    ] = None,
    config: ConfigOption = "cpu",
    sets: SetOption = None,
) -> None:
    """Fetch models into the cache, and print where they are."""
    from avatar_server.models import (
        ModelError,
        ModelStore,
        RichProgress,
        UnknownModelError,
        default_models,
    )

    settings = settings_or_exit(config, sets, {})
    try:
        with RichProgress() as progress:
            paths = ModelStore().ensure(names or default_models(settings), progress)
    except UnknownModelError as error:
        raise stop_with(str(error), WRONG_USE) from error
    except ModelError as error:
        raise stop_with(str(error), FAILED) from error
    for path in paths.values():
        print(path)


def main() -> None:
    """The `avatar-server` command."""
    app()


if __name__ == "__main__":
    main()
