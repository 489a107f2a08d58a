"""One reply on its way: facts, language model, clauses, speech."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import AsyncGenerator, Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from avatar_server.clock import Clock
from avatar_server.config import LlmSettings
from avatar_server.inference.budget import TurnBudget
from avatar_server.inference.early import EarlyReply
from avatar_server.inference.llm.emotion import emotion_of, without_marks
from avatar_server.inference.llm.engine import (
    ChatMessage,
    EngineError,
    LlmEngine,
    LlmRequest,
    TokenCount,
)
from avatar_server.inference.llm.responder import Direct, Generate, Responder
from avatar_server.inference.llm.tidy import is_end
from avatar_server.inference.planning import Call, Planner, Silence
from avatar_server.inference.tts.contract import SAMPLE_RATE_HZ, SpeechPiece, Synthesizer
from avatar_server.inference.tts.kept import KeptSpeech, Spoken
from avatar_server.inference.tts.pitch import synthesize_pitched
from avatar_server.inference.workers import Workers
from avatar_server.protocol.messages import (
    HistoryItem,
    LlmUse,
    Message,
    Outlook,
    ReplyAudio,
    ReplyEnd,
)

log = logging.getLogger(__name__)

CLAUSES_AHEAD = 32
"""Clauses that may wait for their turn to be spoken; a reply is a few sentences long."""


class Cutter(Protocol):
    """Cuts text that comes in pieces into clauses; after `flush` it begins a new text."""

    def feed(self, text: str) -> list[str]: ...

    def flush(self) -> list[str]: ...


@dataclass(frozen=True, slots=True)
class Voice:
    """How a session's avatar speaks."""

    name: str
    speed: float
    language: str
    pitch: float = 1.0


@dataclass(slots=True)
class ReplyTools:
    """What a reply is made with; shared by all replies of a process."""

    clock: Clock
    settings: LlmSettings
    llm: LlmEngine
    synthesizer: Synthesizer
    workers: Workers
    llm_device: str | None
    cutter: Callable[[], Cutter]
    speakable: Callable[[str, str], str]
    kept: KeptSpeech


@dataclass(slots=True)
class _Progress:
    """What a reply has come to so far."""

    received: float
    text: str = ""
    clauses: int = 0
    question: str = ""
    emotion: str = ""
    """That of the clause being spoken; empty: the face stays as it is."""
    named: str = ""
    """An emotion named by words that had nothing to say: it is the next clause's."""
    stages_ms: dict[str, float] = field(default_factory=dict)
    foreseen: tuple[str, int, float] | None = None
    route: str = ""
    used: TokenCount | None = None

    def mark(self, stage: str, seconds: float) -> None:
        self.stages_ms.setdefault(stage, round(seconds * 1e3, 1))


class ReplyMaker:
    """Makes one reply and sends it piece by piece. Cancelling its task stops all of it."""

    def __init__(
        self,
        tools: ReplyTools,
        session: str,
        job: str,
        voice: Voice,
        budget: TurnBudget,
        send: Callable[[Message], None],
    ) -> None:
        self._tools = tools
        self._session = session
        self._job = job
        self._voice = voice
        self._budget = budget
        self._ahead = False
        self._own = False
        self._send = send
        self._stream = f"{session}/{job}"
        self._progress = _Progress(tools.clock.now())

    async def say(self, text: str, *, ahead: bool = False) -> None:
        """Speak `text` as it is; `ahead`: while there is nothing else to do."""
        self._ahead = ahead
        self._own = True
        await self._speak_all(_once(text))
        self._end()

    async def respond(
        self,
        planner: Planner,
        text: str,
        history: list[HistoryItem],
        committed: asyncio.Event,
        *,
        brief: bool = False,
    ) -> list[ChatMessage]:
        """Answer `text`, in one sentence where that has to be made `brief`ly; returns the chat as
        it now stands.

        Until `committed` is set the turn may not be over: nothing is done that cannot be undone.
        """
        progress, responder = self._progress, planner.responder
        progress.question = text
        guess, early = None, None
        if planner.slow:
            guess = await planner.likely(text, history)
            if isinstance(guess, Generate):
                early = EarlyReply(self._generate(responder, guess, text, brief))
        try:
            plan = await planner.plan(text, history, progress.mark, self._due)
            if early is not None and plan != guess:
                await early.drop()
                progress.used = None
            progress.route = planner.route_of(text)
            match plan:
                case Direct():
                    pieces, kind = _once(plan.text), "reply.known"
                    self._own = plan.own
                case Call():
                    pieces, kind = self._call(planner, plan, committed), "reply.called"
                case Generate() if early is not None and plan == guess:
                    pieces, kind = early.words(), "reply.made"
                case Generate():
                    pieces, kind = self._generate(responder, plan, text, brief), "reply.made"
                case Silence():
                    pieces, kind = _nothing(), ""
            if kind:
                self._foresee(kind, len(text))
            await self._speak_all(pieces)
        finally:
            if early is not None:
                await early.drop()
        planner.said(text, history, progress.text)
        self._end()
        said = HistoryItem(role="assistant", text=progress.text)
        return responder.prefix([*history, HistoryItem(role="user", text=text), said])

    def _due(self, stage: str) -> float:
        return self._budget.deadline(stage, self._tools.workers.costs)

    async def _call(
        self, planner: Planner, call: Call, committed: asyncio.Event
    ) -> AsyncGenerator[str, None]:
        await committed.wait()
        began = self._tools.clock.now()
        said = await planner.call(call)
        self._progress.mark("tool", self._tools.clock.now() - began)
        yield said

    def _foresee(self, kind: str, size: int) -> None:
        """Say when the first sound can be expected, as it was with earlier replies of the kind."""
        costs, progress = self._tools.workers.costs, self._progress
        progress.foreseen = (kind, size, self._tools.clock.now())
        if costs.seen(kind):
            expected_s = costs.expected_s(kind, size)
            self._send(Outlook(job=self._job, first_sound_s=round(expected_s, 3)))

    def _sounded(self) -> None:
        """The first sound is there."""
        tools, progress = self._tools, self._progress
        now = tools.clock.now()
        progress.mark("first_audio", now - progress.received)
        if progress.foreseen is not None:
            kind, size, since = progress.foreseen
            tools.workers.observe(kind, size, now - since)
            progress.foreseen = None

    def _end(self) -> None:
        progress = self._progress
        progress.mark("total", self._tools.clock.now() - progress.received)
        self._send(
            ReplyEnd(
                job=self._job,
                text=progress.text,
                stages_ms=progress.stages_ms,
                route=progress.route,
                llm=_use(progress.used),
            )
        )

    async def _generate(
        self, responder: Responder, plan: Generate, text: str, brief: bool
    ) -> AsyncGenerator[str, None]:
        """The model's words, tidied; what is said instead where there are none."""
        tools, progress = self._tools, self._progress
        began = tools.clock.now()
        tidy = responder.tidier(text, plan.max_sentences, brief=brief)
        request = LlmRequest(
            self._session,
            plan.messages,
            max_tokens=plan.max_tokens,
            stop=responder.stop,
            priority=round(self._budget.due * 100),
        )
        progress.used = request.used
        with tools.workers.holding(tools.llm_device):
            async with contextlib.aclosing(tools.llm.stream(request)) as pieces:
                async for piece in pieces:
                    progress.mark("llm_first_token", tools.clock.now() - began)
                    if said := tidy.feed(piece):
                        yield said
                    if tidy.done:
                        break
        if rest := tidy.flush():
            yield rest
        if not tidy.said_anything:
            yield responder.fallback(len(plan.messages))

    async def _speak_all(self, pieces: AsyncGenerator[str, None]) -> None:
        clauses: asyncio.Queue[str | Exception | None] = asyncio.Queue(CLAUSES_AHEAD)
        cutting = asyncio.create_task(self._cut(pieces, clauses), name=f"cut-{self._stream}")
        try:
            while (clause := await clauses.get()) is not None:
                if isinstance(clause, Exception):
                    if self._progress.clauses == 0 or not isinstance(clause, EngineError):
                        raise clause
                    # What was said stands; a half answer is better than an apology on top.
                    log.warning("the reply ends early: %s", clause)
                    break
                await self._speak(clause)
        finally:
            cutting.cancel()
            await asyncio.wait([cutting])
            self._tools.workers["tts"].end_stream(self._stream)

    async def _cut(
        self,
        pieces: AsyncGenerator[str, None],
        clauses: asyncio.Queue[str | Exception | None],
    ) -> None:
        clock, cutter, began = self._tools.clock, self._tools.cutter(), self._tools.clock.now()
        try:
            async with contextlib.aclosing(pieces):
                async for piece in pieces:
                    certain = cutter.feed(piece)
                    if is_end(piece.rsplit(maxsplit=1)[-1]):
                        # The next sentence comes only when it is whole: not to be waited for.
                        certain += cutter.flush()
                    for clause in certain:
                        self._first_clause(clock.now() - began)
                        await clauses.put(clause)
            for clause in cutter.flush():
                self._first_clause(clock.now() - began)
                await clauses.put(clause)
        except Exception as error:
            await clauses.put(error)
        else:
            await clauses.put(None)

    def _first_clause(self, seconds: float) -> None:
        progress = self._progress
        if progress.foreseen is not None and "llm_first_clause" not in progress.stages_ms:
            kind, size, _ = progress.foreseen
            if kind == "reply.made":
                self._tools.workers.observe("llm", size, seconds)
        progress.mark("llm_first_clause", seconds)

    async def _speak(self, clause: str) -> None:
        tools, voice, progress = self._tools, self._voice, self._progress
        shown, named = without_marks(clause.strip())
        named = named or progress.named
        spoken = tools.speakable(shown, voice.language).strip()
        progress.named = "" if spoken else named
        if not spoken:
            return
        asked = progress.question if not progress.clauses else ""
        progress.emotion = named or emotion_of(shown, asked)
        number, progress.clauses = progress.clauses, progress.clauses + 1
        progress.text = f"{progress.text} {shown}".strip()
        key = Spoken(spoken, voice.name, voice.speed, voice.language, voice.pitch)
        if kept := tools.kept.get(key):
            if not self._ahead:
                tools.workers["tts"].add_sound(self._stream, sum(map(_seconds, kept)))
            for count, piece in enumerate(kept):
                self._sound(number, count, piece, shown, 0.0)
            return
        made = list[SpeechPiece]()
        async with contextlib.aclosing(self._made(spoken)) as pieces:
            async for piece, seconds in pieces:
                self._sound(number, len(made), piece, shown, seconds)
                made.append(piece)
        if self._own:
            tools.kept.keep(key, made)

    async def _made(self, spoken: str) -> AsyncGenerator[tuple[SpeechPiece, float], None]:
        """The clause's sound as it is made, each piece with the seconds since it was asked for."""
        tools, voice = self._tools, self._voice
        began = tools.clock.now()

        def make() -> Iterator[SpeechPiece]:
            return synthesize_pitched(
                tools.synthesizer, spoken, voice.name, voice.speed, voice.language, voice.pitch
            )

        running = tools.workers["tts"].start(
            self._session,
            make,
            size=len(spoken),
            deadline=math.inf if self._ahead else self._due("tts"),
            best_effort=self._ahead,
            stream="" if self._ahead else self._stream,
            seconds_of=_seconds,
        )
        async with contextlib.aclosing(running.results()) as results:
            async for piece in results:
                yield piece, tools.clock.now() - began

    def _sound(
        self, clause: int, count: int, piece: SpeechPiece, text: str, seconds: float
    ) -> None:
        """Send the clause's piece number `count`, which took `seconds`."""
        self._progress.mark("tts_first_piece", seconds)
        self._sounded()
        first = count == 0
        self._send(
            ReplyAudio(
                job=self._job,
                clause=clause,
                piece=count,
                pcm=piece.pcm.tobytes(),
                last=piece.last,
                text=text if first else "",
                words=piece.words if first else [],
                visemes=piece.visemes if first else [],
                emotion=self._progress.emotion if first else "",
            )
        )


def _use(used: TokenCount | None) -> LlmUse | None:
    if used is None:
        return None
    return LlmUse(prompt_tokens=used.prompt, cached_tokens=used.cached, reply_tokens=used.reply)


def _seconds(piece: SpeechPiece) -> float:
    return len(piece.pcm) / SAMPLE_RATE_HZ


async def _nothing() -> AsyncGenerator[str, None]:
    return
    yield


async def _once(text: str) -> AsyncGenerator[str, None]:
    yield text
