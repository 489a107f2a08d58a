"""What every language model engine does, so that they can stand in for each other."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Literal, Protocol

from avatar_server.inference.llm.engine.labels import LabelScores
from avatar_server.inference.memory import MemoryFigure


class EngineError(RuntimeError):
    """The engine cannot answer; the message says why, and what an operator can do."""


class EngineDeadError(EngineError):
    """The engine itself has ended, with all its requests. It is starting again, or cannot."""


class Priority(IntEnum):
    """Who is served first where an engine has more to do than it can: the lower number.

    A reply's may be any number between `ROUTE` and `BACKGROUND`, such as when it is due. Requests
    that run already are not stopped for others, so the engine must have room for more of them
    than there are sessions.
    """

    ROUTE = 0
    """Short, and everything else waits for it."""
    REPLY = 1
    SPECULATIVE = 2
    """Begun before it is known to be needed."""
    BACKGROUND = 2**53 - 1
    """Nobody waits: prompts read ahead, warming up."""


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One message of a chat."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(slots=True)
class TokenCount:
    """Tokens of one request, as far as its engine tells; whole once its stream has ended.

    `prompt` counts those taken from the cache (`cached`), too.
    """

    prompt: int = 0
    cached: int = 0
    reply: int = 0


@dataclass(frozen=True, slots=True)
class LlmRequest:
    """A chat to continue.

    `session` ties requests to a prompt cache: of one session only one request runs at a time.
    Lower `priority` is served first where the engine has more to do than it can.
    """

    session: str
    messages: Sequence[ChatMessage]
    max_tokens: int
    stop: Sequence[str] = ()
    priority: int = Priority.REPLY
    used: TokenCount = field(default_factory=TokenCount, compare=False)
    """What it took: the engine writes, whoever asked reads."""


@dataclass(frozen=True, slots=True)
class LabelRequest:
    """A chat whose next reply is one of `labels`; which, is to be told in one step.

    Give single tokens (`A`, `B`, `C`), and everything that does not change first: engines keep the
    prompt's beginning, so that only its end is read. `session` is the prompt cache, as in
    `LlmRequest`; a name of its own (`router`) keeps these prompts apart from the replies'.
    """

    session: str
    messages: Sequence[ChatMessage]
    labels: Sequence[str]
    priority: int = Priority.ROUTE


@dataclass(frozen=True, slots=True)
class EngineMetrics:
    """Sums since the engine was made; times in seconds, of the engine's own work."""

    requests: int = 0
    labelled: int = 0
    """Of these, label requests."""
    cancelled: int = 0
    failed: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    reply_tokens: int = 0
    prompt_s: float = 0.0
    reply_s: float = 0.0
    restarts: int = 0
    """Times the engine ended by itself and was started again."""
    running: int = 0
    """Requests in work now."""
    waiting: int = 0
    """Requests waiting now."""
    cache_used: float = 0.0
    """Share of the key-value cache in use now, 0..1; 0 where the engine does not tell."""

    @property
    def cached_share(self) -> float:
        """Share of all prompt tokens that were not read, but taken from the cache."""
        total = self.prompt_tokens + self.cached_tokens
        return self.cached_tokens / total if total else 0.0

    @property
    def reply_tokens_per_s(self) -> float:
        return self.reply_tokens / self.reply_s if self.reply_s else 0.0


@dataclass(slots=True)
class MetricsTally:
    """The changing side of `EngineMetrics`."""

    values: dict[str, float] = field(default_factory=dict)

    def add(self, **amounts: float) -> None:
        for name, amount in amounts.items():
            self.values[name] = self.values.get(name, 0.0) + amount

    def snapshot(
        self, *, running: int = 0, waiting: int = 0, cache_used: float = 0.0
    ) -> EngineMetrics:
        whole = {
            name: int(self.values.get(name, 0))
            for name in (
                "requests",
                "labelled",
                "restarts",
                "cancelled",
                "failed",
                "prompt_tokens",
                "cached_tokens",
                "reply_tokens",
            )
        }
        return EngineMetrics(
            **whole,
            prompt_s=self.values.get("prompt_s", 0.0),
            reply_s=self.values.get("reply_s", 0.0),
            running=running,
            waiting=waiting,
            cache_used=cache_used,
        )


class LlmEngine(Protocol):
    """Continues chats. All methods are called on one event loop."""

    @property
    def description(self) -> str:
        """The model and where it runs, for the status page."""
        ...

    def stream(self, request: LlmRequest) -> AsyncGenerator[str, None]:
        """The reply in pieces of text as they come.

        Closing the generator, or cancelling the task that reads it, frees the engine's place at
        once. Raises `EngineError`.
        """
        ...

    async def score_labels(self, request: LabelRequest) -> LabelScores:
        """How likely each label is as the chat's next reply; one step where the engine can.

        Cancelling the task frees the engine's place. Raises `EngineError`, and `ValueError` for
        labels that are fewer than two, empty or double.
        """
        ...

    async def prefill(self, session: str, messages: Sequence[ChatMessage]) -> None:
        """Read `messages` into the session's prompt cache while there is nothing else to do.

        Best effort: a `stream` of the same session takes over from it at once, and engines
        that cache by themselves do nothing.
        """
        ...

    def hold_prefill(self, held: bool) -> None:
        """While held, begin to read nothing ahead and break off what is being read: a viewer waits
        for work of other models on the same hardware. Nothing of what was read is lost."""
        ...

    def forget(self, session: str) -> None:
        """The session is over; its cache may serve another."""
        ...

    async def warm_up(self) -> None:
        """Answer something small once, so that the first viewer does not pay for it."""
        ...

    async def close(self) -> None:
        """End all requests and give everything back."""
        ...

    def metrics(self) -> EngineMetrics: ...

    def memory(self) -> MemoryFigure:
        """What the engine holds on this machine."""
        ...
