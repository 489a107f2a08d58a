"""Keeps a child process running: starts it, notices its death or silence, starts it again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum

from avatar_server.clock import Clock
from avatar_server.gateway.children import Child
from avatar_server.gateway.restarts import RestartPolicy

# Signs of life that arrived while this process was itself held up are still to be read after the
# deadline has passed.
SETTLE_S = 0.1
# The deadline moves while it is waited for: becoming ready brings it closer.
LOOK_EVERY_S = 0.25

log = logging.getLogger(__name__)


class KeeperState(StrEnum):
    STARTING = "starting"
    READY = "ready"
    WAITING = "waiting"
    """Lost; to be started again after a pause."""
    GONE = "gone"
    """Ended for good."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a child may take, in seconds."""

    start_s: float
    """From its start until it says that it is ready."""
    silence_s: float
    """Between two signs of life once it is ready; longer is a hang."""


class Keeper:
    """Owns the child of one role, and every restart of it, until `stop`.

    `spawn` starts and configures a child. `on_lost(cause)` is called when a child is gone and will
    be replaced, `on_given_up(reason)` when it will not: with `gives_up`, when the restart limit is
    reached or when the first start fails; without it the keeper waits and tries again.
    """

    def __init__(
        self,
        role: str,
        spawn: Callable[[], Awaitable[Child]],
        policy: RestartPolicy,
        clock: Clock,
        patience: Patience,
        *,
        on_lost: Callable[[str], None],
        on_given_up: Callable[[str], None] | None = None,
    ) -> None:
        self._role = role
        self._spawn = spawn
        self._policy = policy
        self._clock = clock
        self._patience = patience
        self._on_lost = on_lost
        self._on_given_up = on_given_up
        self._child: Child | None = None
        self._task: asyncio.Task[None] | None = None
        self._deadline = 0.0
        self._was_ready = False
        self.state = KeeperState.STARTING
        self.reason = "starting"

    @property
    def pid(self) -> int | None:
        """Of the running child; None between two."""
        return self._child.pid if self._child is not None else None

    def start(self) -> None:
        """Begin; ended by `stop`."""
        self._task = asyncio.create_task(self._run(), name=f"keep-{self._role}")

    def ready(self, pid: int) -> bool:
        """The child with this process id is ready; false where it is not (any more) ours."""
        if self._child is None or self._child.pid != pid or self.state is KeeperState.GONE:
            return False
        self.state = KeeperState.READY
        self.reason = ""
        self._was_ready = True
        self.heard()
        return True

    def heard(self) -> None:
        """A sign of life."""
        if self.state is KeeperState.READY:
            self._deadline = self._clock.now() + self._patience.silence_s

    async def stop(self, grace_s: float) -> None:
        """End the child (`Child.end`) and the keeping of it."""
        self.state = KeeperState.GONE
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._child is not None:
            await self._child.end(grace_s)
            self._child = None

    async def _run(self) -> None:
        while True:
            cause = await self._one_life()
            if self._on_given_up is not None and (self._policy.exhausted() or not self._was_ready):
                self.state = KeeperState.GONE
                self.reason = cause
                self._on_given_up(cause)
                return
            delay_s = self._policy.delay_s()
            self.state = KeeperState.WAITING
            self.reason = cause
            log.warning("%s %s; starting it again in %.1f s", self._role, cause, delay_s)
            self._on_lost(cause)
            await asyncio.sleep(delay_s)

    async def _one_life(self) -> str:
        """Start a child and see it end; returns why, as in "the process was killed"."""
        self.state = KeeperState.STARTING
        self._deadline = self._clock.now() + self._patience.start_s
        try:
            self._child = child = await self._spawn()
        except OSError as error:
            return f"could not be started ({error.strerror or error})"
        ended = asyncio.create_task(child.wait())
        try:
            while not ended.done():
                left_s = self._deadline - self._clock.now()
                if left_s <= -SETTLE_S:
                    cause = self._overdue()
                    await child.kill()
                    return cause
                await asyncio.wait([ended], timeout=min(max(left_s, SETTLE_S), LOOK_EVERY_S))
            await child.reap()
            return _ending(ended.result())
        finally:
            ended.cancel()
            if not child.alive:
                self._child = None

    def _overdue(self) -> str:
        if self.state is KeeperState.READY:
            return f"gave no sign of life for {self._patience.silence_s:g} s"
        return f"was not ready within {self._patience.start_s:g} s"


def _ending(code: int) -> str:
    if code < 0:
        return f"was killed by signal {-code}"
    return f"ended with exit code {code}"
