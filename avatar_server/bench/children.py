"""Child processes of a benchmark: one JSON line in, one JSON line out."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

_REPLY_TIMEOUT_S = 60.0
"""The longest command loads an avatar and measures each step, which takes some seconds; those
that measure for a given time are given that time on top."""
_LINE_LIMIT = 1 << 22


class BenchError(RuntimeError):
    """A benchmark could not be run; the message says why."""


class Child:
    """A child process that answers one JSON line with one."""

    def __init__(self, process: asyncio.subprocess.Process, name: str) -> None:
        self._process = process
        self._name = name

    async def ask(self, **command: Any) -> dict[str, Any]:
        """The answer to `command`; raises `BenchError` where the process has ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(command).encode() + b"\n")
        async with asyncio.timeout(_REPLY_TIMEOUT_S + command.get("seconds", 0.0)):
            line = await self._process.stdout.readline()
        if not line:
            raise BenchError(f"{self._name} ended during {command['do']!r}; its error is above")
        reply: dict[str, Any] = json.loads(line)
        return reply


@asynccontextmanager
async def child(name: str) -> AsyncIterator[Child]:
    """The module `avatar_server.bench.{name}` as a process, ended with the block."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        f"avatar_server.bench.{name}",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=_LINE_LIMIT,
    )
    try:
        yield Child(process, name)
    finally:
        if process.stdin is not None:
            process.stdin.close()
        try:
            async with asyncio.timeout(5):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
