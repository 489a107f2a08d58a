"""What the commands that talk to a running server share."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from avatar_server.command_line import FAILED, WRONG_USE
from avatar_server.config import ConfigError, load_settings
from avatar_server.operate.client import CallFailed, ServerClient, server_url

OnOption = Annotated[
    str | None,
    typer.Option("--on", metavar="URL", help="The server; default: AVATAR_SERVER_URL, else local."),
]
ConfigOption = Annotated[
    str, typer.Option("--config", "-c", help="The configuration that the local server runs with.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@contextmanager
def server(on: str | None, config: str) -> Iterator[ServerClient]:
    """The server to ask; what it refuses becomes a sentence and exit code 1."""
    try:
        url = server_url(on, load_settings(config).http)
    except ConfigError as error:
        print(error, file=sys.stderr)
        raise typer.Exit(WRONG_USE) from error
    try:
        with ServerClient(url) as client:
            yield client
    except CallFailed as error:
        print(error, file=sys.stderr)
        raise typer.Exit(FAILED) from error
