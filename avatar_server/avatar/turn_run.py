"""What is known of a turn while it runs, and the trace it leaves."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from avatar_server.protocol.messages import JobTiming, ReplyEnd, StageSpan, TurnTrace

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

    def stages_ms(self) -> dict[str, tuple[float, float]]:
        """`stages` as [start, end] in ms."""
        return {s.stage: (round(s.start * 1e3, 1), round(s.end * 1e3, 1)) for s in self.stages()}

    def trace(self, session: str, outcome: Outcome, heard: str) -> TurnTrace:
        """What is reported of the turn when it is over."""
        return TurnTrace(
            session=session,
            turn=self.turn,
            kind=self.kind,
            voice_to_voice_ms=self.latency_ms if self.kind == "speech" else None,
            stages=self.stages(),
            outcome=outcome,
            viewer_text=self.text,
            reply_text=heard,
        )
