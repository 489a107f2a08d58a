"""The gateway's heart: admits sessions and viewers, and keeps their processes running."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import zmq.asyncio

from avatar_server.avatars import AvatarSpec
from avatar_server.capacity.admission import Refusal
from avatar_server.clock import Clock, MonotonicClock
from avatar_server.config import Settings
from avatar_server.gateway.capacity import CapacityKeeper
from avatar_server.gateway.children import Child, ChildCommands
from avatar_server.gateway.lifetimes import Lifetimes
from avatar_server.gateway.link import AvatarLink, Endpoints
from avatar_server.gateway.models_process import ModelsProcess
from avatar_server.gateway.problems import ProblemError
from avatar_server.gateway.registry import Registry, Session
from avatar_server.gateway.restarts import RestartPolicy, cause_label
from avatar_server.gateway.spares import Spares
from avatar_server.gateway.supervisor import Keeper, KeeperState, Patience
from avatar_server.gateway.viewers import Viewers
from avatar_server.observe.metrics import Metrics
from avatar_server.observe.trace import TraceRing
from avatar_server.processes import Bootstrap, plain_settings
from avatar_server.protocol.messages import (
    AvatarReady,
    AvatarStatus,
    StopAvatar,
    TellEnding,
    TurnTrace,
)

TICK_S = 0.25
RESERVED_S = 15.0
"""For somebody who was sent to a session that is always on."""
ASK_INFERENCE_EVERY_S = 1.0
# Ctrl-C must end everything within 3 s: a second to go by itself, half of one after SIGTERM.
STOP_GRACE_S = 1.0
RECORDED_GRACE_S = 2.5
"""Of a session that ends while the server goes on: its recording is to be completed."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether new sessions are taken; `reason` is a sentence where they are not."""

    ready: bool
    reason: str
    phase: str


class Control:
    """Sessions, viewers and the processes behind them. `start` first, `stop` at the end."""

    def __init__(
        self,
        settings: Settings,
        avatars: Mapping[str, AvatarSpec],
        *,
        commands: ChildCommands | None = None,
        clock: Clock | None = None,
        metrics: Metrics | None = None,
        capacity: CapacityKeeper | None = None,
    ) -> None:
        self.settings = settings
        self.avatars = avatars
        self._specs = dict(avatars)
        """Also of avatars that are no longer there: sessions of theirs may still run."""
        self.metrics = metrics or Metrics()
        self.traces = TraceRing(settings.observe.trace_turns)
        self._commands = commands or ChildCommands()
        self._clock = clock or MonotonicClock()
        self.capacity = capacity or CapacityKeeper(settings, self._clock, self._commands.frames)
        self.registry = Registry(settings.sessions, self._clock, self.capacity.places)
        self._child_settings = settings
        self.lifetimes = Lifetimes(settings.sessions, self.registry, self._clock)
        self.on_drained: Callable[[], None] | None = None
        """Called once everything has ended after a drain."""
        self.on_turn: Callable[[TurnTrace, str], None] | None = None
        """Called with each finished turn and the name of its avatar."""
        self._pinning: set[asyncio.Task[None]] = set()
        self._keepers: dict[str, Keeper] = {}
        self._spares = Spares(self._commands.avatar, "avatar", settings.sessions.warm_spares)
        self._started: dict[str, asyncio.Future[None]] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._leaving: set[Keeper] = set()
        self._stopping = False
        self.models = ModelsProcess(
            settings.inference,
            self._spawn_inference,
            self._clock,
            self.capacity,
            self.metrics,
            lambda: len(self.registry),
        )

    # --- life ---------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the sockets and begin to measure and to load; returns without waiting for it."""
        self._endpoints = Endpoints()
        self._context = zmq.asyncio.Context()
        self._avatars = AvatarLink(self._context, self._endpoints.gateway, self._on_avatar)
        self.viewers = Viewers(
            self.registry,
            self.lifetimes,
            self._avatars,
            self.metrics,
            self.settings.sessions.answer_timeout_s,
        )
        self.models.open(self._context, self._endpoints.inference)
        self._beginning = asyncio.create_task(self._begin(), name="begin")
        self._ticker = asyncio.create_task(self._tick(), name="gateway-tick")

    async def _begin(self) -> None:
        """Frames first: what they cost is measured before anything else uses the machine."""
        try:
            self._child_settings = await self.capacity.prepare()
        except Exception:
            # The setting alone then says how many sessions there may be.
            log.exception("the machine could not be measured")
        self.models.start()
        self._spares.refill()

    async def stop(self) -> None:
        """End all processes, within some 2 s, and remove the sockets. Twice is once."""
        if self._stopping:
            return
        self._stopping = True
        own = (self._ticker, self._beginning, *self._pinning)
        for task in own:
            task.cancel()
        await asyncio.gather(*own, return_exceptions=True)
        for session in list(self._keepers):
            self._finish(session, "stopped", "The server is shutting down.")
        await asyncio.gather(
            self.models.stop(),
            self._spares.close(),
            *self._ending,
            return_exceptions=True,
        )
        await self._avatars.close()
        await self.models.close()
        self._context.term()
        self._endpoints.remove()

    def kill_now(self) -> None:
        """SIGKILL every child, without waiting: for a person who will not wait."""
        keepers = (*self._keepers.values(), *self._leaving)
        avatars = (keeper.pid for keeper in keepers)
        for pid in (self.models.pid, *avatars, *self._spares.pids):
            if pid is not None:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(pid, signal.SIGKILL)
        self._endpoints.remove()

    # --- what the routes ask ------------------------------------------------------------------

    def readiness(self) -> Readiness:
        """Whether new sessions are taken, apart from how many run."""
        phase = self.models.phase if self.models.status else self.capacity.phase or "starting"
        if self._stopping:
            return Readiness(False, "The server is shutting down.", "stopping")
        if self.lifetimes.draining:
            return Readiness(
                False, "The server is being replaced and takes no new conversations.", "draining"
            )
        if self.models.ready:
            return Readiness(True, "", phase or "ready")
        if cause := self.models.lost_because:
            return Readiness(
                False,
                f"The models are being started again: inference {cause}. "
                "The server's log says more.",
                "restarting",
            )
        return Readiness(False, f"The server is getting ready: {phase}.", phase)

    def refusal(self) -> Refusal | None:
        """Why a new session would not be started now, apart from readiness; None: it would be."""
        return self.capacity.refusal(len(self.registry) - len(self.registry.yielding()))

    async def create(
        self, avatar: str, *, pinned: bool = False, record: bool | None = None
    ) -> Session:
        """Start a session and wait until its avatar takes viewers. Raises `ProblemError`.

        Where the avatar has a session that is always on and free, that one is given; `pinned`
        starts such a one. `record`: whether it is recorded; none: as the settings say.
        """
        if avatar not in self.avatars:
            known = ", ".join(sorted(self.avatars)) or "none"
            raise ProblemError(
                404, "unknown-avatar", f"There is no avatar {avatar!r}. There are: {known}."
            )
        readiness = self.readiness()
        if not readiness.ready:
            self.metrics.sessions_refused.labels("not-ready").inc()
            raise ProblemError(503, "not-ready", readiness.reason, retry_after_s=3)
        recorded = self.settings.recording.enabled if record is None else record
        if not pinned and (unused := self.registry.unused(avatar, recorded)) is not None:
            unused.reserved_until = self._clock.now() + RESERVED_S
            return unused
        # From here to `add` nothing is awaited: of two requests for the last place one is served.
        if (empty := self.capacity.admit(self.registry, self.metrics)) is not None:
            self._finish(empty, "gave-way", "Everybody had left, and somebody else was waiting.")
        session = self.registry.add(_new_id(), avatar, pinned=pinned, recorded=recorded)
        started_at = self._clock.now()
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._started[session.id] = future
        limits = self.settings.sessions
        keeper = Keeper(
            "avatar",
            lambda: self._spawn_avatar(session),
            RestartPolicy(limits.restart_limit_per_minute, self._clock),
            self._clock,
            Patience(start_s=limits.start_timeout_s, silence_s=limits.hang_timeout_s),
            on_lost=lambda cause: self._avatar_lost(session.id, cause),
            on_given_up=lambda cause: self._avatar_given_up(session.id, cause),
        )
        self._keepers[session.id] = keeper
        keeper.start()
        try:
            # Shielded: a client that stops waiting leaves a session, which ends by being idle.
            await asyncio.shield(future)
        except _StartFailed as error:
            raise ProblemError(503, "start-failed", str(error), retry_after_s=5) from error
        finally:
            self._started.pop(session.id, None)
        self.metrics.sessions_started.inc()
        self.metrics.session_start_s.observe(self._clock.now() - started_at)
        log.info("session started", extra={"session": session.id, "avatar": avatar})
        return session

    def renew(self, avatars: Mapping[str, AvatarSpec]) -> None:
        """Start sessions of these avatars from now on; the running ones stay."""
        self.avatars = avatars
        self._specs.update(avatars)

    def end(self, session: str) -> None:
        """End a session because an operator said so. Raises `ProblemError` 404."""
        self.viewers.session(session)
        self._finish(session, "deleted", "The session was ended by its operator.")

    # --- processes ----------------------------------------------------------------------------

    async def _spawn_inference(self) -> Child:
        child = await Child.start(self._commands.inference, "inference")
        child.configure(self._bootstrap("inference"))
        return child

    async def _spawn_avatar(self, session: Session) -> Child:
        child = await self._spares.take()
        child.configure(self._bootstrap("avatar", session))
        return child

    def _bootstrap(self, role: str, session: Session | None = None) -> Bootstrap:
        settings = plain_settings(self._child_settings)
        # Children log to us, and we write their lines in the configured format.
        settings["observe"]["log_json"] = True
        bootstrap = Bootstrap(
            role=role,
            settings=settings,
            gateway=self._endpoints.gateway,
            inference=self._endpoints.inference,
            measure=role == "inference" and self.capacity.wants_stages,
        )
        if session is not None:
            bootstrap.session, bootstrap.avatar = session.id, session.avatar
            bootstrap.spec = self._specs[session.avatar].as_json()
            bootstrap.record = session.recorded
        return bootstrap

    def _on_avatar(self, session: str, message: AvatarReady | AvatarStatus | TurnTrace) -> None:
        keeper = self._keepers.get(session)
        if keeper is None:
            return
        if isinstance(message, AvatarReady):
            if keeper.ready(message.pid):
                self.registry.ready(session, message.pid)
                if (future := self._started.get(session)) is not None and not future.done():
                    future.set_result(None)
                if self.capacity.overload.level:
                    self._tell_overload(session)
            return
        keeper.heard()
        if isinstance(message, AvatarStatus):
            self.registry.status(message)
            self.capacity.avatar_status(message)
            self.metrics.avatar_status(message)
        else:
            self.traces.add(message)
            self.metrics.turn(message)
            if self.on_turn is not None and (entry := self.registry.find(session)):
                self.on_turn(message, entry.avatar)

    def _avatar_lost(self, session: str, cause: str) -> None:
        self.metrics.restarts.labels("avatar", cause_label(cause)).inc()
        self._avatars.lost(session)
        self.capacity.forget(session)
        self.registry.lost(session)

    def _avatar_given_up(self, session: str, cause: str) -> None:
        future = self._started.get(session)
        if future is not None and not future.done():
            future.set_exception(
                _StartFailed(f"The avatar's process {cause}; the server's log says more.")
            )
        log.error("session ended: the avatar %s", cause, extra={"session": session})
        self._finish(session, "failed", "The avatar keeps failing.")

    def _finish(self, session: str, why: str, reason: str) -> None:
        """Free the session's place now; its process ends in a task of its own."""
        keeper = self._keepers.pop(session, None)
        entry = self.registry.find(session)
        patient = entry is not None and entry.recorded and not self._stopping
        self.registry.remove(session)
        self.capacity.forget(session)
        if keeper is None:
            return
        future = self._started.get(session)
        if future is not None and not future.done():
            future.set_exception(_StartFailed(reason))
        self._avatars.lost(session)
        self.metrics.sessions_ended.labels(why).inc()
        log.info("session ended: %s", reason, extra={"session": session})
        task = asyncio.create_task(self._end_process(session, keeper, reason, patient))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _end_process(self, session: str, keeper: Keeper, reason: str, patient: bool) -> None:
        self._leaving.add(keeper)
        try:
            await self.viewers.tell(session, StopAvatar(reason=reason, final=not self._stopping))
            # One that is not ready yet does not read messages: it has no goodbye to say either.
            ready = keeper.state is KeeperState.READY
            grace_s = RECORDED_GRACE_S if patient else STOP_GRACE_S
            await keeper.stop(grace_s if ready else 0.0)
        finally:
            self._leaving.discard(keeper)
            self.metrics.forget_session(session)

    def _follow_load(self) -> None:
        """Take an overload level, or give one back; everybody is told."""
        if self.capacity.follow(self.metrics):
            for session in self._keepers:
                self._tell_overload(session)

    def _tell_overload(self, session: str) -> None:
        task = asyncio.create_task(self.viewers.tell(session, self.capacity.overload_message()))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _tick(self) -> None:
        ask_at = 0.0
        while True:
            for session in self.registry.idle():
                self._finish(session, "idle", "Nobody was watching.")
            await self._keep_lifetimes()
            if self._clock.now() >= ask_at:
                ask_at = self._clock.now() + ASK_INFERENCE_EVERY_S
                self._follow_load()
                await self.models.ask()
            for state, count in self.registry.counts().items():
                self.metrics.sessions.labels(state).set(count)
            self.metrics.viewers.set(self.registry.viewer_total())
            await asyncio.sleep(TICK_S)

    async def _keep_lifetimes(self) -> None:
        for session, seconds_left in self.lifetimes.notices():
            await self.viewers.tell(session, TellEnding(seconds_left=seconds_left))
        for ending in self.lifetimes.endings():
            self._finish(ending.session, ending.why, ending.reason)
        if self.lifetimes.drained and self.on_drained is not None and not self._ending:
            log.info("drained: the last session has ended")
            told, self.on_drained = self.on_drained, None
            told()
        if self.readiness().ready:
            for avatar in self.lifetimes.missing():
                task = asyncio.create_task(self._pin(avatar), name=f"always-on-{avatar}")
                self._pinning.add(task)
                task.add_done_callback(self._pinning.discard)

    async def _pin(self, avatar: str) -> None:
        try:
            await self.create(avatar, pinned=True)
            self.lifetimes.started(avatar)
        except ProblemError as error:
            log.error("the avatar %s, which is to be always on: %s", avatar, error.detail)


class _StartFailed(Exception):
    """The avatar did not become ready; the message is a sentence."""


def _new_id() -> str:
    """A session's id is what lets one watch it, so that it must not be guessable (80 bits)."""
    return secrets.token_hex(10)
