"""The avatar process's end of the connection to the inference process.

Jobs are given a handler and end in exactly one way: with their result (`Transcript`, `EndOfTurn`,
`ReplyEnd`), with `JobFailed`, with `JobLost` where inference went away, or by being cancelled.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec
import zmq
import zmq.asyncio

from avatar_server.avatars import AvatarSpec
from avatar_server.clock import Clock, MonotonicClock
from avatar_server.protocol import messages
from avatar_server.protocol.messages import (
    AskInferenceStatus,
    Buffered,
    Cancel,
    CheckEndOfTurn,
    CloseSession,
    Commit,
    EndOfTurn,
    FacesOpened,
    FacesRefused,
    InferenceStatus,
    JobFailed,
    OpenFaces,
    OpenSession,
    Outlook,
    ReplyAudio,
    ReplyEnd,
    Respond,
    Say,
    SessionOpened,
    Transcribe,
    Transcript,
)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class JobLost:
    """Inference went away with the job; the same job may be asked of it once it is back."""

    job: str
    message: str


Job = Transcribe | CheckEndOfTurn | Respond | Say
JobEvent = Transcript | EndOfTurn | Outlook | ReplyAudio | ReplyEnd | JobFailed | JobLost
Handler = Callable[[JobEvent], None]


class Inference(Protocol):
    """What a conversation needs of inference. All calls and callbacks are on one event loop."""

    on_available: Callable[[bool], None] | None
    """Told when jobs can be taken, and when they no longer can."""

    @property
    def available(self) -> bool:
        """Whether jobs can be taken now."""
        ...

    def submit(self, job: Job, handler: Handler) -> None:
        """Begin `job`. The handler is called later, never from within this call."""
        ...

    def cancel(self, job: str) -> None:
        """End a job; its handler is not called again. Unknown jobs are ignored."""
        ...

    def commit(self, job: str) -> None:
        """The turn that `job` answers is over. Unknown jobs are ignored."""
        ...

    def buffered(self, job: str, seconds: float) -> None:
        """Tell how much of the job's speech waits to be played."""
        ...


class InferenceClient:
    """`Inference` over ZeroMQ. `run` must be running for anything to arrive.

    The session is made known on every connection and to every new inference process. That one is
    gone is noticed by its closed connection at once, and by its silence after `silence_s`.
    """

    def __init__(
        self,
        context: zmq.asyncio.Context,
        endpoint: str,
        session: str,
        spec: AvatarSpec,
        clock: Clock | None = None,
        *,
        interval_s: float = 1.0,
        silence_s: float = 8.0,
        keep_alive_s: float = 30.0,
        max_jobs: int = 64,
    ) -> None:
        """`interval_s`: how often its status is asked. `silence_s`: a busy inference process on a
        loaded machine may be this late to answer; longer is a hang. `keep_alive_s`: how often an
        idle session is made known again, so that it is not forgotten. `max_jobs`: the most at once.
        """
        self.on_available: Callable[[bool], None] | None = None
        self._clock = clock or MonotonicClock()
        self._session = session
        self._open = OpenSession(
            session=session,
            avatar=spec.name,
            persona=spec.persona,
            facts=spec.facts,
            voice=spec.voice.name,
            voice_fallbacks=spec.voice.fallbacks,
            pitch=spec.voice.pitch,
            speed=spec.voice.speed,
            language=spec.language,
            routes=_routes(spec),
        )
        self._interval_s, self._silence_s, self._max_jobs = interval_s, silence_s, max_jobs
        self._keep_alive_s = keep_alive_s
        self._open_faces: OpenFaces | None = None
        self._on_faces: Callable[[FacesOpened | FacesRefused | None], None] = lambda _: None
        self._jobs: dict[str, Handler] = {}
        self._available = False
        self._pid: int | None = None
        self._opening_since: float | None = None
        self._opened_at = 0.0
        self._last_heard = self._clock.now()
        self._socket: zmq.asyncio.Socket = context.socket(zmq.DEALER)
        self._socket.setsockopt(zmq.IDENTITY, session.encode())
        # Jobs for a process that is gone must fail now, not be delivered to its successor.
        self._socket.setsockopt(zmq.IMMEDIATE, 1)
        self._socket.setsockopt(zmq.SNDHWM, 256)
        self._socket.setsockopt(zmq.LINGER, 200)
        self._socket.setsockopt(zmq.RECONNECT_IVL, 100)
        self._socket.setsockopt(zmq.RECONNECT_IVL_MAX, 1_000)
        self._monitor: zmq.asyncio.Socket = self._socket.get_monitor_socket(
            zmq.EVENT_DISCONNECTED | zmq.EVENT_HANDSHAKE_SUCCEEDED
        )
        self._socket.connect(endpoint)
        self._closed = False

    @property
    def available(self) -> bool:
        """Whether the session is known to a running inference process."""
        return self._available

    @property
    def jobs(self) -> int:
        """How many jobs are running."""
        return len(self._jobs)

    def submit(self, job: Job, handler: Handler) -> None:
        """See `Inference.submit`. Without inference the job is lost at once."""
        if len(self._jobs) >= self._max_jobs:
            self._later(handler, JobFailed(job=job.job, code="overloaded", message="too many jobs"))
            return
        if not self._available or not self._send(job):
            self._later(handler, JobLost(job.job, "speech and language are not available"))
            return
        self._jobs[job.job] = handler

    def cancel(self, job: str) -> None:
        """See `Inference.cancel`."""
        if self._jobs.pop(job, None) is not None:
            self._send(Cancel(session=self._session, job=job))

    def commit(self, job: str) -> None:
        """See `Inference.commit`."""
        if job in self._jobs:
            self._send(Commit(session=self._session, job=job))

    def buffered(self, job: str, seconds: float) -> None:
        """See `Inference.buffered`."""
        if job in self._jobs:
            self._send(Buffered(session=self._session, job=job, seconds=seconds))

    def renew(self, spec: AvatarSpec) -> None:
        """Persona, facts and routes count from the next turn on; the voice stays."""
        self._open = msgspec.structs.replace(
            self._open, persona=spec.persona, facts=spec.facts, routes=_routes(spec)
        )
        if self._available:
            self._send(self._open)

    def draw_faces(
        self, message: OpenFaces, heard: Callable[[FacesOpened | FacesRefused | None], None]
    ) -> None:
        """Have faces drawn by every inference process there will be; before `run`. `heard` gets
        what each says, and None when it has gone."""
        self._open_faces, self._on_faces = message, heard

    def post(self, message: messages.Message) -> bool:
        """Send what has no answer; False where it cannot be sent now."""
        return self._available and self._send(message)

    async def run(self) -> None:
        """Receive, watch and reconnect until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._receive())
            group.create_task(self._watch_connection())
            group.create_task(self._heartbeat())

    async def close(self) -> None:
        """Take leave of inference and close the connection. Running jobs get no more calls."""
        if self._closed:
            return
        self._closed = True
        self._jobs.clear()
        self._send(CloseSession(session=self._session))
        self._socket.disable_monitor()
        self._monitor.close(linger=0)
        self._socket.close()

    # --- the connection -----------------------------------------------------------------------

    async def _receive(self) -> None:
        while True:
            data = await self._socket.recv()
            self._last_heard = self._clock.now()
            try:
                message = messages.decode(data)
            except messages.ProtocolError as error:
                log.warning("dropped a message of inference: %s", error)
                continue
            self._handle(message)

    async def _watch_connection(self) -> None:
        while True:
            frames = await self._monitor.recv_multipart()
            event = int.from_bytes(frames[0][:2], "little")
            if event == zmq.EVENT_DISCONNECTED:
                self._lose("the inference process ended")
            elif event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                self._last_heard = self._clock.now()
                self._send(AskInferenceStatus())

    async def _heartbeat(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            if self._available and self._clock.now() - self._last_heard > self._silence_s:
                self._lose(f"inference was silent for {self._silence_s:.0f} s")
            self._send(AskInferenceStatus())
            if self._available and self._clock.now() - self._opened_at > self._keep_alive_s:
                self._opened_at = self._clock.now()
                self._send(self._open)

    def _handle(self, message: messages.AnyMessage) -> None:
        if isinstance(message, InferenceStatus):
            self._on_status(message)
        elif isinstance(message, SessionOpened):
            self._opening_since, self._opened_at = None, self._clock.now()
            self._set_available(True)
        elif isinstance(message, FacesOpened | FacesRefused):
            self._on_faces(message)
        elif isinstance(message, ReplyAudio | Outlook):
            if handler := self._jobs.get(message.job):
                handler(message)
        elif isinstance(message, JobFailed):
            self._on_failed(message)
        elif isinstance(message, Transcript | EndOfTurn | ReplyEnd):
            if handler := self._jobs.pop(message.job, None):
                handler(message)
        else:
            log.warning("inference sent an unexpected %s", type(message).__name__)

    def _on_status(self, status: InferenceStatus) -> None:
        if self._pid is not None and status.pid != self._pid:
            self._lose("the inference process was replaced")
        self._pid = status.pid
        if not status.ready:
            return
        now = self._clock.now()
        # Opening loads a voice, which takes seconds; asked again where the answer went missing.
        waited = self._opening_since is not None and now - self._opening_since > self._silence_s
        if not self._available and (self._opening_since is None or waited):
            self._opening_since = now
            self._send(self._open)

    def _on_failed(self, failure: JobFailed) -> None:
        handler = self._jobs.pop(failure.job, None)
        if failure.code != "unknown_session":
            if handler:
                handler(failure)
            return
        if handler:
            handler(JobLost(failure.job, failure.message))
        self._lose("inference does not know the session")
        self._send(AskInferenceStatus())

    def _lose(self, reason: str) -> None:
        self._opening_since = None
        jobs, self._jobs = self._jobs, {}
        if self._available:
            log.warning("inference is gone (%s), %d jobs with it", reason, len(jobs))
        self._set_available(False)
        for job, handler in jobs.items():
            handler(JobLost(job, reason))

    def _set_available(self, available: bool) -> None:
        if available == self._available:
            return
        self._available = available
        if self._open_faces is not None:
            if available:
                self._send(self._open_faces)
            else:
                self._on_faces(None)
        if self.on_available:
            self.on_available(available)

    def _send(self, message: messages.Message) -> bool:
        try:
            sent = asyncio.ensure_future(self._socket.send(messages.encode(message), zmq.DONTWAIT))
        except zmq.ZMQError:
            return False
        # With DONTWAIT the future is done when it is returned: sent, or refused for want of room.
        return sent.done() and sent.exception() is None

    def _later(self, handler: Handler, event: JobEvent) -> None:
        asyncio.get_running_loop().call_soon(handler, event)


def _routes(spec: AvatarSpec) -> list[dict[str, Any]]:
    return [route.model_dump(mode="json", exclude_none=True) for route in spec.routes]
