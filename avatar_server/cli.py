"""The command line. Exit codes: 0 fine, 1 a check failed, 2 wrong use."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml
from rich.console import Console

import avatar_server
from avatar_server.avatars import AvatarError, AvatarSpec, find_avatars
from avatar_server.avatars_cli import avatar_app
from avatar_server.capacity.planner.cli import plan_command
from avatar_server.capacity.simulator.cli import simulate_command
from avatar_server.config import ConfigError, Settings, load_settings
from avatar_server.eval.cli import eval_app
from avatar_server.gateway.children import ChildCommands
from avatar_server.inference.available import lacking
from avatar_server.loadtest.cli import load_command
from avatar_server.observe.logging import setup_logging
from avatar_server.operate.cli import add_commands
from avatar_server.security import KeyStore
from avatar_server.security.cli import keys_app

FINE, FAILED, WRONG_USE = 0, 1, 2
INTERRUPTED = 130
"""As shells do it: 128 + SIGINT."""

app = typer.Typer(
    help="A WebRTC server for talking avatars.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
models_app = typer.Typer(help="Model files.", no_args_is_help=True)
bench_app = typer.Typer(help="Measure this machine.", no_args_is_help=True)
app.add_typer(models_app, name="models")
app.add_typer(avatar_app, name="avatar")
app.add_typer(bench_app, name="bench")
app.add_typer(eval_app, name="eval")
app.add_typer(keys_app, name="keys")
app.command("plan")(plan_command)
add_commands(app)
app.command("simulate")(simulate_command)
app.command("load")(load_command)

ConfigOption = Annotated[
    str, typer.Option("--config", "-c", help="A shipped configuration (cpu, h100) or a YAML file.")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY.PATH=VALUE", help="Change one setting; may be repeated."),
]
JsonOption = Annotated[Path | None, typer.Option("--json", help="Write the figures to this file.")]


def child_commands() -> ChildCommands:
    """The processes that `serve` starts."""
    return ChildCommands()


def parse_sets(pairs: list[str]) -> dict[str, Any]:
    """`["http.port=9000"]` to `{"http": {"port": 9000}}`; raises `ConfigError`."""
    values: dict[str, Any] = {}
    for pair in pairs:
        path, equals, text = pair.partition("=")
        keys = path.strip().split(".")
        if not equals or not all(keys):
            raise ConfigError(f"--set {pair!r}: write it as key.path=value, like http.port=9000")
        try:
            value = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise ConfigError(f"--set {pair!r}: the value is not YAML") from error
        place = values
        for key in keys[:-1]:
            inner = place.setdefault(key, {})
            if not isinstance(inner, dict):
                raise ConfigError(f"--set {pair!r}: {key} already has a value")
            place = inner
        place[keys[-1]] = value
    return values


def stop_with(message: str, code: int) -> typer.Exit:
    """Print a sentence to standard error; raise what this returns."""
    print(message, file=sys.stderr)
    return typer.Exit(code)


def settings_or_exit(config: str, sets: list[str] | None, flags: dict[str, Any]) -> Settings:
    """The configuration, or exit code 2 with what is wrong with it. Flags win over `--set`."""
    try:
        values = parse_sets([*(sets or []), *(f"{key}={value}" for key, value in flags.items())])
        return load_settings(config, values)
    except ConfigError as error:
        raise stop_with(str(error), WRONG_USE) from error


def avatars_or_exit(settings: Settings) -> Mapping[str, AvatarSpec]:
    """All avatars, or exit code 2 with which one cannot be used."""
    try:
        avatars = find_avatars(settings.avatar_dirs)
    except AvatarError as error:
        raise stop_with(str(error), WRONG_USE) from error
    if not avatars:
        raise stop_with(
            "There is no avatar. Name a folder that holds some in the setting avatar_dirs.",
            WRONG_USE,
        )
    unknown = sorted(set(settings.sessions.always_on) - set(avatars))
    if unknown:
        raise stop_with(
            f"sessions.always_on names {', '.join(unknown)}, and there is no such avatar. There "
            f"are: {', '.join(sorted(avatars))}.",
            WRONG_USE,
        )
    return avatars


def check_video_encoder(settings: Settings) -> None:
    """Exit code 2 where the video encoder that is insisted on is not here."""
    if settings.media.video.encoder == "h264_nvenc":
        from avatar_server.avatar.encoder import EncoderError, require_encoder

        try:
            require_encoder(settings.media.video)
        except EncoderError as error:
            raise stop_with(f"media.video.encoder: {error}.", WRONG_USE) from error


def ensure_models(settings: Settings, console: Console) -> None:
    """Fetch what is missing, with a progress bar; exit code 1 where a model cannot be had.

    Exit code 2, and nothing fetched, where this version lacks a configured engine.
    """
    if lacks := lacking(settings):
        raise stop_with("\n".join(lacks), WRONG_USE)
    from avatar_server.models import ModelError, ModelStore, RichProgress, default_models

    store = ModelStore()
    try:
        names = default_models(settings)
        missing = store.missing(names)
        if not missing:
            return
        size_mb = sum(entry.size_bytes for entry in missing) / 1e6
        console.print(f"Fetching {len(missing)} model(s), {size_mb:.0f} MB, once:")
        with RichProgress(console) as progress:
            store.ensure([entry.name for entry in missing], progress)
    except ModelError as error:
        raise stop_with(str(error), FAILED) from error


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


@bench_app.command("turn")
def bench_turn_command(
    utterances: Annotated[int, typer.Option(min=1, max=1_000, help="Turns to speak.")] = 22,
    speech: Annotated[
        Path | None, typer.Option(help="Folder of recordings to speak; default: synthesised.")
    ] = None,
    url: Annotated[str | None, typer.Option(help="A running server; default: start one.")] = None,
    avatar: Annotated[str | None, typer.Option(help="Which avatar to talk to.")] = None,
    json_file: JsonOption = None,
    config: ConfigOption = "cpu",
    sets: SetOption = None,
) -> None:
    """Voice-to-voice latency and its stages, over spoken utterances."""
    check_json_file(json_file)
    settings = settings_or_exit(config, sets, {})
    ensure_models(settings, Console(stderr=True, highlight=False))
    arguments = ["--config", config]
    for pair in sets or []:
        arguments += ["--set", pair]
    from avatar_server.bench.turn import bench_turn

    figures = bench_turn(
        utterances=utterances,
        speech=speech,
        url=url,
        avatar=avatar,
        arguments=arguments,
        progress=lambda line: print(line, file=sys.stderr),
    )
    report_figures(figures, json_file)


@bench_app.command("media")
def bench_media_command(
    seconds: Annotated[float, typer.Option(min=1, help="How long to measure.")] = 20,
    viewers: Annotated[
        list[int] | None,
        typer.Option(min=1, max=64, help="Viewers of the session; repeat. Default: 1, 4 and 16."),
    ] = None,
    json_file: JsonOption = None,
) -> None:
    """CPU time of drawing, encoding and sending one session's video and sound."""
    check_json_file(json_file)
    from avatar_server.bench.media import bench_media, print_table

    figures = bench_media(seconds=seconds, viewers=viewers or (1, 4, 16))
    print_table(figures)
    report_figures(figures, json_file)


@bench_app.command("joins")
def bench_joins_command(
    count: Annotated[int, typer.Option(min=1, max=10_000, help="Viewers who come and go.")] = 200,
    avatar: Annotated[str | None, typer.Option(help="Whose session.")] = None,
    json_file: JsonOption = None,
    config: ConfigOption = "cpu",
    sets: SetOption = None,
) -> None:
    """What viewers who come and go leave behind; exit code 1 where it is not nothing."""
    check_json_file(json_file)
    if not sys.platform.startswith("linux"):
        raise stop_with("bench joins reads /proc, which only Linux has.", WRONG_USE)
    settings = settings_or_exit(config, sets, {})
    ensure_models(settings, Console(stderr=True, highlight=False))
    from avatar_server.bench.joins import bench_joins

    figures = bench_joins(
        count=count,
        avatar=avatar,
        arguments=["--config", config, *(word for pair in sets or [] for word in ("--set", pair))],
        progress=lambda line: print(line, file=sys.stderr),
    )
    report_figures(figures, json_file)
    if not figures["clean"]:
        raise typer.Exit(FAILED)


@bench_app.command("render")
def bench_render_command(
    avatar: Annotated[
        list[str] | None, typer.Option(help="Which avatar to draw; repeat. Default: all.")
    ] = None,
    seconds: Annotated[float, typer.Option(min=1, help="How long to idle and to listen.")] = 20,
    json_file: JsonOption = None,
    config: ConfigOption = "cpu",
    sets: SetOption = None,
) -> None:
    """CPU time of drawing a frame: each avatar idle, listening, and speaking several sentences."""
    check_json_file(json_file)
    settings = settings_or_exit(config, sets, {})
    found = avatars_or_exit(settings)
    if unknown := [name for name in avatar or [] if name not in found]:
        known = ", ".join(found)
        raise stop_with(f"There is no avatar {unknown[0]!r}. There are: {known}.", WRONG_USE)
    from avatar_server.bench.render import bench_render, print_table
    from avatar_server.inference.tts import TtsError

    try:
        figures = bench_render(
            {name: found[name] for name in avatar or found},
            settings.media.video,
            seconds=seconds,
            progress=lambda line: print(line, file=sys.stderr),
        )
    except (AvatarError, TtsError, ValueError) as error:
        raise stop_with(str(error), FAILED) from error
    print_table(figures)
    report_figures(figures, json_file)


@bench_app.command("browser")
def bench_browser_command(
    seconds: Annotated[float, typer.Option(min=1, max=3_600, help="How long, for each path.")] = 60,
    paths: Annotated[
        list[str] | None,
        typer.Option("--path", help="ours, stock-vp8 or stock-h264; repeat. Default: all."),
    ] = None,
    browser: Annotated[str | None, typer.Option(help="A Chromium; default: what is found.")] = None,
    json_file: JsonOption = None,
) -> None:
    """What a headless Chromium shows of a session: frames, freezes, and how old each is."""
    check_json_file(json_file)
    from avatar_server.bench.browser import PATHS, bench_browser, print_table
    from avatar_server.bench.children import BenchError

    try:
        figures = bench_browser(
            seconds, paths or PATHS, browser, progress=lambda line: print(line, file=sys.stderr)
        )
    except BenchError as error:
        raise stop_with(str(error), WRONG_USE) from error
    print_table(figures)
    report_figures(figures, json_file)


def check_json_file(path: Path | None) -> None:
    """Exit code 2 where the file could not be written at the end of a long measurement."""
    if path is not None and not path.parent.is_dir():
        raise stop_with(f"--json {path}: there is no folder {path.parent}", WRONG_USE)


def report_figures(figures: Mapping[str, Any], json_file: Path | None) -> None:
    """Print the figures and write them to `json_file`."""
    text = json.dumps(figures, indent=2)
    if json_file is not None:
        json_file.write_text(text + "\n", encoding="utf-8")
    print(text)


def main() -> None:
    """The `avatar-server` command."""
    app()


if __name__ == "__main__":
    main()
