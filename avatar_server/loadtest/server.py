"""A server of our own for a benchmark or a test: started, waited for, ended."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

import httpx

STOP_TIMEOUT_S = 5.0
"""The server ends itself within 3 s; after this it is killed."""


def _leave(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)


class ServerFailed(RuntimeError):
    """The server did not become ready; the message ends with what it printed."""


def free_port() -> int:
    """A TCP port of the loopback interface that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class ServerProcess:
    """`avatar-server serve` on a free loopback port, as a context manager.

    `arguments` are passed on to `serve`; `environment` is added to ours. Until its end a SIGTERM to
    us ends the block as `sys.exit` does, so that the server is not left behind.
    """

    def __init__(
        self,
        arguments: Sequence[str] = (),
        *,
        environment: dict[str, str] | None = None,
        ready_timeout_s: float = 120.0,
        log: Path | None = None,
    ) -> None:
        self._arguments = list(arguments)
        self._environment = {**os.environ, **(environment or {})}
        self._ready_timeout_s = ready_timeout_s
        self._log = log
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.process: subprocess.Popen[bytes] | None = None
        self._on_term: Any = None

    def __enter__(self) -> ServerProcess:
        command = [sys.executable, "-m", "avatar_server.cli", "serve", "--port", str(self.port)]
        if self._log is None:
            handle, name = tempfile.mkstemp(prefix="avatar-server-", suffix=".log")
            os.close(handle)
            self._log = Path(name)
        if threading.current_thread() is threading.main_thread():
            self._on_term = signal.signal(signal.SIGTERM, _leave)
        with self._log.open("wb") as output:
            self.process = subprocess.Popen(
                [*command, *self._arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=self._environment,
                start_new_session=True,
            )
        try:
            self._wait_until_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def output(self) -> str:
        """What the server has printed so far."""
        return self._log.read_text(errors="replace") if self._log else ""

    def stop(self) -> float:
        """Send SIGINT, as Ctrl-C does, and wait. Returns the seconds it took."""
        assert self.process is not None
        started = time.monotonic()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        if self._on_term is not None:
            signal.signal(signal.SIGTERM, self._on_term)
            self._on_term = None
        return time.monotonic() - started

    def _wait_until_ready(self) -> None:
        assert self.process is not None
        deadline = time.monotonic() + self._ready_timeout_s
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise ServerFailed(
                    f"the server ended with code {self.process.returncode}:\n{self._tail()}"
                )
            try:
                if httpx.get(f"{self.url}/readyz", timeout=2.0).status_code == 200:
                    return
            except httpx.HTTPError:
                pass
            time.sleep(0.1)
        raise ServerFailed(f"not ready after {self._ready_timeout_s:.0f} s:\n{self._tail()}")

    def _tail(self) -> str:
        return "\n".join(self.output().splitlines()[-25:])
