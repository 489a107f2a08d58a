"""What is done about an utterance: routed, then looked up, called, or left to the model."""

from __future__ import annotations

import contextlib
import logging
import math
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from avatar_server.avatar_routes import DEFAULT_ROUTES, Answer, RouteSpec, Tool, in_language
from avatar_server.inference.llm.choice import RouteTable
from avatar_server.inference.llm.engine import EngineError
from avatar_server.inference.llm.manner import ask_back, was_asked_back
from avatar_server.inference.llm.responder import AS_USUAL, Direct, Generate, Responder
from avatar_server.inference.llm.router import Decision, Turn
from avatar_server.inference.llm.tools import Missing, ToolCaller, Value, arguments
from avatar_server.inference.workers import EngineWorker, OverloadedError
from avatar_server.protocol.messages import HistoryItem, JobTiming

log = logging.getLogger(__name__)

K = TypeVar("K")

REMEMBERED_DECISIONS = 64
"""A turn has a few: of its partial transcripts, of each pause, and in the next turns' history."""
INTERRUPTED = " —"
"""Ends a reply of the history that was cut off."""

_JAPANESE = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]")


@dataclass(frozen=True, slots=True)
class Silence:
    """Say nothing."""


@dataclass(frozen=True, slots=True)
class Call:
    """Call a tool once the turn is certain, and speak its result."""

    tool: Tool
    values: dict[str, Value]
    language: str


Decide = Callable[[str, Sequence[Turn], float], Awaitable[tuple[Decision, JobTiming]]]
"""What an utterance asks for after a history, and how long that took; by a clock time if may be."""
Due = Callable[[str], float]
"""By which clock time a stage ("route", "retrieve") should be done."""
Plan = Direct | Generate | Silence | Call
Mark = Callable[[str, float], None]
"""Told a stage and its seconds."""


def _unmarked(stage: str, seconds: float) -> None: ...


def _whenever(stage: str) -> float:
    return math.inf


def language_of(text: str, otherwise: str) -> str:
    """The viewer's language as its writing shows it: Japanese, or Latin letters for English."""
    if _JAPANESE.search(text):
        return "ja"
    return "en" if otherwise[:2] == "ja" and re.search("[A-Za-z]{2}", text) else otherwise


class Planner:
    """Plans the replies of one session; remembers what was decided in it."""

    def __init__(
        self,
        session: str,
        avatar: str,
        responder: Responder,
        retrieve: EngineWorker,
        tools: ToolCaller,
        *,
        language: str = "en",
        decide: Decide | None = None,
        slow: bool = False,
        routes: Sequence[RouteSpec] = (),
    ) -> None:
        """Without `decide` everything is answered. `slow`: a decision takes so long that a reply
        is best begun meanwhile."""
        self.responder = responder
        self._session, self._avatar, self._language = session, avatar, language
        self._retrieve, self._tools = retrieve, tools
        self._decide = decide
        self.slow = slow and decide is not None
        self._table = RouteTable(routes)
        self._decided: OrderedDict[tuple[str, ...], Decision] = OrderedDict()
        self._latest: OrderedDict[str, Decision] = OrderedDict()
        self._asked = 0
        self._said = ""
        self._expected: list[HistoryItem] = []
        self._answered: tuple[tuple[object, ...], Direct | Generate] | None = None

    async def plan(
        self, text: str, history: Sequence[HistoryItem], mark: Mark, due: Due = _whenever
    ) -> Plan:
        """How to answer `text`. `mark` is told the stages' seconds."""
        language = language_of(text, self._language)

        async def answer(how: Answer) -> Direct | Generate:
            return await self._answer(text, history, how, language, mark, due)

        if self._decide is None or not text.strip():
            return await answer(AS_USUAL)
        try:
            decision = await self.decide(text, history, mark, due)
        except (EngineError, OverloadedError) as error:
            log.warning("not routed: %s", error)
            return await answer(AS_USUAL)
        spec = self._table.choose(decision, may_ask=not _asked_just_now(history))
        if spec is None:
            # What the avatar knows word for word needs no question.
            known = await answer(AS_USUAL)
            return known if isinstance(known, Direct) else self._ask_back(language)
        if spec is DEFAULT_ROUTES["goodbye"]:
            # The avatar's own way to say goodbye comes first.
            plan = await answer(AS_USUAL)
            return plan if isinstance(plan, Direct) else Direct(_words(spec, language))
        match spec.action:
            case "answer":
                return await answer(spec.answer or AS_USUAL)
            case "say":
                return Direct(_words(spec, language))
            case "stop":
                return Silence()
            case "repeat":
                return self._again(history, language)
            case "tool":
                assert spec.tool is not None
                found = arguments(spec.tool, text, decision.resolved, language)
                if isinstance(found, Missing):
                    return Direct(found.ask)
                return Call(spec.tool, found, language)
            case "hand_over":
                return self._hand_over(spec, text, history, language)

    async def likely(self, text: str, history: Sequence[HistoryItem]) -> Plan:
        """What is done about `text` if it is like most: an answer."""
        return await self._answer(text, history, AS_USUAL, language_of(text, self._language))

    async def decide(
        self,
        text: str,
        history: Sequence[HistoryItem],
        mark: Mark = _unmarked,
        due: Due = _whenever,
    ) -> Decision:
        """What `text` asks for. What was decided before about the same words is known at once."""
        assert self._decide is not None
        key = (text, *(item.text for item in history[-6:]))
        if (known := self._decided.get(key)) is not None:
            mark("route", 0.0)
            decision = known
        else:
            turns = [self._turn(item) for item in history]
            decision, timing = await self._decide(text, turns, due("route"))
            mark("queued", timing.queued)
            mark("route", timing.ran)
            log.debug("routed to %s with confidence %.2f", decision.route, decision.confidence)
        _remember(self._decided, key, decision)
        _remember(self._latest, text, decision)
        return decision

    def route_of(self, text: str) -> str:
        """What `text` was taken for of late; empty where nothing was decided."""
        decision = self._latest.get(text)
        return "" if decision is None else decision.route

    async def call(self, call: Call) -> str:
        """Make the call; what is to be said."""
        return await self._tools.speak(call.tool, call.values, call.language)

    async def foresee(self, text: str) -> None:
        """Decide about words that are still being said: where they turn out to be all, and the
        last reply was heard whole, the decision is there at once. Best effort."""
        if self._decide is not None and text.strip():
            with contextlib.suppress(EngineError, OverloadedError):
                await self.decide(text, self._expected)

    def said(self, text: str, history: Sequence[HistoryItem], reply: str) -> None:
        """`reply` to `text` is complete; it may be asked for again."""
        if reply.strip():
            self._said = reply
        asked = HistoryItem(role="user", text=text)
        answered = HistoryItem(role="assistant", text=reply)
        self._expected = [*history, asked, *([answered] if reply.strip() else [])]

    def _turn(self, item: HistoryItem) -> Turn:
        decision = self._latest.get(item.text) if item.role == "user" else None
        if decision is None:
            return Turn(item.role, item.text)
        resolved = decision.resolved if decision.continuation else None
        return Turn(item.role, item.text, decision.route, resolved)

    async def _answer(
        self,
        text: str,
        history: Sequence[HistoryItem],
        answer: Answer,
        language: str,
        mark: Mark = _unmarked,
        due: Due = _whenever,
    ) -> Direct | Generate:
        responder = self.responder
        key = (text, tuple(item.text for item in history), answer, language)
        if self._answered is not None and self._answered[0] == key:
            return self._answered[1]
        plan, timing = await self._retrieve.call(
            self._session,
            lambda: responder.plan(text, history, answer, language),
            deadline=due("retrieve"),
        )
        self._answered = key, plan
        if self._decide is None:
            mark("queued", timing.queued)
            mark("retrieve", timing.ran)
        else:
            mark("retrieve", timing.queued + timing.ran)
        return plan

    def _ask_back(self, language: str) -> Direct:
        self._asked += 1
        return Direct(ask_back(language, self._asked))

    def _again(self, history: Sequence[HistoryItem], language: str) -> Direct:
        heard = [i.text for i in history if i.role == "assistant" and i.text.strip()]
        if not heard:
            return Direct(
                "まだ何も言っていません。" if language == "ja" else "I haven't said anything yet."
            )
        last = heard[-1].removesuffix(INTERRUPTED)
        # Of a reply that was cut off the rest may be what was missed.
        return Direct(self._said if self._said.startswith(last) else last, own=False)

    def _hand_over(
        self, spec: RouteSpec, text: str, history: Sequence[HistoryItem], language: str
    ) -> Plan:
        assert spec.hand_over is not None
        if (tool := spec.hand_over.call) is None:
            return Direct(in_language(spec.hand_over.say, language))
        said = "\n".join(f"{item.role}: {item.text}" for item in history)
        values: dict[str, Value] = {
            "session": self._session,
            "avatar": self._avatar,
            "text": text,
            "history": said,
        }
        return Call(tool, values, language)


def _words(spec: RouteSpec, language: str) -> str:
    assert spec.say is not None
    return in_language(spec.say, language)


def _asked_just_now(history: Sequence[HistoryItem]) -> bool:
    last = next((item for item in reversed(history) if item.role == "assistant"), None)
    return last is not None and was_asked_back(last.text)


def _remember(memory: OrderedDict[K, Decision], key: K, decision: Decision) -> None:
    memory[key] = decision
    memory.move_to_end(key)
    while len(memory) > REMEMBERED_DECISIONS:
        memory.popitem(last=False)
