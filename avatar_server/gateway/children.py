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
from typing import Any

from avatar_server.processes import Bootstrap, bootstrap_line

MAX_LINE_BYTES = 256 * 1024
TERM_GRACE_S = 0.5

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ChildCommands:
    """The command lines of the kinds of child. Tests put others in."""

    avatar: Sequence[str] = (sys.executable, "-m", "avatar_server.avatar.process")
    inference: Sequence[str] = (sys.executable, "-m", "avatar_server.inference.process")
    frames: Sequence[str] = (sys.executable, "-m", "avatar_server.capacity.frames")


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
            # A group of its own keeps the terminal's Ctrl-C from it. Not a session of its own:
            # Linux shares the CPU between sessions first (autogroups), and `nice` would count
            # for nothing between the models and the frames.
            process_group=0,
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
        """Whether it still runs, by the kernel's word: the loop learns of an end only later."""
        if self._process.returncode is not None:
            return False
        try:
            # Only looks: the event loop's watcher must find the exit code still there.
            ended = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return False
        return ended is None

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
        # The child leads its own process group, so that its id is the group's.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    async def _pass_on(self, stream: asyncio.StreamReader) -> None:
        """Log each line; a traceback, of several lines, as one error."""
        traceback: list[str] = []
        while True:
            try:
                line = await stream.readline()
            except ValueError:
                log.warning("a line of output longer than %d bytes was dropped", MAX_LINE_BYTES)
                continue
            text = line.decode("utf-8", "replace").rstrip()
            if traceback and not text.startswith(" "):
                # The line after the frames names the error; at the end of output there is none.
                self._log(text or "ended by an error", logging.ERROR, "\n".join(traceback))
                traceback = []
            elif traceback or text.startswith("Traceback ("):
                traceback.append(text)
            elif text:
                self._log(text, logging.INFO)
            if not line:
                return

    def _log(self, text: str, level: int, exception: str = "") -> None:
        """One line of the child's in the parent's log, with the child's own level and role."""
        message, fields = text, dict[str, Any]()
        if (entry := parse_entry(text)) is not None:
            level, message, fields = entry
        elif exception:
            fields["exception"] = exception
        fields.setdefault("role", self._role)
        if self._session:
            fields.setdefault("session", self._session)
        log.log(level, "%s", message, extra=fields)


_LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "critical": logging.CRITICAL,
}
# logging refuses extras named like a record's own attributes.
_RESERVED = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "time", "logger"}


def parse_entry(text: str) -> tuple[int, str, dict[str, Any]] | None:
    """Level, message and fields of a line in the product's JSON log format; None for any other."""
    if not text.startswith("{"):
        return None
    try:
        entry = json.loads(text)
        level = _LEVELS[entry["level"]]
        message = str(entry["message"])
    except (ValueError, TypeError, KeyError):
        return None
    fields = {key: value for key, value in entry.items() if key not in _RESERVED}
    del fields["level"]
    return level, message, fields
