"""`avatar-server bench`: what this machine does, measured."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from avatar_server.avatars import AvatarError
from avatar_server.command_line import (
    FAILED,
    WRONG_USE,
    ConfigOption,
    JsonOption,
    SetOption,
    avatars_or_exit,
    check_json_file,
    ensure_models,
    report_figures,
    settings_or_exit,
    stop_with,
)

bench_app = typer.Typer(help="Measure this machine.", no_args_is_help=True)


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
    from avatar_server.bench.turn import bench_turn

    figures = bench_turn(
        utterances=utterances,
        speech=speech,
        url=url,
        avatar=avatar,
        arguments=_server_arguments(config, sets),
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
        arguments=_server_arguments(config, sets),
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


@bench_app.command("lipsync")
def bench_lipsync_command(
    language: Annotated[
        list[str] | None, typer.Option(help="en or ja; repeat. Default: both.")
    ] = None,
    avatar: Annotated[str | None, typer.Option(help="Whose picture is looked at.")] = None,
    json_file: JsonOption = None,
    config: ConfigOption = "cpu",
    sets: SetOption = None,
) -> None:
    """Whether the mouth shows the sounds that are heard, and when, over some 100 sentences."""
    check_json_file(json_file)
    settings = settings_or_exit(config, sets, {})
    found = avatars_or_exit(settings)
    if avatar is not None and avatar not in found:
        raise stop_with(f"There is no avatar {avatar!r}. There are: {', '.join(found)}.", WRONG_USE)
    from avatar_server.bench import lipsync
    from avatar_server.bench.utterances import LANGUAGES
    from avatar_server.inference.tts import TtsError
    from avatar_server.models import ModelError

    if unknown := [name for name in language or [] if name not in LANGUAGES]:
        known = ", ".join(LANGUAGES)
        raise stop_with(f"There are no sentences in {unknown[0]!r}, only in: {known}.", WRONG_USE)
    try:
        figures = lipsync.bench_avatar(
            found[avatar or next(iter(found))],
            settings.media.video,
            language or list(LANGUAGES),
            progress=lambda line: print(line, file=sys.stderr),
        )
    except (AvatarError, TtsError, ModelError, ValueError) as error:
        raise stop_with(str(error), FAILED) from error
    lipsync.print_table(figures)
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


def _server_arguments(config: str, sets: list[str] | None) -> list[str]:
    """What starts a server with the same configuration."""
    return ["--config", config, *(word for pair in sets or [] for word in ("--set", pair))]
