"""What the inference process does with each message: sessions, jobs, their results."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable, Coroutine
from dataclasses import asdict
from typing import Any

import numpy as np

from avatar_server.clock import Clock
from avatar_server.config import Settings
from avatar_server.inference.budget import TurnBudget
from avatar_server.inference.faces import FaceHost
from avatar_server.inference.host import host_workers, llm_device
from avatar_server.inference.llm.engine import EngineError
from avatar_server.inference.llm.tools import ToolCaller
from avatar_server.inference.loading import Models
from avatar_server.inference.memory import MemoryFigure
from avatar_server.inference.pressing import Pressing
from avatar_server.inference.replies import ReplyMaker, ReplyTools
from avatar_server.inference.resources import rss_bytes
from avatar_server.inference.sessions import Session, build_session
from avatar_server.inference.tally import JobTally
from avatar_server.inference.text.clauses import ClauseCutter
from avatar_server.inference.text.speakable import speakable
from avatar_server.inference.tts import TtsError
from avatar_server.inference.tts.kept import KeptSpeech
from avatar_server.inference.waits import Waits
from avatar_server.inference.workers import OverloadedError
from avatar_server.observe.logging import log_context
from avatar_server.protocol.costs import StageCosts
from avatar_server.protocol.messages import (
    AskInferenceStatus,
    Buffered,
    Cancel,
    CheckEndOfTurn,
    CloseSession,
    Commit,
    DrawFace,
    EndOfTurn,
    InferenceStatus,
    JobFailed,
    Message,
    ModelMemory,
    OpenFaces,
    OpenSession,
    Respond,
    Say,
    SessionOpened,
    ToInference,
    Transcribe,
    Transcript,
)

log = logging.getLogger(__name__)

Send = Callable[[bytes, Message], None]
"""Queues a message to the peer with this identity; never blocks."""

SPEECH_RATE_HZ = 16_000
JOBS_PER_SESSION = 16
"""A turn needs three at a time; more means that a peer does not read its answers."""
SESSION_IDLE_S = 600.0
"""An avatar that said nothing for so long is taken for dead. One that lives opens again when it
is told that its session is unknown."""
PARTIAL_TIMEOUT_S = 2.0
"""A partial transcript that waited longer is about words already superseded."""
JOB_TIMEOUT_S = 20.0
"""A result that waited longer in a queue comes too late for any conversation."""


class InferenceService:
    """Answers messages with the models given to `start`. All methods run on one event loop."""

    def __init__(self, settings: Settings, clock: Clock, send: Send) -> None:
        self._settings = settings
        self._clock = clock
        self._send = send
        self.workers = self._workers = host_workers(settings, clock)
        self.faces = FaceHost(settings.faces, self.workers, clock)
        self._caller = ToolCaller()
        self._sessions: dict[str, Session] = {}
        self._peers: set[bytes] = set()
        self._models: Models | None = None
        self._tools: ReplyTools | None = None
        self._ready = asyncio.Event()
        self._tally = JobTally()
        self._sweeper = asyncio.create_task(self._sweep(), name="sweep-sessions")
        self._waits = Waits(clock)
        self._pressing = Pressing(self._hold_prefill)
        self.phase = "starting"
        self.costs: StageCosts | None = None
        """What the stages cost, where that was measured."""

    def start(self, models: Models) -> None:
        """The models are loaded; all who asked are told."""
        self._models = models
        self._tools = ReplyTools(
            clock=self._clock,
            settings=self._settings.llm,
            llm=models.llm,
            synthesizer=models.synthesizer,
            workers=self._workers,
            llm_device=llm_device(self._settings),
            cutter=ClauseCutter,
            speakable=speakable,
            kept=KeptSpeech(self._settings.tts.kept_mb << 20),
        )
        self.phase = "ready"
        self._ready.set()
        self.tell_all()

    def tell_all(self) -> None:
        """Send the status to everybody who asked for it before."""
        for peer in self._peers:
            self._send(peer, self.status())

    def handle(self, peer: bytes, message: ToInference) -> None:
        """Act on a message; results are sent later. Never raises for what a peer sent."""
        match message:
            case AskInferenceStatus():
                self._peers.add(peer)
                self._send(peer, self.status())
            case OpenSession():
                self._open(peer, message)
            case CloseSession():
                self._forget(message.session)
            case DrawFace():
                self.faces.draw(message)
            case OpenFaces():
                if self._known(peer, message.session):
                    self.faces.begin(message, lambda reply: self._send(peer, reply))
            case Cancel():
                if session := self._known(peer, message.session):
                    self._cancel(session, message.job)
            case Commit():
                session = self._known(peer, message.session)
                if session and (committed := session.uncommitted.get(message.job)):
                    committed.set()
            case Buffered():
                if self._known(peer, message.session):
                    stream = f"{message.session}/{message.job}"
                    self._workers["tts"].set_buffered(stream, message.seconds)
            case Transcribe():
                self._begin(peer, message, self._transcribe)
            case CheckEndOfTurn():
                self._begin(peer, message, self._check_end_of_turn)
            case Respond():
                self._begin(peer, message, self._respond)
                session = self._known(peer, message.session)
                if session and message.speculative and message.job in session.jobs:
                    # Here, since `Commit` may come before the job has begun to run.
                    session.uncommitted.setdefault(message.job, asyncio.Event())
            case Say():
                self._begin(peer, message, self._say)

    def peer_gone(self, peer: bytes) -> None:
        """Messages to this peer cannot be delivered any more."""
        self._peers.discard(peer)
        for name in [n for n, s in self._sessions.items() if s.peer == peer]:
            log.info("the avatar has gone; its session is forgotten", extra={"session": name})
            self._forget(name)

    def status(self) -> InferenceStatus:
        """For the gateway, and for metrics."""
        models = self._models
        kept = self._tools.kept.found if self._tools else 0
        return InferenceStatus(
            ready=models is not None,
            pid=os.getpid(),
            phase=self.phase,
            models=models.names if models else {},
            sessions=len(self._sessions),
            queue_depth=self._workers.depths(),
            running=self._workers.running(),
            busy={e: round(share, 3) for e, share in self._workers.utilisation().items()},
            deadlines_missed=self._workers.missed(),
            jobs_done={**self._tally.done, "kept_speech": kept} if kept else dict(self._tally.done),
            jobs_failed=self._tally.failed,
            stage_ms_p50=self._tally.medians_ms(),
            rtf_tts=models.rtf_tts if models else 0.0,
            wait_ms=round(self._waits.percentile_ms(), 1),
            costs=self.costs,
            llm=asdict(models.llm.metrics()) if models else {},
            memory={
                part: ModelMemory(figure.device, figure.weights, figure.cache, figure.working)
                for part, figure in self._memory().items()
            },
            faces=asdict(self.faces.counts),
            cpu_s=time.process_time(),
            rss_bytes=rss_bytes(),
        )

    def _memory(self) -> dict[str, MemoryFigure]:
        faces = self.faces.networks.memory()
        known = dict(self._models.memory) if self._models else {}
        return known if faces is None else {**known, "faces": faces}

    async def close(self) -> None:
        """End every job and thread."""
        self._sweeper.cancel()
        for name in list(self._sessions):
            self._forget(name)
        self.faces.close()
        self._workers.close(0.0)
        await self._caller.close()
        if self._models is not None:
            await self._models.llm.close()

    # --- sessions ---------------------------------------------------------------------------

    def _open(self, peer: bytes, message: OpenSession) -> None:
        old = self._sessions.get(message.session)
        if old is not None and old.opened == message and old.peer == peer:
            old.heard_at = self._clock.now()
            if old.ready.is_set() and old.voice is not None:
                self._send(peer, SessionOpened(session=message.session, voice=old.voice.name))
            return
        if old is not None and old.peer == peer and old.ready.is_set():
            self._renew(old, message)
            return
        self._forget(message.session)
        session = Session(message, peer, self._clock.now())
        self._sessions[message.session] = session
        session.opening = asyncio.create_task(
            self._prepare(session), name=f"open-{message.session}"
        )

    def _renew(self, session: Session, message: OpenSession) -> None:
        """The operator changed the avatar: what runs goes on as it was begun, the next turn has
        the new words."""
        if session.opening is not None:
            session.opening.cancel()
        session.opened, session.heard_at = message, self._clock.now()

        async def prepare() -> None:
            try:
                await self._prepare(session)
            except ValueError as error:
                log.error(
                    "the avatar stays as it was: %s", error, extra={"session": message.session}
                )

        session.opening = asyncio.create_task(prepare(), name=f"renew-{message.session}")

    async def _prepare(self, session: Session) -> None:
        await self._ready.wait()
        assert self._models is not None
        models, opened = self._models, session.opened
        session.voice, session.planner = await build_session(
            opened, models, self._settings, self._workers, self._caller, self._clock
        )
        session.ready.set()
        self._send(session.peer, SessionOpened(session=opened.session, voice=session.voice.name))
        await models.llm.prefill(opened.session, session.planner.responder.prefix())

    def _known(self, peer: bytes, name: str) -> Session | None:
        session = self._sessions.get(name)
        if session is not None:
            session.heard_at = self._clock.now()
            session.peer = peer
        return session

    def _forget(self, name: str) -> None:
        if (session := self._sessions.pop(name, None)) is None:
            return
        if session.opening is not None:
            session.opening.cancel()
        for task in session.jobs.values():
            task.cancel()
        self.faces.close_session(name)
        self._workers.forget_session(name)
        if self._models is not None:
            self._models.llm.forget(name)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SESSION_IDLE_S / 20)
            now = self._clock.now()
            for name, session in list(self._sessions.items()):
                if not session.jobs and now - session.heard_at > SESSION_IDLE_S:
                    log.info("an idle session is forgotten", extra={"session": name})
                    self._forget(name)

    # --- jobs -------------------------------------------------------------------------------

    def _begin(
        self,
        peer: bytes,
        message: Transcribe | CheckEndOfTurn | Respond | Say,
        work: Callable[[Session, Any], Coroutine[Any, Any, None]],
    ) -> None:
        session = self._known(peer, message.session)
        if session is None:
            self._fail(peer, message.job, "unknown_session", "the session must be opened first")
        elif message.job in session.jobs:
            self._fail(peer, message.job, "bad_request", f"job {message.job} is running already")
        elif len(session.jobs) >= JOBS_PER_SESSION:
            text = f"the session has {JOBS_PER_SESSION} jobs running already"
            self._fail(peer, message.job, "overloaded", text)
        else:
            task = asyncio.create_task(
                self._run(session, message, work),
                name=f"{type(message).__name__}-{message.session}-{message.job}",
            )
            session.jobs[message.job] = task

    async def _run(
        self,
        session: Session,
        message: Any,
        work: Callable[[Session, Any], Coroutine[Any, Any, None]],
    ) -> None:
        job: str = message.job
        with log_context(session=session.opened.session):
            try:
                await work(session, message)
            except OverloadedError as error:
                self._waits.add(JOB_TIMEOUT_S)
                self._fail(session.peer, job, "overloaded", str(error))
            except ValueError as error:
                self._fail(session.peer, job, "bad_request", str(error))
            except (EngineError, TtsError) as error:
                self._fail(session.peer, job, "engine", str(error))
            except Exception as error:
                log.exception("job %s failed", job)
                self._fail(session.peer, job, "engine", f"{type(error).__name__}: {error}")
            finally:
                if session.jobs.get(job) is asyncio.current_task():
                    del session.jobs[job]
                    session.uncommitted.pop(job, None)

    def _cancel(self, session: Session, job: str) -> None:
        # Taken out at once: nothing is sent for it from here on, and its id may come again.
        session.uncommitted.pop(job, None)
        if (task := session.jobs.pop(job, None)) is not None:
            task.cancel()

    def _fail(self, peer: bytes, job: str, code: Any, message: str) -> None:
        self._tally.failed += 1
        log.warning("job %s: %s", job, message)
        self._send(peer, JobFailed(job=job, code=code, message=message))

    async def _loaded(self, session: Session) -> tuple[Models, ReplyTools]:
        await session.ready.wait()
        assert self._models is not None
        assert self._tools is not None
        return self._models, self._tools

    async def _transcribe(self, session: Session, message: Transcribe) -> None:
        pcm = _samples(message.pcm)
        models, _ = await self._loaded(session)
        partial = message.purpose == "partial"
        with contextlib.nullcontext() if partial else self._pressing.work():
            result, timing = await self._workers["stt"].call(
                message.session,
                lambda: models.recogniser.transcribe(pcm, message.language),
                deadline=self._deadline("stt", message.budget_s),
                size=len(pcm) / SPEECH_RATE_HZ,
                best_effort=partial,
                timeout_s=PARTIAL_TIMEOUT_S if partial else JOB_TIMEOUT_S,
            )
        self._tally.count("stt", {"stt": timing.ran * 1e3})
        if not partial:
            self._waits.add(timing.queued)
        self._send(
            session.peer,
            Transcript(
                job=message.job,
                text=result.text,
                language=result.language,
                no_speech_probability=result.no_speech_probability,
                timing=timing,
            ),
        )
        if partial and session.planner is not None:
            await session.planner.foresee(result.text)

    async def _check_end_of_turn(self, session: Session, message: CheckEndOfTurn) -> None:
        pcm = _samples(message.pcm)
        models, _ = await self._loaded(session)
        with self._pressing.work():
            probability, timing = await self._workers["endpoint"].call(
                message.session,
                lambda: models.end_of_turn.probability(pcm),
                deadline=self._deadline("stt", message.budget_s),
                timeout_s=JOB_TIMEOUT_S,
            )
        self._tally.count("endpoint", {"endpoint": timing.ran * 1e3})
        self._waits.add(timing.queued)
        self._send(session.peer, EndOfTurn(job=message.job, probability=probability, timing=timing))

    async def _respond(self, session: Session, message: Respond) -> None:
        models, tools = await self._loaded(session)
        assert session.planner is not None
        maker = self._maker(session, message.job, tools, self._budget(message.budget_s))
        committed = session.uncommitted.get(message.job)
        if committed is None:
            committed = asyncio.Event()
            committed.set()
        chat = await maker.respond(
            session.planner, message.text, message.history, committed, brief=message.brief
        )
        await models.llm.prefill(message.session, chat)

    async def _say(self, session: Session, message: Say) -> None:
        _, tools = await self._loaded(session)
        maker = self._maker(session, message.job, tools, self._budget(None))
        await maker.say(message.text, ahead=message.ahead)

    def _hold_prefill(self, held: bool) -> None:
        if self._models is not None:
            self._models.llm.hold_prefill(held)

    def _budget(self, left_s: float | None) -> TurnBudget:
        """Of a turn that has `left_s` left of its budget; where that is not known, all of it."""
        whole_s = self._settings.turns.budget_ms / 1e3
        return TurnBudget(self._clock.now() + (whole_s if left_s is None else left_s))

    def _deadline(self, stage: str, left_s: float | None) -> float:
        return self._budget(left_s).deadline(stage, self._workers.costs)

    def _maker(
        self, session: Session, job: str, tools: ReplyTools, budget: TurnBudget
    ) -> ReplyMaker:
        assert session.voice is not None

        def send(message: Message) -> None:
            if (stages := getattr(message, "stages_ms", None)) is not None:
                self._tally.count("reply", stages)
                self._waits.add(stages.get("queued", 0.0) / 1e3)
            self._send(session.peer, message)

        return ReplyMaker(tools, session.opened.session, job, session.voice, budget, send)


def _samples(pcm: bytes) -> np.ndarray[Any, np.dtype[np.int16]]:
    if len(pcm) % 2:
        raise ValueError(f"16-bit samples must be an even number of bytes, got {len(pcm)}")
    return np.frombuffer(pcm, np.dtype("<i2"))
