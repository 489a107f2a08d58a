"""What turn-taking asks to be done. Moments (`at`) are seconds of the session's clock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

TalkState = Literal["idle", "hearing", "thinking", "speaking"]
DiscardReason = Literal["noise", "echo", "failed", "left", "replaced"]


@dataclass(frozen=True, slots=True)
class UtteranceStarted:
    """`viewer` has the floor and speaks; `at` is when their voice began."""

    utterance: int
    viewer: str
    at: float


@dataclass(frozen=True, slots=True)
class Speculate:
    """A pause: recognise the viewer's samples `start`..`end`, and judge whether the turn is over.

    `at` is the moment of the last voiced sample. Closed by `CommitTurn`, `CancelSpeculation` or
    `Discard`, exactly one of them.
    """

    check: int
    utterance: int
    viewer: str
    start: int
    end: int
    at: float


@dataclass(frozen=True, slots=True)
class Prepare:
    """The turn is likely over: begin the reply to `text`, and hold its sound back."""

    check: int
    viewer: str
    text: str


@dataclass(frozen=True, slots=True)
class CancelSpeculation:
    """The viewer goes on: what was begun for `check` is void."""

    check: int


@dataclass(frozen=True, slots=True)
class CommitTurn:
    """The turn is over: answer `text`. `at`: last voiced sample, or when the text was typed."""

    turn: int
    viewer: str
    kind: Literal["speech", "text"]
    text: str
    at: float
    check: int | None = None


@dataclass(frozen=True, slots=True)
class Discard:
    """The utterance becomes no turn. `check` is the one that this closes, if one is open."""

    utterance: int
    viewer: str
    reason: DiscardReason
    check: int | None = None


@dataclass(frozen=True, slots=True)
class BargeIn:
    """Stop the reply of `turn`. `onset` is when the voice that interrupts began."""

    turn: int
    viewer: str
    reason: Literal["speech", "text", "stop"]
    at: float
    onset: float


Action = UtteranceStarted | Speculate | Prepare | CancelSpeculation | CommitTurn | Discard | BargeIn
