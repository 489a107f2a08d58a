"""What is known of a turn while it runs, and the trace it leaves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from avatar_server.avatar.ledger import ledger, overran
from avatar_server.protocol.messages import (
    JobTiming,
    LedgerEntry,
    ReplyEnd,
    StageSpan,
    TurnTrace,
)

Kind = Literal["speech", "text", "greeting"]
Outcome = Literal["answered", "interrupted", "failed", "empty"]


@dataclass(slots=True)
class CheckRun:
    """Recognition and end-of-turn check of one pause. Moments are seconds of the clock."""

    number: int
    viewer: str
    pcm: NDArray[np.int16]
    at: float
    began: float
    transcribe_job: str
    end_of_turn_job: str
    sent: float = 0.0
    transcribed: float | None = None
    judged: float | None = None
    timing: JobTiming = field(default_factory=JobTiming)
    lost_at: float | None = None


@dataclass(slots=True)
class ReplyRun:
    """One request for a reply, speculative until its turn is committed."""

    job: str
    text: str
    sent: float
    say: bool = False
    expected_at: float | None = None
    """When its first sound can be expected, as inference foresees it."""
    first_sound: float | None = None
    end: ReplyEnd | None = None
    failed: bool = False

    @property
    def open(self) -> bool:
        """Whether more may come for it."""
        return self.end is None and not self.failed


@dataclass(slots=True)
class TurnRun:
    """A committed turn."""

    turn: int
    viewer: str | None
    kind: Kind
    text: str
    at: float
    committed: float
    reply: ReplyRun
    check: CheckRun | None = None
    audible: float | None = None
    acknowledged: float | None = None
    """When a remark was begun that covers the wait; then, when it was heard."""
    lost_at: float | None = None
    incomplete: bool = False

    @property
    def latency_ms(self) -> float | None:
        """From the viewer's last voiced sample (or typing) to the first audible sample."""
        if self.audible is None or self.kind == "greeting":
            return None
        return (self.audible - self.at) * 1000

    def stages(self) -> list[StageSpan]:
        """The stages so far, in seconds from the viewer's last voiced sample."""
        spans: list[StageSpan] = []

        def add(stage: str, start: float, end: float) -> None:
            end = max(start, end)
            spans.append(StageSpan(stage=stage, start=start - self.at, end=end - self.at))

        check, reply = self.check, self.reply
        if self.kind == "speech":
            add("endpoint", self.at, self.committed)
        if check is not None and check.transcribed is not None:
            add("stt", check.sent, check.transcribed)
        if check is not None and check.judged is not None:
            add("end_of_turn", check.sent, check.judged)
        if reply.first_sound is not None:
            known = reply.end.stages_ms if reply.end else {}
            routed = reply.sent + (known.get("queued", 0.0) + known.get("route", 0.0)) / 1000
            if "route" in known:
                add("route", reply.sent, routed)
            found = routed + known.get("retrieve", 0.0) / 1000
            if found > routed:
                add("facts", routed, found)
            spoken = reply.first_sound - known.get("tts_first_piece", 0.0) / 1000
            add("llm", found, max(found, spoken))
            add("tts", max(found, spoken), reply.first_sound)
            if self.audible is not None:
                add("playout", max(self.committed, reply.first_sound), self.audible)
        return spans

    def path(self) -> list[tuple[str, float]]:
        """What took the time up to the first audible sample, one after the other: (stage, s).

        Recognition and the reply run while the silence is still awaited that ends the turn; where
        the reply was there first, all of that time is the end of turn's.
        """
        if self.audible is None:
            return []
        check, reply = self.check, self.reply
        sound = reply.first_sound if reply.first_sound is not None else self.audible
        if sound <= self.committed:
            marks = [("endpoint", self.committed)]
        else:
            known = reply.end.stages_ms if reply.end else {}
            waited_ms, route_ms = known.get("queued", 0.0), known.get("route", 0.0)
            routed = reply.sent + (waited_ms + route_ms) / 1000 if route_ms else reply.sent
            found = reply.sent + (waited_ms + route_ms + known.get("retrieve", 0.0)) / 1000
            spoken = sound - known.get("tts_first_piece", 0.0) / 1000
            marks = []
            if check is not None and check.transcribed is not None:
                marks += [("endpoint", check.sent), ("stt", check.transcribed)]
            marks += [("endpoint", reply.sent), ("route", routed), ("facts", found)]
            marks += [("llm", spoken), ("tts", sound)]
        path = []
        now = self.at
        for stage, end in [*marks, ("playout", self.audible)]:
            if end > now:
                path.append((stage, end - now))
                now = end
        return path

    def ledger(self, budget_ms: float, shares: Mapping[str, float]) -> list[LedgerEntry]:
        """Where the time of a viewer's turn went; empty for a turn of the avatar's own."""
        return [] if self.latency_ms is None else ledger(self.path(), budget_ms, shares)

    @property
    def acknowledged_ms(self) -> float | None:
        """From the viewer's last voiced sample to the remark that covered the wait."""
        return None if self.acknowledged is None else round((self.acknowledged - self.at) * 1000, 1)

    def stages_ms(self) -> dict[str, tuple[float, float]]:
        """`stages` as [start, end] in ms."""
        return {s.stage: (round(s.start * 1e3, 1), round(s.end * 1e3, 1)) for s in self.stages()}

    def trace(
        self,
        session: str,
        outcome: Outcome,
        heard: str,
        now: float,
        budget_ms: float,
        shares: Mapping[str, float],
    ) -> TurnTrace:
        """What is reported of the turn when it is over."""
        entries, end = self.ledger(budget_ms, shares), self.reply.end
        return TurnTrace(
            session=session,
            turn=self.turn,
            kind=self.kind,
            voice_to_voice_ms=self.latency_ms if self.kind == "speech" else None,
            stages=self.stages(),
            budget_ms=budget_ms,
            ledger=entries,
            overran=overran(entries, budget_ms),
            acknowledged_ms=self.acknowledged_ms,
            outcome=outcome,
            ended=now - self.at,
            route=end.route if end else "",
            llm=end.llm if end else None,
            viewer=self.viewer or "",
            viewer_text=self.text,
            reply_text=heard,
        )
