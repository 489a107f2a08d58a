"""`avatar-server recordings`: list, download and delete what was recorded."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from avatar_server.command_line import FAILED, WRONG_USE
from avatar_server.operate.options import ConfigOption, JsonOption, OnOption, server

recordings_app = typer.Typer(help="What a running server has recorded.", no_args_is_help=True)

PARTS = {"video": "mp4", "captions": "vtt", "turns": "jsonl"}


@recordings_app.command("list")
def list_recordings(
    session: Annotated[str, typer.Argument(help="Only of this session.")] = "",
    on: OnOption = None,
    config: ConfigOption = "cpu",
    as_json: JsonOption = False,
) -> None:
    """The recordings, oldest first."""
    with server(on, config) as client:
        found = client.recordings(session)
    if as_json:
        print(json.dumps(found, indent=2))
        return
    if not found:
        print("Nothing is recorded.")
        return
    table = Table("recording", "avatar", "state", "began", "length", "MB", "why it stopped")
    for one in found:
        length = f"{one['duration_s']:.0f} s" if one["ended"] else ""
        size = f"{one['bytes'] / 1e6:.1f}"
        values = (one["id"], one["avatar"], one["state"], one["began"], length, size)
        table.add_row(*values, one["stopped_because"])
    Console(highlight=False).print(table)


@recordings_app.command("download")
def download(
    names: Annotated[list[str], typer.Argument(help="Recordings.")],
    to: Annotated[Path, typer.Option(help="The folder to save them in.")] = Path(),
    on: OnOption = None,
    config: ConfigOption = "cpu",
) -> None:
    """Save recordings: the MP4 file, captions (WebVTT) and turn log (JSON lines) of each."""
    if not to.is_dir():
        print(f"--to {to}: there is no such folder.", file=sys.stderr)
        raise typer.Exit(WRONG_USE)
    with server(on, config) as client:
        for name in names:
            for part, ending in PARTS.items():
                path = to / f"{Path(name).name}.{ending}"
                try:
                    size = client.download(f"/v1/recordings/{name}/{part}", path)
                except OSError as error:
                    print(f"{path} cannot be written: {error.strerror}.", file=sys.stderr)
                    raise typer.Exit(FAILED) from error
                print(f"{path} ({size / 1e6:.1f} MB)")


@recordings_app.command("delete")
def delete(
    names: Annotated[list[str], typer.Argument(help="Recordings.")],
    on: OnOption = None,
    config: ConfigOption = "cpu",
) -> None:
    """Delete recordings, for good."""
    with server(on, config) as client:
        for name in names:
            client.delete_recording(name)
            print(f"recording {name} was deleted.")
