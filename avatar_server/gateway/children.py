"""One child process: started with its `Bootstrap`, its output passed on, ended without a trace."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from avatar_server.processes import Bootstrap, bootstrap_line

MAX_LINE_BYTES = 256 * 1024
TERM_GRACE_S = 0.5

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ChildCommands:
    """The command lines of the two kinds of child. Tests put others in."""

    avatar: Sequence[str] = (sys.executable, "-m", "avatar_server.avatar.process")
    inference: Sequence[str] = (sys.executable, "-m", "avatar_server.inference.process")


class Child:
    """A running child process in a session of its own, so that Ctrl-C reaches only the parent.

    Standard input stays open as long as the parent lives: its end tells the child to exit.
    """

    def __init__(self, process: asyncio.subprocess.Process, role: str, session: str) -> None:
        self._process = process
        self._role = role
        self._session = session
        assert process.stdout is not None
        assert process.stderr is not None
        self._pumps = [
            asyncio.create_task(self._pass_on(process.stdout), name=f"{role}-stdout"),
            asyncio.create_task(self._pass_on(process.stderr), name=f"{role}-stderr"),
        ]

    @classmethod
    async def start(cls, command: Sequence[str], role: str, session: str = "") -> Child:
        """Start `command`; it waits for `configure`. Raises `OSError` where it cannot start."""
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
            limit=MAX_LINE_BYTES,
        )
        return cls(process, role, session)

    def configure(self, bootstrap: Bootstrap) -> None:
        """Tell the child what it is. A child that has died meanwhile is noticed by `wait`."""
        self._session = bootstrap.session
        assert self._process.stdin is not None
        with contextlib.suppress(OSError, RuntimeError):
            self._process.stdin.write(bootstrap_line(bootstrap))

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.returncode is None

    async def wait(self) -> int:
        """The exit code, once it has ended; negative for a signal."""
        return await self._process.wait()

    async def end(self, grace_s: float = 0.0) -> None:
        """Have it gone: wait `grace_s` for it to go by itself, then SIGTERM, then SIGKILL."""
        for wait_s, number in ((grace_s, signal.SIGTERM), (TERM_GRACE_S, signal.SIGKILL)):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._process.wait(), wait_s)
            if not self.alive:
                break
            self._signal(number)
        await self.reap()

    async def kill(self) -> None:
        """SIGKILL, for a child that no longer answers."""
        self._signal(signal.SIGKILL)
        await self.reap()

    async def reap(self) -> None:
        """Collect an ended child and end whatever it left running in its process group."""
        await self._process.wait()
        self._signal(signal.SIGKILL)
        if self._process.stdin is not None:
            self._process.stdin.close()
        # A grandchild that kept the pipes open must not hold us up.
        _, pending = await asyncio.wait(self._pumps, timeout=0.2)
        for pump in pending:
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)

    def _signal(self, number: signal.Signals) -> None:
        # The child leads its own process group (start_new_session), so that its id is the group's.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    async def _pass_on(self, stream: asyncio.StreamReader) -> None:
        while True:
            try:
                line = await stream.readline()
            except ValueError:
                log.warning("a line of output longer than %d bytes was dropped", MAX_LINE_BYTES)
                continue
            if not line:
                return
            if text := line.decode("utf-8", "replace").rstrip():
                self._log(text)

    def _log(self, text: str) -> None:
        """One line of the child's in the parent's log, with the child's own level and role."""
        message, level, extra = parse_child_line(text, self._role)
        if self._session:
            extra.setdefault("session", self._session)
        log.log(level, "%s", message, extra=extra)


_LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "critical": logging.CRITICAL,
}


def parse_child_line(text: str, role: str) -> tuple[str, int, dict[str, object]]:
    """Message, level and fields of a line that a child wrote: JSON, text, or anything else.

    What is not in the product's log format (a library's print, a traceback) passes as info.
    """
    if text.startswith("{"):
        with contextlib.suppress(ValueError, TypeError):
            entry = json.loads(text)
            level = _LEVELS[str(entry.pop("level")).lower()]
            message = str(entry.pop("message"))
            entry.pop("time", None)
            entry.pop("logger", None)
            fields = {key: value for key, value in entry.items() if key.isidentifier()}
            return message, level, {"role": role, **_safe(fields)}
    parts = text.split(None, 3)
    if len(parts) == 4 and parts[1] in _LEVELS and parts[0][:2].isdigit():
        return parts[3], _LEVELS[parts[1]], {"role": parts[2]}
    return text, logging.INFO, {"role": role}


def _safe(fields: dict[str, object]) -> dict[str, object]:
    # logging refuses extras named like a record's own attributes.
    own = set(vars(logging.makeLogRecord({}))) | {"message", "asctime"}
    return {key: value for key, value in fields.items() if key not in own}
