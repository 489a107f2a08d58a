"""Avatar processes started ahead of need: loaded, waiting to be told whose session they are.

Loading the libraries takes longer than anything else at a session's start, and a session whose
process was killed must be back in seconds also on a busy machine.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from avatar_server.gateway.children import Child

# A session that has just started needs the CPU more than the spare for the next one.
REFILL_AFTER_S = 3.0

log = logging.getLogger(__name__)


class Spares:
    """Keeps up to `count` idle processes of one command; `close` at the end."""

    def __init__(self, command: Sequence[str], role: str, count: int) -> None:
        self._command = command
        self._role = role
        self._count = count
        self._idle: list[Child] = []
        self._refilling: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def pids(self) -> list[int]:
        """Of the idle processes."""
        return [child.pid for child in self._idle]

    def refill(self, after_s: float = 0.0) -> None:
        """Start what is missing, in the background."""
        if self._closed or not self._count or (self._refilling and not self._refilling.done()):
            return
        self._refilling = asyncio.create_task(self._refill(after_s), name="refill-spares")

    async def take(self) -> Child:
        """A process to be configured: an idle one, else a new one. Raises `OSError`."""
        while self._idle:
            child = self._idle.pop(0)
            if child.alive:
                self.refill(REFILL_AFTER_S)
                return child
            await child.reap()
        self.refill(REFILL_AFTER_S)
        return await Child.start(self._command, self._role)

    async def close(self) -> None:
        """End the idle processes; none is started any more."""
        self._closed = True
        if self._refilling is not None:
            self._refilling.cancel()
            await asyncio.gather(self._refilling, return_exceptions=True)
        await asyncio.gather(*(child.kill() for child in self._idle))
        self._idle.clear()

    async def _refill(self, after_s: float) -> None:
        await asyncio.sleep(after_s)
        for child in [child for child in self._idle if not child.alive]:
            self._idle.remove(child)
            await child.reap()
        while len(self._idle) < self._count:
            try:
                self._idle.append(await Child.start(self._command, self._role))
            except OSError as error:
                # The next session will meet the same error, and report it to whoever asked.
                log.warning("no spare %s process: %s", self._role, error)
                return
