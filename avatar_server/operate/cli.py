"""`avatar-server launch`, `sessions`, `stop`, `logs`, `link`, `reload` and `drain`."""

from __future__ import annotations

import json
import sys
import time
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from avatar_server.command_line import FAILED, WRONG_USE
from avatar_server.operate.client import CallFailed, ServerClient
from avatar_server.operate.options import ConfigOption, JsonOption, OnOption, server
from avatar_server.operate.recordings import recordings_app
from avatar_server.security import Role

DRAIN_POLL_S = 1.0
MOST_GRACE_S = 130.0
"""Turns may be finished after the deadline (sessions.turn_grace_s), and processes must end."""


def launch(
    avatar: Annotated[str, typer.Argument(help="The avatar to start.")],
    on: OnOption = None,
    config: ConfigOption = "cpu",
    as_json: JsonOption = False,
    idempotency_key: Annotated[
        str | None, typer.Option(help="Repeating a call with the same key starts nothing twice.")
    ] = None,
    record: Annotated[
        bool | None,
        typer.Option("--record/--no-record", help="Record it; default: recording.enabled."),
    ] = None,
) -> None:
    """Start a session on a running server, and print the address to open."""
    with server(on, config) as client:
        session = client.launch(avatar, idempotency_key, record)
        address = client.absolute(session["link"])
    if as_json:
        print(json.dumps(session | {"address": address}, indent=2))
    else:
        recorded = ", recorded," if session["recorded"] else ""
        print(f"session {session['id']} ({session['avatar']}){recorded} runs. Open:\n{address}")


def sessions(
    on: OnOption = None, config: ConfigOption = "cpu", as_json: JsonOption = False
) -> None:
    """The sessions of a running server."""
    with server(on, config) as client:
        found = client.sessions()
    if as_json:
        print(json.dumps(found, indent=2))
        return
    if not found:
        print("No session runs.")
        return
    table = Table("session", "avatar", "state", "doing", "viewers", "fps", "draw ms", "late")
    for one in found:
        table.add_row(
            one["id"],
            one["avatar"],
            one["state"],
            one["doing"],
            str(one["viewer_count"]),
            f"{one['fps']:.1f}",
            f"{one['render_ms']:.1f}",
            str(one["late_frames"]),
        )
    Console(highlight=False).print(table)


def stop(
    names: Annotated[list[str] | None, typer.Argument(help="Sessions.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="All sessions.")] = False,
    on: OnOption = None,
    config: ConfigOption = "cpu",
) -> None:
    """End sessions; their viewers are told."""
    if bool(names) == everything:
        print("Name the sessions to end, or give --all.", file=sys.stderr)
        raise typer.Exit(WRONG_USE)
    with server(on, config) as client:
        for session in names or [one["id"] for one in client.sessions()]:
            client.stop(session)
            print(f"session {session} was ended.")


def logs(
    session: Annotated[str | None, typer.Argument(help="Only this session.")] = None,
    last: Annotated[int, typer.Option(min=1, max=5_000, help="How many lines.")] = 200,
    on: OnOption = None,
    config: ConfigOption = "cpu",
    as_json: JsonOption = False,
) -> None:
    """The last log lines of a running server."""
    with server(on, config) as client:
        lines = client.logs(session, last)
    for line in lines:
        if as_json:
            print(json.dumps(line, ensure_ascii=False))
            continue
        known = ("time", "level", "role", "logger", "message", "exception")
        more = " ".join(f"{key}={value}" for key, value in line.items() if key not in known)
        print(
            f"{line['time']} {line['level']:<7} {line['role']:<9} {line['message']} {more}".rstrip()
        )
        if "exception" in line:
            print(line["exception"])


def link(
    session: Annotated[str, typer.Argument(help="The session.")],
    role: Annotated[Role, typer.Option(help="speak, or only watch.")] = Role.SPEAK,
    minutes: Annotated[
        float | None, typer.Option(min=1, help="How long it is good; default: a setting.")
    ] = None,
    show: Annotated[bool, typer.Option("--list", help="Show those given out instead.")] = False,
    revoke: Annotated[
        str | None, typer.Option(metavar="LINK", help="Revoke this one, by its id, instead.")
    ] = None,
    on: OnOption = None,
    config: ConfigOption = "cpu",
) -> None:
    """Make a join link for a session; list or revoke those given out."""
    with server(on, config) as client:
        if revoke is not None:
            client.revoke(session, revoke)
            print("Nobody joins by this link any more, and who did was let go.")
            return
        if show:
            table = Table("link", "role", "until", "viewers", "")
            for one in client.links(session):
                until = time.strftime("%Y-%m-%d %H:%M", time.localtime(one["expires"]))
                state = "revoked" if one["revoked"] else ""
                table.add_row(one["id"], one["role"], until, str(one["viewers"]), state)
            Console(highlight=False).print(table)
            return
        made = client.link(session, role.value, None if minutes is None else minutes * 60)
        print(client.absolute(made["link"]))


def drain(
    deadline: Annotated[
        float, typer.Option(min=0, help="Seconds after which the last sessions are ended.")
    ] = 300.0,
    wait: Annotated[bool, typer.Option(help="Return when the last session has ended.")] = True,
    cancel: Annotated[bool, typer.Option(help="Take new sessions again.")] = False,
    on: OnOption = None,
    config: ConfigOption = "cpu",
) -> None:
    """Begin nothing new, let what runs finish, then stop the server: for deploys."""
    with server(on, config) as client:
        if cancel:
            client.cancel_drain()
            print("The server takes new sessions again.")
            return
        state = client.drain(deadline)
        print(f"Draining: {state['sessions']} session(s) run, {deadline:.0f} s at most.")
    give_up = time.monotonic() + deadline + MOST_GRACE_S
    while wait and time.monotonic() < give_up:
        time.sleep(DRAIN_POLL_S)
        try:
            with ServerClient(client.url) as asking:
                if not asking.drain_state()["draining"]:
                    print("Somebody let the server take new sessions again.", file=sys.stderr)
                    raise typer.Exit(FAILED)
        except CallFailed:
            print("The server has stopped.")
            return


def reload(on: OnOption = None, config: ConfigOption = "cpu", as_json: JsonOption = False) -> None:
    """Have a running server read its configuration, avatars and routes anew; sessions go on."""
    with server(on, config) as client:
        found = client.reload()
    if as_json:
        print(json.dumps(found, indent=2))
        return
    news = [f"{kind}: {', '.join(found[kind])}" for kind in ("added", "changed", "removed")]
    print("; ".join(line for line in news if not line.endswith(": ")) or "Nothing has changed.")
    if found["sessions_told"]:
        print(f"{found['sessions_told']} running session(s) go on with the new routes and texts.")
    if found["needs_restart"]:
        print(f"Counts from the server's next start on: {', '.join(found['needs_restart'])}.")


def add_commands(app: typer.Typer) -> None:
    """Put the commands into the command line."""
    for command in (launch, sessions, stop, logs, link, reload, drain):
        app.command(command.__name__)(command)
    app.add_typer(recordings_app, name="recordings")
