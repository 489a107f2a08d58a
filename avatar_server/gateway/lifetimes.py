"""When sessions end by plan, and which are always there: pure policy under an injected clock."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from avatar_server.clock import Clock
from avatar_server.config import SessionSettings
from avatar_server.gateway.registry import Registry, Session

REJOIN_S = 15.0
"""While the server is drained, somebody whose connection broke may come back within this time."""
IN_TURN = ("hearing", "thinking", "speaking")
TAIL_S = 0.5
"""What was said last is still on its way to the viewers."""
RETRY_S = 10.0
"""A session that must always be there and could not be started is tried again after this long."""


@dataclass(frozen=True, slots=True)
class Ending:
    """A session that is over, why (a word for metrics), and a sentence for its viewers."""

    session: str
    why: str
    reason: str


class Lifetimes:
    """Maximum session time, draining, and sessions that are always on."""

    def __init__(self, limits: SessionSettings, registry: Registry, clock: Clock) -> None:
        self._limits, self._registry, self._clock = limits, registry, clock
        self._deadline: float | None = None
        self._told: set[str] = set()
        self._tried: dict[str, float] = {}
        self._in_turn_at: dict[str, float] = {}

    # --- draining -----------------------------------------------------------------------------

    @property
    def draining(self) -> bool:
        """Whether no session may begin any more."""
        return self._deadline is not None

    @property
    def drained(self) -> bool:
        """Whether it is over: nothing runs any more."""
        return self.draining and not len(self._registry)

    @property
    def seconds_left(self) -> float | None:
        """Until the last sessions are ended; none while the server is not drained."""
        if self._deadline is None:
            return None
        return max(0.0, self._deadline - self._clock.now())

    def drain(self, deadline_s: float) -> None:
        """Begin nothing new; what runs may go on for `deadline_s`. Again: another deadline."""
        self._deadline = self._clock.now() + deadline_s
        self._told.clear()

    def go_on(self) -> None:
        """Take new sessions again."""
        self._deadline = None

    def may_join(self, session: Session) -> bool:
        """Whether a viewer may join: while draining only where somebody is, or just was."""
        if not self.draining or session.viewer_count:
            return True
        return self._clock.now() - session.empty_since < REJOIN_S

    # --- what is due --------------------------------------------------------------------------

    def notices(self) -> list[tuple[str, float]]:
        """(session, seconds left) of those whose viewers are to be told now; each is given once."""
        due = []
        for entry in self._registry.sessions():
            left = self._left(entry)
            if left is None or left > self._limits.notice_s or entry.id in self._told:
                continue
            self._told.add(entry.id)
            due.append((entry.id, max(0.0, left)))
        there = {entry.id for entry in self._registry.sessions()}
        self._told &= there
        self._in_turn_at = {k: at for k, at in self._in_turn_at.items() if k in there}
        return due

    def endings(self) -> list[Ending]:
        """Sessions to be ended now; one in mid-turn is given `turn_grace_s` to come to its end."""
        over = []
        for entry in self._registry.sessions():
            left = self._left(entry)
            if left is not None and left <= 0:
                if self._in_turn(entry) and -left < self._limits.turn_grace_s:
                    continue
                why, reason = (
                    ("drained", "The server is being replaced.")
                    if self.draining
                    else ("time", "The time for this conversation is over.")
                )
                over.append(Ending(entry.id, why, reason))
            elif self.draining and not entry.viewer_count and not self.may_join(entry):
                over.append(Ending(entry.id, "drained", "The server is being replaced."))
        return over

    def missing(self) -> list[str]:
        """Avatars of `always_on` for which a session is to be started now, one for each lacking."""
        if self.draining:
            return []
        now = self._clock.now()
        wanted = Counter(self._limits.always_on)
        wanted.subtract(entry.avatar for entry in self._registry.sessions() if entry.pinned)
        due = []
        for avatar, lacking in wanted.items():
            if lacking > 0 and now - self._tried.get(avatar, -RETRY_S) >= RETRY_S:
                self._tried[avatar] = now
                due += [avatar] * lacking
        return due

    def started(self, avatar: str) -> None:
        """A session of `always_on` runs: should it end, it is replaced without delay."""
        self._tried.pop(avatar, None)

    def _in_turn(self, session: Session) -> bool:
        """Whether somebody speaks, or waits for an answer, or did so a moment ago."""
        now = self._clock.now()
        if session.viewer_count and session.status and session.status.state in IN_TURN:
            self._in_turn_at[session.id] = now
            return True
        return now - self._in_turn_at.get(session.id, -TAIL_S) < TAIL_S

    def _left(self, session: Session) -> float | None:
        """Seconds until the session's time is over; none where it has no end."""
        ends = []
        if self._limits.max_session_s is not None and not session.pinned:
            ends.append(session.created + self._limits.max_session_s)
        if self._deadline is not None:
            ends.append(self._deadline)
        return min(ends) - self._clock.now() if ends else None
