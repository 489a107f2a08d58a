"""`avatar-server avatar`: what avatars there are, and making one."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from avatar_server.avatar_make_cli import avatar_make
from avatar_server.avatars import AvatarError, find_avatars
from avatar_server.command_line import WRONG_USE
from avatar_server.config import ConfigError, load_settings
from avatar_server.preview.cli import avatar_gallery, avatar_preview

avatar_app = typer.Typer(help="Avatars.", no_args_is_help=True)
avatar_app.command("preview")(avatar_preview)
avatar_app.command("gallery")(avatar_gallery)
avatar_app.command("make")(avatar_make)


@avatar_app.callback()
def avatar_commands() -> None:
    """Avatars."""


@avatar_app.command("list")
def avatar_list(
    config: Annotated[
        str, typer.Option("--config", "-c", help="Configuration whose avatar_dirs count, too.")
    ] = "cpu",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """All avatars: how each is drawn, its voice, and its licence."""
    try:
        found = find_avatars(load_settings(config, {}).avatar_dirs)
    except (AvatarError, ConfigError) as error:
        print(error, file=sys.stderr)
        raise typer.Exit(WRONG_USE) from error
    rows = [
        {
            "name": name,
            "renderer": spec.renderer,
            "voice": spec.voice.name,
            "license": spec.license,
        }
        for name, spec in found.items()
    ]
    if as_json:
        print(json.dumps({"avatars": rows}, indent=2))
        return
    table = Table("name", "renderer", "voice", "licence")
    for name, spec in found.items():
        # What a machine too slow for the first voice gives the avatar instead.
        voices = ", else ".join((spec.voice.name, *spec.voice.fallbacks))
        table.add_row(name, spec.renderer, voices, spec.license or "not stated")
    Console(highlight=False).print(table)
