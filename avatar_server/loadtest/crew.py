"""The viewers' processes, seen from the process that conducts the load test."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any

import msgspec

from avatar_server.loadtest.results import (
    ANY_REPORT,
    Command,
    Failed,
    Order,
    decode_report,
    encode_line,
)

VIEWERS_PER_PROCESS = 6
"""One more viewer costs some 30 ms of CPU a second: so many leave a process at ease."""

_MAX_LINE_BYTES = 1 << 27
"""A viewer's series of an hour."""
_END_TIMEOUT_S = 8.0
"""Leaving takes one HTTP request; a process that hangs is killed."""


class CrewError(RuntimeError):
    """A viewers' process ended by itself; the message says what it last printed."""


class Crew:
    """Starts viewers' processes, and hands on what they report. Use as an async context manager.

    `on_report` is called on the event loop for each report.
    """

    def __init__(self, on_report: Callable[[ANY_REPORT], None]) -> None:
        self._on_report = on_report
        self._processes: list[asyncio.subprocess.Process] = []
        self._readers: list[asyncio.Task[None]] = []
        self._ending = False
        self.failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def __aenter__(self) -> Crew:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ending = True
        self.failure.cancel()
        for process in self._processes:
            if process.stdin is not None:
                process.stdin.close()
        for process in self._processes:
            try:
                await asyncio.wait_for(process.wait(), _END_TIMEOUT_S)
            except TimeoutError:
                process.kill()
                await process.wait()
        for reader in self._readers:
            reader.cancel()
        await asyncio.gather(*self._readers, return_exceptions=True)

    @property
    def pids(self) -> list[int]:
        """Process ids of the viewers' processes."""
        return [process.pid for process in self._processes]

    async def start(self, order: Order) -> None:
        """Start a process for `order`."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "avatar_server.loadtest.worker",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=_MAX_LINE_BYTES,
        )
        assert process.stdin is not None
        self._processes.append(process)
        self._readers.append(asyncio.create_task(self._read(process, order.session)))
        process.stdin.write(encode_line(order))

    def tell(self, command: Command) -> None:
        """Send `command` to every process; one that has ended is left out."""
        for process in self._processes:
            with contextlib.suppress(ConnectionError, RuntimeError):
                assert process.stdin is not None
                process.stdin.write(encode_line(command))

    async def wait(self, what: Coroutine[Any, Any, None]) -> None:
        """Wait for `what`; raises `CrewError` where a process ends before."""
        waiting = asyncio.ensure_future(what)
        try:
            await asyncio.wait([waiting, self.failure], return_when=asyncio.FIRST_COMPLETED)
            if self.failure.done():
                self.failure.result()
            await waiting
        finally:
            waiting.cancel()

    async def _read(self, process: asyncio.subprocess.Process, session: int) -> None:
        assert process.stdout is not None
        assert process.stderr is not None
        errors = asyncio.create_task(process.stderr.read())
        while line := await process.stdout.readline():
            try:
                report = decode_report(line)
            except msgspec.DecodeError:
                continue  # a library's own line of output
            if isinstance(report, Failed):
                self._fail(report.message)
            self._on_report(report)
        code = await process.wait()
        told = (await errors).decode("utf-8", "replace").strip()
        if code != 0:
            last = told.splitlines()[-1] if told else "nothing was printed"
            self._fail(f"the viewers of session {session + 1} ended with code {code}: {last}")

    def _fail(self, message: str) -> None:
        if not self._ending and not self.failure.done():
            self.failure.set_exception(CrewError(message))
