"""Keeps track of what the machine carries: measures it, asks the policies, follows the load.

The decisions are `avatar_server.capacity`'s; here they meet processes, files and messages.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Sequence

import msgspec

from avatar_server.capacity.admission import Admission, Capacity, Refusal, Report, overloaded
from avatar_server.capacity.demand import Demand
from avatar_server.capacity.figures import CalibrationCache, frames_key, machine_for, stages_key
from avatar_server.capacity.machine import Machine, free_memory_bytes
from avatar_server.capacity.overload import DESCRIPTIONS, Load, Overload, OverloadLevel
from avatar_server.clock import Clock
from avatar_server.config import Settings
from avatar_server.gateway.problems import ProblemError
from avatar_server.gateway.registry import Registry
from avatar_server.observe.metrics import Metrics
from avatar_server.processes import Bootstrap, bootstrap_line, plain_settings
from avatar_server.protocol.costs import FrameCosts, StageCosts
from avatar_server.protocol.messages import AvatarStatus, InferenceStatus, SetOverload

FRAMES_TIMEOUT_S = 120.0
"""Of the measurement: an avatar's art may have to be drawn first, on a slow machine."""
STAGE_ATTEMPTS = 2
"""A model that does not survive being measured must not keep the server from starting."""
LATE_WINDOW_S = 3.5
"""Over which late frames count for overload: three heartbeats. With a longer one a single stall
would look like an overload that lasts."""
FULL_RETRY_S = 10.0
"""When to ask again for a place; sooner where an empty session is about to end."""
MEASURING = "measuring this machine: drawing and encoding"

log = logging.getLogger(__name__)


class CapacityKeeper:
    """Answers how many sessions fit, and which overload level is in force.

    `prepare` first. All methods belong to one event loop.
    """

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        command: Sequence[str],
        *,
        cache: CalibrationCache | None = None,
        machine: Machine | None = None,
    ) -> None:
        """`command` starts the process that measures frames."""
        self._settings, self._clock, self._command = settings, clock, command
        self._cache = cache or CalibrationCache()
        self._given_machine = machine
        self.machine: Machine | None = None
        self.admission = Admission(settings, clock)
        self.overload = Overload(settings.capacity.overload, clock)
        self.frame_costs: FrameCosts | None = None
        self.stage_costs: StageCosts | None = None
        self.load = Load()
        self.phase = ""
        """What is being measured, in words; empty while nothing is."""
        self._free_bytes = 0
        self._statuses: dict[str, AvatarStatus] = {}
        self._inference_wait_ms = 0.0
        self._stage_losses = 0

    # --- measuring ----------------------------------------------------------------------------

    async def prepare(self) -> Settings:
        """Measure what frames cost, or recall it; some seconds the first time.

        Returns the settings for the children: with a number of sessions to prepare for, where the
        setting leaves that to us.
        """
        if self._settings.capacity.admission == "measured":
            await self._prepare()
        sessions = self.admission.capacity().fits
        return _with_sessions(self._settings, sessions)

    async def _prepare(self) -> None:
        settings, loop = self._settings, asyncio.get_running_loop()
        machine = self._given_machine
        if machine is None:
            machine = await loop.run_in_executor(None, machine_for, settings)
        self.machine = machine
        self._free_bytes = free_memory_bytes()
        if not settings.capacity.recalibrate:
            self.frame_costs = self._cache.load(FrameCosts, frames_key(machine, settings))
            self.stage_costs = self._cache.load(StageCosts, stages_key(machine, settings))
        if self.frame_costs is None:
            self.phase = MEASURING
            self.frame_costs = await self._measure_frames()
            self.phase = ""
            if self.frame_costs is not None:
                self._cache.store(self.frame_costs, frames_key(machine, settings))
        self._predict()

    @property
    def wants_stages(self) -> bool:
        """Whether the inference process is to measure what its stages cost."""
        tried = self._stage_losses < STAGE_ATTEMPTS
        return self.frame_costs is not None and self.stage_costs is None and tried

    async def _measure_frames(self) -> FrameCosts | None:
        """None, with a warning, where it fails: admission then goes by the setting alone."""
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                process_group=0,
            )
        except OSError as error:
            log.warning("what frames cost cannot be measured: %s", error)
            return None
        bootstrap = Bootstrap(role="frames", settings=plain_settings(self._settings))
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            assert process.stderr is not None
            with contextlib.suppress(ConnectionError):
                # Left open: its end is our end, to the child.
                process.stdin.write(bootstrap_line(bootstrap))
                await process.stdin.drain()
            async with asyncio.timeout(FRAMES_TIMEOUT_S):
                out, err = await asyncio.gather(process.stdout.read(), process.stderr.read())
            return msgspec.json.decode(out, type=FrameCosts)
        except TimeoutError:
            log.warning("measuring what frames cost took more than %.0f s", FRAMES_TIMEOUT_S)
        except msgspec.DecodeError:
            said = err.decode("utf-8", "replace").strip().splitlines()
            log.warning("what frames cost could not be measured: %s", said[-1] if said else "?")
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        return None

    def _predict(self) -> None:
        if self.machine is None or self.frame_costs is None:
            return
        self.admission.demand = Demand(
            self._settings,
            self.machine,
            self.frame_costs,
            self.stage_costs,
            free_bytes=self._free_bytes,
        )

    # --- what is reported ---------------------------------------------------------------------

    def inference_status(self, status: InferenceStatus, running: int) -> None:
        """Costs, where they were measured just now; waits; CPU time."""
        if self.wants_stages and status.costs is not None:
            self.stage_costs = status.costs
            assert self.machine is not None
            self._cache.store(status.costs, stages_key(self.machine, self._settings))
            self._predict()
        self._inference_wait_ms = status.wait_ms
        if status.ready:
            self.admission.report_inference(status.cpu_s, running)

    def inference_lost(self) -> None:
        """Its queues are gone with it; and what it was measuring may be what it died of."""
        self._inference_wait_ms = 0.0
        if self.wants_stages:
            self._stage_losses += 1
            if not self.wants_stages:
                log.warning("speech and language could not be measured: only frames count")

    def avatar_status(self, status: AvatarStatus) -> None:
        """A heartbeat."""
        self._statuses[status.session] = status
        self.admission.report(
            status.session,
            Report(
                speaking=status.state == "speaking",
                cpu_s=status.cpu_s,
                frames=status.frames,
                late_frames=status.late_frames,
                reduced=self.overload.level > OverloadLevel.NO_PARTIALS,
            ),
        )

    def forget(self, session: str) -> None:
        """It has ended, or its process was lost."""
        self._statuses.pop(session, None)
        self.admission.forget(session)

    # --- what is decided ----------------------------------------------------------------------

    def capacity(self) -> Capacity:
        """How many sessions fit."""
        return self.admission.capacity()

    def places(self) -> int:
        """Likewise, as a number."""
        return self.capacity().fits

    def refusal(self, running: int) -> Refusal | None:
        """Why no session may start beside `running` others; None where one may."""
        # With nobody there, there is nothing to protect.
        if running and self.overload.level is OverloadLevel.NO_NEW_SESSIONS:
            return overloaded(self.overload.reason)
        return self.admission.refusal(running, self._memory_now())

    def admit(self, registry: Registry, metrics: Metrics) -> str | None:
        """Whether one more session may start now: raises `ProblemError` (503) where none may.

        Gives the session that has to be ended for it, which everybody has left; None: none has to.
        """
        empty = registry.give_way()
        refusal = self.refusal(len(registry) - (empty is not None))
        if refusal is None:
            return empty
        metrics.sessions_refused.labels(refusal.resource.value).inc()
        free_in_s = registry.free_in_s()
        retry_s = FULL_RETRY_S if free_in_s is None else min(FULL_RETRY_S, free_in_s)
        raise ProblemError(
            503,
            "full",
            refusal.detail,
            retry_after_s=max(1, math.ceil(retry_s)),
            more={"resource": refusal.resource.value},
        )

    # --- overload -----------------------------------------------------------------------------

    def follow(self, metrics: Metrics) -> bool:
        """Judge the load of this moment, once a second; whether the overload level changed."""
        before = self.overload.level
        level = self._judge()
        metrics.capacity(self.capacity(), level)
        if level is before:
            return False
        metrics.overload_changes.labels("up" if level > before else "down").inc()
        why = self.overload.reason or "there is room again"
        log.warning("overload level %d (%s): %s", level, DESCRIPTIONS[level], why)
        return True

    def overload_message(self) -> SetOverload:
        """What avatars are told."""
        level = self.overload.level
        return SetOverload(level=level, reason=DESCRIPTIONS[level] if level else "")

    def _judge(self) -> OverloadLevel:
        fps = self._settings.media.video.fps
        costs = [
            (status.render_ms + status.encode_ms) * fps / 1e3 for status in self._statuses.values()
        ]
        self.load = Load(
            late_share=self.admission.late_share(LATE_WINDOW_S),
            frame_cost=max(costs, default=0.0),
            wait_ms=self._inference_wait_ms,
        )
        return self.overload.update(self.load)

    def _memory_now(self) -> int | None:
        return free_memory_bytes() if self.admission.demand is not None else None


def _with_sessions(settings: Settings, sessions: int) -> Settings:
    limits = settings.sessions.model_copy(update={"max_sessions": sessions})
    return settings.model_copy(update={"sessions": limits})
