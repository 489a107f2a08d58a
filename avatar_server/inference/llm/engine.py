"""What every language model engine does, so that they can stand in for each other."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol


class EngineError(RuntimeError):
    """The engine cannot answer; the message says why, and what an operator can do."""


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One message of a chat."""

    role: Literal["system", "user", "assistant"]
    content: str


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
    priority: int = 0


@dataclass(frozen=True, slots=True)
class EngineMetrics:
    """Sums since the engine was made; times in seconds, of the engine's own work."""

    requests: int = 0
    cancelled: int = 0
    failed: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    reply_tokens: int = 0
    prompt_s: float = 0.0
    reply_s: float = 0.0

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

    def snapshot(self) -> EngineMetrics:
        whole = {
            name: int(self.values.get(name, 0))
            for name in (
                "requests",
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

    async def prefill(self, session: str, messages: Sequence[ChatMessage]) -> None:
        """Read `messages` into the session's prompt cache while there is nothing else to do.

        Best effort: a `stream` of the same session takes over from it at once, and engines
        that cache by themselves do nothing.
        """
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
