"""What is known of a run of the load test when it is over: raw, before any figure is made."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from avatar_server.loadtest.results import Finished, Joined, Refused, Turn
from avatar_server.loadtest.usage import UsageSample


@dataclass(slots=True)
class Kill:
    """A process that was killed, and when everything was there again (None: it never was).

    `session` is the number of the session whose avatar it was; None for the inference process.
    """

    process: str
    pid: int
    at: float
    session: int | None = None
    back_at: float | None = None


@dataclass(slots=True)
class RunRecord:
    """One run: `sessions` asked for, measured from `start` to `end` (monotonic seconds)."""

    sessions: int
    viewers: int
    talkers: int
    start: float = 0.0
    end: float = 0.0
    joined: dict[int, Joined] = field(default_factory=dict)
    refused: list[Refused] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    finished: list[Finished] = field(default_factory=list)
    usage: list[UsageSample] = field(default_factory=list)
    kills: list[Kill] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What could not be done as asked, as sentences; the objective is then missed."""
    server: dict[str, Any] = field(default_factory=dict)
    """What the server says of itself: version, models, the change of its counters."""

    @property
    def duration_s(self) -> float:
        return self.end - self.start
