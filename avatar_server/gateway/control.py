"""The gateway's heart: admits sessions and viewers, and keeps their processes running."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import resource
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
from avatar_server.gateway.link import AvatarLink, Endpoints, InferenceLink, Unreachable
from avatar_server.gateway.problems import ProblemError
from avatar_server.gateway.registry import (
    NotRunning,
    Registry,
    RegistryError,
    Session,
    UnknownSession,
    UnknownViewer,
)
from avatar_server.gateway.restarts import RestartPolicy
from avatar_server.gateway.spares import Spares
from avatar_server.gateway.supervisor import Keeper, KeeperState, Patience
from avatar_server.observe.metrics import Metrics
from avatar_server.observe.trace import TraceRing
from avatar_server.processes import Bootstrap, plain_settings
from avatar_server.protocol.messages import (
    AddCandidate,
    Answer,
    AvatarReady,
    AvatarStatus,
    InferenceStatus,
    Leave,
    Message,
    Problem,
    StopAvatar,
    TellEnding,
    TurnTrace,
)

TICK_S = 0.25
PICTURE_TIMEOUT_S = 3.0
RESERVED_S = 15.0
"""For somebody who was sent to a session that is always on."""
ASK_INFERENCE_EVERY_S = 1.0
# Ctrl-C must end everything within 3 s: a second to go by itself, half of one after SIGTERM.
STOP_GRACE_S = 1.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether new sessions are taken; `reason` is a sentence where they are not."""

    ready: bool
    reason: str
    phase: str


@dataclass(frozen=True, slots=True)
class ProcessUse:
    """What a process has used: CPU seconds since its start, and resident bytes (0: not known)."""

    role: str
    session: str
    pid: int
    cpu_s: float
    rss_bytes: int


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
        self.metrics = metrics or Metrics()
        self.traces = TraceRing(settings.observe.trace_turns)
        self.inference: InferenceStatus | None = None
        self._commands = commands or ChildCommands()
        self._clock = clock or MonotonicClock()
        self.capacity = capacity or CapacityKeeper(settings, self._clock, self._commands.frames)
        self.registry = Registry(settings.sessions, self._clock, self.capacity.places)
        self._child_settings = settings
        self.lifetimes = Lifetimes(settings.sessions, self.registry, self._clock)
        self.on_drained: Callable[[], None] | None = None
        """Called once everything has ended after a drain."""
        self._pinning: set[asyncio.Task[None]] = set()
        self._keepers: dict[str, Keeper] = {}
        self._spares = Spares(self._commands.avatar, "avatar", settings.sessions.warm_spares)
        self._started: dict[str, asyncio.Future[None]] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._leaving: set[Keeper] = set()
        self._stopping = False
        self._inference_ready = asyncio.Event()

    # --- life ---------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the sockets and begin to measure and to load; returns without waiting for it."""
        self._endpoints = Endpoints()
        self._context = zmq.asyncio.Context()
        self._avatars = AvatarLink(self._context, self._endpoints.gateway, self._on_avatar)
        self._models = InferenceLink(
            self._context, self._endpoints.inference, self._on_inference_status
        )
        limits = self.settings.inference
        self._inference = Keeper(
            "inference",
            self._spawn_inference,
            RestartPolicy(limits.restart_limit_per_minute, self._clock),
            self._clock,
            Patience(start_s=limits.start_timeout_s, silence_s=limits.hang_timeout_s),
            on_lost=self._inference_lost,
        )
        self._beginning = asyncio.create_task(self._begin(), name="begin")
        self._ticker = asyncio.create_task(self._tick(), name="gateway-tick")

    async def _begin(self) -> None:
        """Frames first: what they cost is measured before anything else uses the machine."""
        try:
            self._child_settings = await self.capacity.prepare()
        except Exception:
            # The setting alone then says how many sessions there may be.
            log.exception("the machine could not be measured")
        self._inference.start()
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
            self._inference.stop(grace_s=0.0),
            self._spares.close(),
            *self._ending,
            return_exceptions=True,
        )
        await self._avatars.close()
        await self._models.close()
        self._context.term()
        self._endpoints.remove()

    def kill_now(self) -> None:
        """SIGKILL every child, without waiting: for a person who will not wait."""
        keepers = (self._inference, *self._keepers.values(), *self._leaving)
        for pid in (*(keeper.pid for keeper in keepers), *self._spares.pids):
            if pid is not None:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(pid, signal.SIGKILL)
        self._endpoints.remove()

    async def wait_until_ready(self, timeout_s: float) -> bool:
        """Whether inference became ready within `timeout_s`."""
        try:
            await asyncio.wait_for(self._inference_ready.wait(), timeout_s)
        except TimeoutError:
            return False
        return True

    # --- what the routes ask ------------------------------------------------------------------

    def readiness(self) -> Readiness:
        """Whether new sessions are taken, apart from how many run."""
        phase = self.inference.phase if self.inference else self.capacity.phase or "starting"
        if self._stopping:
            return Readiness(False, "The server is shutting down.", "stopping")
        if self.lifetimes.draining:
            return Readiness(
                False, "The server is being replaced and takes no new conversations.", "draining"
            )
        if self.inference is not None and self.inference.ready:
            return Readiness(True, "", phase or "ready")
        if self._inference.state is KeeperState.WAITING:
            return Readiness(
                False,
                f"The models are being started again: inference {self._inference.reason}. "
                "The server's log says more.",
                "restarting",
            )
        return Readiness(False, f"The server is getting ready: {phase}.", phase)

    def refusal(self) -> Refusal | None:
        """Why a new session would not be started now, apart from readiness; None: it would be."""
        return self.capacity.refusal(len(self.registry) - len(self.registry.yielding()))

    async def create(self, avatar: str, *, pinned: bool = False) -> Session:
        """Start a session and wait until its avatar takes viewers. Raises `ProblemError`.

        Where the avatar has a session that is always on and free, that one is given; `pinned`
        starts such a one.
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
        if not pinned and (unused := self.registry.unused(avatar)) is not None:
            unused.reserved_until = self._clock.now() + RESERVED_S
            return unused
        # From here to `add` nothing is awaited: of two requests for the last place one is served.
        if (empty := self.capacity.admit(self.registry, self.metrics)) is not None:
            self._finish(empty, "gave-way", "Everybody had left, and somebody else was waiting.")
        session = self.registry.add(_new_id(), avatar, pinned=pinned)
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

    def session(self, session: str) -> Session:
        """Raises `ProblemError` 404."""
        try:
            return self.registry.get(session)
        except UnknownSession as error:
            raise ProblemError(404, "unknown-session", str(error)) from error

    def end(self, session: str) -> None:
        """End a session because an operator said so. Raises `ProblemError` 404."""
        self.session(session)
        self._finish(session, "deleted", "The session was ended by its operator.")

    async def join(self, session: str, sdp: str, can_speak: bool) -> tuple[str, str]:
        """(viewer id, SDP answer). Raises `ProblemError`."""
        try:
            return await self._join(session, sdp, can_speak)
        except ProblemError as error:
            self.metrics.joins_failed.labels(str(error.status_code)).inc()
            raise

    async def rejoin(self, session: str, viewer: str, sdp: str, can_speak: bool) -> str:
        """The SDP answer for a viewer that connects anew. Raises `ProblemError`."""
        try:
            self.registry.begin_return(session, viewer)
            return await self._negotiate(session, viewer, sdp, can_speak)
        except RegistryError as error:
            raise _refused(error) from error
        except ProblemError as error:
            self.metrics.joins_failed.labels(str(error.status_code)).inc()
            raise

    async def _join(self, session: str, sdp: str, can_speak: bool) -> tuple[str, str]:
        viewer = secrets.token_hex(8)
        if not self.lifetimes.may_join(self.session(session)):
            raise ProblemError(
                503, "draining", "The server is being replaced. Try again soon.", retry_after_s=10
            )
        try:
            self.registry.begin_join(session, viewer)
        except RegistryError as error:
            raise _refused(error) from error
        answer = await self._negotiate(session, viewer, sdp, can_speak)
        self.metrics.viewers_joined.inc()
        return viewer, answer

    async def _negotiate(self, session: str, viewer: str, sdp: str, can_speak: bool) -> str:
        """The avatar's answer for a viewer whose place is held; frees the place where it fails."""
        joined = False
        try:
            answer = await self._avatars.offer(
                session, viewer, sdp, can_speak, self.settings.sessions.answer_timeout_s
            )
            if isinstance(answer, Problem):
                raise _from_avatar(answer)
            joined = self.registry.joined(session, viewer)
        except Unreachable as error:
            raise ProblemError(
                503, "restarting", f"{_sentence(error)} Try again in a second.", retry_after_s=1
            ) from error
        finally:
            if not joined:
                self.registry.leave(session, viewer)
                await self._tell(session, Leave(viewer=viewer))
        if not joined:
            raise ProblemError(
                503, "restarting", "The avatar is restarting. Try again.", retry_after_s=1
            )
        assert isinstance(answer, Answer)
        return answer.sdp

    async def add_candidate(
        self, session: str, viewer: str, candidate: str, mid: str | None, line: int | None
    ) -> None:
        """Pass a trickled candidate on. Raises `ProblemError`."""
        self.require_viewer(session, viewer)
        message = AddCandidate(
            viewer=viewer, candidate=candidate, sdp_mid=mid, sdp_m_line_index=line
        )
        try:
            await self._avatars.send(session, message)
        except Unreachable as error:
            raise ProblemError(
                503, "restarting", "The avatar is restarting. Join again.", retry_after_s=1
            ) from error

    async def picture(self, session: str) -> bytes:
        """What the session shows now as a JPEG file; empty where nobody watches.

        Raises `ProblemError`.
        """
        self.session(session)
        try:
            return await self._avatars.picture(session, PICTURE_TIMEOUT_S)
        except Unreachable as error:
            raise ProblemError(
                503, "restarting", "The avatar does not answer just now.", retry_after_s=1
            ) from error

    def processes(self) -> list[ProcessUse]:
        """This process and all of its children, as far as they report."""
        used = resource.getrusage(resource.RUSAGE_SELF)
        found = [ProcessUse("gateway", "", os.getpid(), used.ru_utime + used.ru_stime, 0)]
        if self.inference is not None:
            one = self.inference
            found.append(ProcessUse("inference", "", one.pid, one.cpu_s, one.rss_bytes))
        for entry in self.registry.sessions():
            if entry.status is not None and entry.pid is not None:
                status = entry.status
                found.append(
                    ProcessUse("avatar", entry.id, entry.pid, status.cpu_s, status.rss_bytes)
                )
        return found

    async def leave(self, session: str, viewer: str) -> None:
        """A viewer says goodbye. Raises `ProblemError` 404."""
        self.require_viewer(session, viewer)
        self.registry.leave(session, viewer, goodbye=True)
        await self._tell(session, Leave(viewer=viewer))

    def require_viewer(self, session: str, viewer: str) -> None:
        """Raises `ProblemError` 404."""
        try:
            self.registry.require_viewer(session, viewer)
        except RegistryError as error:
            raise _refused(error) from error

    # --- processes ----------------------------------------------------------------------------

    async def _spawn_inference(self) -> Child:
        child = await Child.start(self._commands.inference, "inference")
        child.configure(self._bootstrap("inference"))
        return child

    async def _spawn_avatar(self, session: Session) -> Child:
        child = await self._spares.take()
        child.configure(self._bootstrap("avatar", session.id, session.avatar))
        return child

    def _bootstrap(self, role: str, session: str = "", avatar: str = "") -> Bootstrap:
        settings = plain_settings(self._child_settings)
        # Children log to us, and we write their lines in the configured format.
        settings["observe"]["log_json"] = True
        return Bootstrap(
            role=role,
            settings=settings,
            gateway=self._endpoints.gateway,
            inference=self._endpoints.inference,
            session=session,
            avatar=avatar,
            measure=role == "inference" and self.capacity.wants_stages,
        )

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

    def _avatar_lost(self, session: str, cause: str) -> None:
        self.metrics.restarts.labels("avatar", _cause(cause)).inc()
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

    def _on_inference_status(self, status: InferenceStatus) -> None:
        if status.pid != self._inference.pid:
            return
        self.inference = status
        self.capacity.inference_status(status, len(self.registry))
        self.metrics.inference_status(status)
        if status.ready and self._inference.ready(status.pid):
            self._inference_ready.set()
        self._inference.heard()

    def _inference_lost(self, cause: str) -> None:
        self.inference = None
        self.capacity.inference_lost()
        self._inference_ready.clear()
        self.metrics.inference_ready.set(0)
        self.metrics.restarts.labels("inference", _cause(cause)).inc()

    def _finish(self, session: str, why: str, reason: str) -> None:
        """Free the session's place now; its process ends in a task of its own."""
        keeper = self._keepers.pop(session, None)
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
        task = asyncio.create_task(self._end_process(session, keeper, reason))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _end_process(self, session: str, keeper: Keeper, reason: str) -> None:
        self._leaving.add(keeper)
        try:
            await self._tell(session, StopAvatar(reason=reason, final=not self._stopping))
            # One that is not ready yet does not read messages: it has no goodbye to say either.
            ready = keeper.state is KeeperState.READY
            await keeper.stop(STOP_GRACE_S if ready else 0.0)
        finally:
            self._leaving.discard(keeper)
            self.metrics.forget_session(session)

    async def _tell(self, session: str, message: Message) -> None:
        """Send what needs no answer; a process that is not there has nothing to be told."""
        try:
            await self._avatars.send(session, message)
        except Unreachable:
            return

    def _follow_load(self) -> None:
        """Take an overload level, or give one back; everybody is told."""
        if self.capacity.follow(self.metrics):
            for session in self._keepers:
                self._tell_overload(session)

    def _tell_overload(self, session: str) -> None:
        task = asyncio.create_task(self._tell(session, self.capacity.overload_message()))
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
                await self._models.ask()
            for state, count in self.registry.counts().items():
                self.metrics.sessions.labels(state).set(count)
            self.metrics.viewers.set(self.registry.viewer_total())
            await asyncio.sleep(TICK_S)

    async def _keep_lifetimes(self) -> None:
        for session, seconds_left in self.lifetimes.notices():
            await self._tell(session, TellEnding(seconds_left=seconds_left))
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


def _refused(error: RegistryError) -> ProblemError:
    match error:
        case UnknownSession():
            return ProblemError(404, "unknown-session", str(error))
        case UnknownViewer():
            return ProblemError(404, "unknown-viewer", str(error))
        case NotRunning():
            return ProblemError(503, "restarting", str(error), retry_after_s=1)
        case _:
            return ProblemError(503, "full", str(error), retry_after_s=10)


def _from_avatar(problem: Problem) -> ProblemError:
    status = problem.status if 400 <= problem.status < 600 else 502
    retry = 1 if status == 503 else None
    code = problem.title.lower().replace(" ", "-")
    return ProblemError(status, code, problem.detail, title=problem.title, retry_after_s=retry)


def _sentence(error: Exception) -> str:
    text = str(error)
    return text[:1].upper() + text[1:] + "."


def _cause(text: str) -> str:
    """A label with few values, for a sentence with many."""
    if "signal" in text:
        return "killed"
    if "sign of life" in text or "not ready" in text:
        return "hang"
    return "exit"
