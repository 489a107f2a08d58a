"""`avatar-server keys`: the API keys of operators."""

from __future__ import annotations

import sys
import time
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from avatar_server.command_line import WRONG_USE
from avatar_server.security.keys import ApiKeyError, KeyStore, Scope

keys_app = typer.Typer(help="API keys of operators.", no_args_is_help=True)


@keys_app.command("create")
def create(
    name: Annotated[str, typer.Argument(help="Whose key it is; the audit log shows it.")],
    scope: Annotated[
        Scope, typer.Option(help="read: look; operate: also launch and end sessions; admin: all.")
    ] = Scope.OPERATE,
) -> None:
    """Make a key and print it, this once."""
    try:
        _, text = KeyStore().create(name, scope)
    except ApiKeyError as error:
        raise _wrong(error) from error
    print(text)
    print(
        "Keep it: it is shown only now. Commands take it from AVATAR_SERVER_KEY.", file=sys.stderr
    )


@keys_app.command("list")
def listing() -> None:
    """The keys there are; not their secrets, which are not kept."""
    store = KeyStore()
    try:
        entries = store.entries()
    except ApiKeyError as error:
        raise _wrong(error) from error
    table = Table("name", "id", "scope", "made (UTC)")
    for key in entries:
        made = time.strftime("%Y-%m-%d %H:%M", time.gmtime(key.created))
        table.add_row(key.name, key.id, key.scope.value, made)
    Console(highlight=False).print(table)


@keys_app.command("revoke")
def revoke(name: Annotated[str, typer.Argument(help="Name or id of a key.")]) -> None:
    """Make a key useless, at once and also for servers that run."""
    try:
        key = KeyStore().revoke(name)
    except ApiKeyError as error:
        raise _wrong(error) from error
    print(f"Revoked {key.name} ({key.id}).")


def _wrong(error: ApiKeyError) -> typer.Exit:
    print(error, file=sys.stderr)
    return typer.Exit(WRONG_USE)
