"""The inference process as the gateway sees it: kept running, asked how it is."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import zmq.asyncio

from avatar_server.clock import Clock
from avatar_server.config import InferenceSettings
from avatar_server.gateway.capacity import CapacityKeeper
from avatar_server.gateway.children import Child
from avatar_server.gateway.link import InferenceLink
from avatar_server.gateway.restarts import RestartPolicy, cause_label
from avatar_server.gateway.supervisor import Keeper, KeeperState, Patience
from avatar_server.observe.metrics import Metrics
from avatar_server.protocol.messages import InferenceStatus


class ModelsProcess:
    """`open` first, then `start`; `stop` and `close` at the end.

    `spawn` starts the process, and `sessions` says how many conversations it serves now.
    """

    def __init__(
        self,
        limits: InferenceSettings,
        spawn: Callable[[], Awaitable[Child]],
        clock: Clock,
        capacity: CapacityKeeper,
        metrics: Metrics,
        sessions: Callable[[], int],
    ) -> None:
        self.status: InferenceStatus | None = None
        """The last one of the process that runs now."""
        self._capacity, self._metrics, self._sessions = capacity, metrics, sessions
        self._ready = asyncio.Event()
        self._keeper = Keeper(
            "inference",
            spawn,
            RestartPolicy(limits.restart_limit_per_minute, clock),
            clock,
            Patience(start_s=limits.start_timeout_s, silence_s=limits.hang_timeout_s),
            on_lost=self._lost,
        )

    def open(self, context: zmq.asyncio.Context, endpoint: str) -> None:
        """Open the socket to it."""
        self._link = InferenceLink(context, endpoint, self._on_status)

    def start(self) -> None:
        """Begin to keep it running."""
        self._keeper.start()

    async def stop(self) -> None:
        """End it at once: it holds nothing that must be saved."""
        await self._keeper.stop(grace_s=0.0)

    async def close(self) -> None:
        """Close the socket."""
        await self._link.close()

    async def ask(self) -> None:
        """Ask it how it is."""
        await self._link.ask()

    async def wait_until_ready(self, timeout_s: float) -> bool:
        """Whether it became ready within `timeout_s`."""
        try:
            await asyncio.wait_for(self._ready.wait(), timeout_s)
        except TimeoutError:
            return False
        return True

    @property
    def pid(self) -> int | None:
        """Of the running process; none between two."""
        return self._keeper.pid

    @property
    def ready(self) -> bool:
        """Whether its models are loaded."""
        return self.status is not None and self.status.ready

    @property
    def phase(self) -> str:
        """What it is loading; empty where it has not said."""
        return self.status.phase if self.status else ""

    @property
    def lost_because(self) -> str:
        """Why it is to be started again, as in "was killed by signal 9"; empty where it is not."""
        return self._keeper.reason if self._keeper.state is KeeperState.WAITING else ""

    def _on_status(self, status: InferenceStatus) -> None:
        if status.pid != self._keeper.pid:
            return
        self.status = status
        self._capacity.inference_status(status, self._sessions())
        self._metrics.inference_status(status)
        if status.ready and self._keeper.ready(status.pid):
            self._ready.set()
        self._keeper.heard()

    def _lost(self, cause: str) -> None:
        self.status = None
        self._capacity.inference_lost()
        self._ready.clear()
        self._metrics.inference_ready.set(0)
        self._metrics.restarts.labels("inference", cause_label(cause)).inc()
