"""Answers to requests that carry an `Idempotency-Key`, so that a repeated one does nothing twice.

As the draft of the IETF's HTTP APIs group has it (draft-ietf-httpapi-idempotency-key-header): the
same key with the same content gets the first answer again, with other content a refusal, and while
the first is still being worked on, a conflict.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from avatar_server.clock import Clock
from avatar_server.gateway.problems import ProblemError

KEEP_S = 86_400.0
MOST = 1_000
LONGEST = 255

T = TypeVar("T")


@dataclass(slots=True)
class _Entry(Generic[T]):
    digest: str
    at: float
    answer: T | None = None


class Idempotency(Generic[T]):
    """Remembers the answers of a day, at most `MOST` of them."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._entries: OrderedDict[str, _Entry[T]] = OrderedDict()

    async def once(self, key: str | None, content: str, work: Callable[[], Awaitable[T]]) -> T:
        """What `work` gives, or gave for this `key`. What fails is forgotten.

        Raises `ProblemError`.
        """
        if key is None:
            return await work()
        if not 1 <= len(key) <= LONGEST:
            raise ProblemError(
                400, "bad-idempotency-key", f"An Idempotency-Key has 1 to {LONGEST} characters."
            )
        self._forget_old()
        digest = hashlib.sha256(content.encode()).hexdigest()
        entry = self._entries.get(key)
        if entry is not None:
            if entry.digest != digest:
                raise ProblemError(
                    422,
                    "idempotency-key-reused",
                    "This Idempotency-Key was used with other content. Take a new key.",
                )
            if entry.answer is None:
                raise ProblemError(
                    409,
                    "still-working",
                    "A request with this Idempotency-Key is being worked on. Ask again shortly.",
                    retry_after_s=1,
                )
            return entry.answer
        entry = self._entries[key] = _Entry(digest, self._clock.now())
        try:
            entry.answer = await work()
        finally:
            if entry.answer is None:
                self._entries.pop(key, None)
        return entry.answer

    def _forget_old(self) -> None:
        limit = self._clock.now() - KEEP_S
        while self._entries:
            key, entry = next(iter(self._entries.items()))
            if entry.at > limit and len(self._entries) < MOST:
                return
            del self._entries[key]
