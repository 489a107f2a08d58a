"""What an utterance may ask for, and what is decided about one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

QUESTION, COMMAND, UNCLEAR = "question", "command", "unclear"


@dataclass(frozen=True, slots=True)
class Route:
    """A kind of request, as a router sees it; `examples` may be in any language."""

    name: str
    description: str
    examples: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.name or not self.name.replace("_", "").isalnum() or not self.name.isascii():
            raise ValueError(
                f"route name {self.name!r}: use letters, digits and underscores, "
                "e.g. 'opening_hours'"
            )


BUILTIN_ROUTES: tuple[Route, ...] = (
    Route("small_talk", "greetings, thanks, feelings, remarks, jokes"),
    Route(QUESTION, "wants to know something"),
    Route(COMMAND, "wants something done or made"),
    Route("stop", "wants the avatar to be silent or drop what it does"),
    Route("repeat", "wants to hear the last reply again"),
    Route("goodbye", "is leaving"),
    Route(UNCLEAR, "cannot be understood as a request, or is meant for someone else"),
)


@dataclass(frozen=True, slots=True)
class Turn:
    """Something said before. `route` and `resolved` are what was decided about a user's turn."""

    role: Literal["user", "assistant"]
    text: str
    route: str | None = None
    resolved: str | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """What an utterance asks for.

    `confidence` (0..1) is the probability that route and continuation are both right, calibrated
    on the training data. `resolved` is the whole request where it continues an earlier one, and
    the utterance itself where it does not. `ask_back`: too unsure to act; ask what is meant.
    `route` stays the likeliest one even then.
    """

    route: str
    confidence: float
    continuation: bool
    resolved: str
    ask_back: bool = False
    probabilities: Mapping[str, float] = field(default_factory=dict)
    """By route, continuations included; sums to 1."""


class Router(Protocol):
    """Decides what an utterance asks for, given what was said before (oldest first)."""

    def decide(self, text: str, history: Sequence[Turn] = ()) -> Decision: ...


class LearningRouter(Router, Protocol):
    """A router that can be given an operator's routes."""

    def with_routes(self, routes: Sequence[Route]) -> LearningRouter:
        """One that knows these routes, too; this one is left as it is."""
        ...


def asks(route: str) -> bool:
    """Whether turns of this route ask for something that can be continued."""
    return route not in {"small_talk", "stop", "repeat", "goodbye", UNCLEAR}
