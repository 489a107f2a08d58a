"""Runs the gateway in this process: the port, the application, its children, and their end."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import signal
import socket
import ssl
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass

import uvicorn

from avatar_server.avatars import AvatarSpec
from avatar_server.config import HttpSettings, Settings
from avatar_server.gateway.app import create_app
from avatar_server.gateway.children import ChildCommands
from avatar_server.gateway.control import Control
from avatar_server.gateway.guards import is_loopback, page_url
from avatar_server.gateway.logring import LogRing
from avatar_server.gateway.previews import Previews
from avatar_server.gateway.problems import ProblemError
from avatar_server.gateway.reload import Reloader, Source
from avatar_server.gateway.retention import Retention
from avatar_server.observe.otel import open_tracer

# Open requests (a page that waits for an avatar to start) are cut off at the end after this long.
HTTP_GRACE_S = 1

log = logging.getLogger(__name__)


class CannotListen(Exception):
    """The address cannot be listened on; the message says why and what to do."""


def open_port(http: HttpSettings) -> socket.socket:
    """A listening socket at the configured address; raises `CannotListen`."""
    where = f"{http.host}:{http.port}"
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            http.host, http.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except socket.gaierror as error:
        raise CannotListen(
            f"{http.host} is not an address of this machine ({error.strerror}): choose another "
            "with --host, such as 127.0.0.1."
        ) from error
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise CannotListen(_why_not(where, http, error)) from error
    return listener


def _why_not(where: str, http: HttpSettings, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"Port {http.port} is in use on {http.host}, perhaps by another avatar-server. "
            "Choose another with --port, or --port 0 for any free one."
        )
    if error.errno == errno.EACCES:
        return f"Port {http.port} may not be used without privileges. Choose one from 1024 up."
    if error.errno == errno.EADDRNOTAVAIL:
        return f"{http.host} is not an address of this machine. Choose another with --host."
    return f"Cannot listen on {where}: {error.strerror}."


@dataclass(frozen=True, slots=True)
class Running:
    """A gateway that takes requests. `address` is what to open in a browser."""

    control: Control
    address: str
    public: bool
    """Whether other machines can reach it."""


class _Server(uvicorn.Server):
    """uvicorn without its signal handling: `serve` below decides when everything ends."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve(
    settings: Settings,
    avatars: Mapping[str, AvatarSpec],
    listener: socket.socket,
    *,
    commands: ChildCommands | None = None,
    on_running: Callable[[Running], Awaitable[None]] | None = None,
    tls: ssl.SSLContext | None = None,
    source: Source | None = None,
) -> None:
    """Serve until SIGINT or SIGTERM; then end every child. A second signal kills them at once.

    `on_running` runs beside the server from when it takes requests, and is cancelled at the end.
    `source` reads the files anew, for `/v1/reload` and SIGHUP.
    """
    stop = asyncio.Event()
    control = Control(settings, avatars, commands=commands)
    if (tracer := open_tracer(settings)) is not None:
        control.on_turn = tracer.turn
    previews = Previews(avatars)
    retention = Retention(settings)
    ring = LogRing()
    logging.getLogger().addHandler(ring)
    control.on_drained = stop.set
    proxies = settings.http.trusted_proxies
    reloader = Reloader(control, previews, source)
    config = uvicorn.Config(
        create_app(control, previews, ring=ring, reloader=reloader),
        log_config=None,
        access_log=False,
        lifespan="off",
        server_header=False,
        timeout_graceful_shutdown=HTTP_GRACE_S,
        timeout_keep_alive=5,
        # What anybody else says in X-Forwarded-For would be a way around limits and the audit log.
        proxy_headers=bool(proxies),
        forwarded_allow_ips=proxies,
    )
    if tls is not None:
        config.load()
        config.ssl = tls
    server = _Server(config)
    loop = asyncio.get_running_loop()

    def on_signal(number: int) -> None:
        if stop.is_set():
            log.warning("second signal: leaving at once")
            control.kill_now()
            os._exit(128 + number)
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal, number)
    tasks: list[asyncio.Task[None]] = []
    reloads: set[asyncio.Task[None]] = set()

    def on_hangup() -> None:
        task = asyncio.create_task(_reload(reloader), name="reload")
        reloads.add(task)
        task.add_done_callback(reloads.discard)

    # To a server in a terminal it means that the terminal is gone.
    if source is not None and hasattr(signal, "SIGHUP") and not _in_terminal():
        loop.add_signal_handler(signal.SIGHUP, on_hangup)
    try:
        await control.start()
        previews.start()
        retention.start()
        http_task = asyncio.create_task(server.serve([listener]), name="http")
        tasks.append(http_task)
        stop_task = asyncio.create_task(_wait(stop), name="until-stopped")
        tasks.append(stop_task)
        if on_running is not None:
            port = listener.getsockname()[1]
            running = Running(
                control, f"{page_url(settings.http, port)}/", not is_loopback(settings.http.host)
            )
            tasks.append(asyncio.create_task(_guarded(on_running(running)), name="on-running"))
        await asyncio.wait([http_task, stop_task], return_when=asyncio.FIRST_COMPLETED)
    finally:
        server.should_exit = True
        for task in (*tasks[1:], *reloads):
            task.cancel()
        ends = (control.stop(), previews.stop(), retention.stop())
        await asyncio.gather(*ends, *tasks, *reloads, return_exceptions=True)
        if tracer is not None:
            await asyncio.to_thread(tracer.close)
        listener.close()
        logging.getLogger().removeHandler(ring)


async def _wait(event: asyncio.Event) -> None:
    await event.wait()


async def _reload(reloader: Reloader) -> None:
    # What is wrong with the files is in the log.
    with contextlib.suppress(ProblemError):
        await reloader.reload()


def _in_terminal() -> bool:
    return sys.stdin is not None and not sys.stdin.closed and sys.stdin.isatty()


async def _guarded(work: Awaitable[None]) -> None:
    try:
        await work
    except Exception:
        log.exception("the start-up report failed")
