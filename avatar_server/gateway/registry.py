"""Which sessions run and who watches them: pure bookkeeping under an injected clock.

A session is `starting` until its avatar process is ready, then `running`; `restarting` while a lost
process is replaced. It ends by being removed; nothing is kept of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from avatar_server.clock import Clock
from avatar_server.config import SessionSettings
from avatar_server.config.sessions import UNMEASURED_SESSIONS
from avatar_server.protocol.messages import AvatarStatus


class SessionState(StrEnum):
    STARTING = "starting"
    RUNNING = "running"
    RESTARTING = "restarting"


class RegistryError(Exception):
    """Base of what the registry refuses; the message is a sentence for people."""


class Full(RegistryError):
    """No place is free."""


class UnknownSession(RegistryError):
    """No such session: it has ended or never was."""


class UnknownViewer(RegistryError):
    """No such viewer in this session."""


class NotRunning(RegistryError):
    """The session's avatar process is starting or being replaced."""


# A status may have been sent before a join that the gateway already knows of, so that a viewer
# missing from it is gone only if it joined well before; statuses come once a second.
JOIN_SETTLES_S = 3.0

# A page that is loaded anew says goodbye first and is back within this time.
YIELD_AFTER_S = 2.0


@dataclass(slots=True)
class Session:
    """One running avatar. Times are in seconds of the registry's clock."""

    id: str
    avatar: str
    created: float
    state: SessionState = SessionState.STARTING
    empty_since: float = 0.0
    restarts: int = 0
    pid: int | None = None
    status: AvatarStatus | None = None
    joining: set[str] = field(default_factory=set)
    viewers: dict[str, float] = field(default_factory=dict)
    pinned: bool = False
    """It is always on: it neither ends by being idle nor gives way."""
    recorded: bool = False
    reserved_until: float = 0.0
    """Until then it is kept for somebody who was sent to it."""
    abandoned: bool = False
    """The last viewer said goodbye, and nobody came since."""

    @property
    def viewer_count(self) -> int:
        """Viewers that hold a place, those still joining included."""
        held = len(self.viewers) + len(self.joining)
        return max(held, self.status.viewers if self.status else 0)


class Registry:
    """Sessions and viewers within the limits.

    `places` says how many sessions fit now; by default the setting alone.
    """

    def __init__(
        self, limits: SessionSettings, clock: Clock, places: Callable[[], int] | None = None
    ) -> None:
        self._limits = limits
        self._places = places or (lambda: limits.at_most(UNMEASURED_SESSIONS))
        self._clock = clock
        self._sessions: dict[str, Session] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def __contains__(self, session: str) -> bool:
        return session in self._sessions

    @property
    def free(self) -> int:
        """Sessions that could still be started; those that would give way count as free."""
        held = len(self._sessions) - len(self.yielding())
        return max(0, self._places() - held)

    def yielding(self) -> list[str]:
        """Sessions that give way to whoever waits, the one longest empty first.

        Everybody said goodbye to them. One whose viewers vanished, or are yet to come, is not
        among them: it waits for the idle timeout.
        """
        limit = self._clock.now() - YIELD_AFTER_S
        empty = [
            entry
            for entry in self._sessions.values()
            if entry.abandoned
            and not entry.pinned
            and entry.state is SessionState.RUNNING
            and not entry.viewer_count
            and entry.empty_since <= limit
        ]
        return [entry.id for entry in sorted(empty, key=lambda entry: entry.empty_since)]

    def give_way(self) -> str | None:
        """The session that must be ended before `add` can succeed; None where none must or can."""
        if len(self._sessions) < self._places():
            return None
        return next(iter(self.yielding()), None)

    def free_in_s(self) -> float | None:
        """Seconds until the first empty session ends by its idle timeout; None: none is empty."""
        empty = [
            entry.empty_since + self._limits.idle_timeout_s - self._clock.now()
            for entry in self._sessions.values()
            if entry.state is SessionState.RUNNING and not entry.pinned and not entry.viewer_count
        ]
        return max(0.0, min(empty)) if empty else None

    def sessions(self) -> list[Session]:
        """All sessions, oldest first."""
        return list(self._sessions.values())

    def find(self, session: str) -> Session | None:
        """The session, if there is one."""
        return self._sessions.get(session)

    def get(self, session: str) -> Session:
        """Raises `UnknownSession`."""
        try:
            return self._sessions[session]
        except KeyError:
            raise UnknownSession(
                "This session has ended. Choose an avatar on the start page to begin a new one."
            ) from None

    def add(
        self, session: str, avatar: str, *, pinned: bool = False, recorded: bool = False
    ) -> Session:
        """Take a place for a new session; raises `Full`. See `give_way`."""
        if len(self._sessions) >= (places := self._places()):
            raise Full(f"All {places} sessions are in use. Try again when one has ended.")
        now = self._clock.now()
        entry = Session(session, avatar, now, empty_since=now, pinned=pinned, recorded=recorded)
        self._sessions[session] = entry
        return entry

    def remove(self, session: str) -> None:
        """Free the session's place; removing it twice is no error."""
        self._sessions.pop(session, None)

    def ready(self, session: str, pid: int | None = None) -> None:
        """Its avatar process, `pid`, takes viewers now."""
        entry = self.get(session)
        entry.pid = pid
        entry.state = SessionState.RUNNING
        entry.empty_since = self._clock.now()

    def lost(self, session: str) -> None:
        """Its avatar process is gone and will be replaced; its viewers are gone with it."""
        entry = self.get(session)
        entry.state = SessionState.RESTARTING
        entry.restarts += 1
        entry.status = None
        entry.viewers.clear()
        entry.joining.clear()
        entry.abandoned = False
        entry.empty_since = self._clock.now()

    def begin_join(self, session: str, viewer: str) -> None:
        """Take a viewer's place; raises `UnknownSession`, `NotRunning` or `Full`."""
        entry = self.get(session)
        if entry.state is not SessionState.RUNNING:
            raise NotRunning("The avatar is starting. Try again in a second.")
        if entry.viewer_count >= self._limits.max_viewers:
            raise Full(
                f"This session already has {self._limits.max_viewers} viewers. "
                "Try again when one has left."
            )
        entry.joining.add(viewer)
        entry.abandoned = False

    def begin_return(self, session: str, viewer: str) -> None:
        """A viewer connects anew; raises `UnknownSession`, `NotRunning` or `UnknownViewer`."""
        self.require_viewer(session, viewer)
        entry = self.get(session)
        if entry.state is not SessionState.RUNNING:
            raise NotRunning("The avatar is starting. Try again in a second.")
        entry.viewers.pop(viewer, None)
        entry.joining.add(viewer)

    def joined(self, session: str, viewer: str) -> bool:
        """The avatar answered; false where the session or the place was lost meanwhile."""
        entry = self._sessions.get(session)
        if entry is None or viewer not in entry.joining:
            return False
        entry.joining.discard(viewer)
        entry.viewers[viewer] = self._clock.now()
        return True

    def leave(self, session: str, viewer: str, goodbye: bool = False) -> bool:
        """Free a viewer's place; false where there was none. `goodbye`: it left on purpose."""
        entry = self._sessions.get(session)
        if entry is None:
            return False
        self._note_company(entry)
        known = viewer in entry.joining or viewer in entry.viewers
        if viewer in entry.viewers and entry.status and entry.status.viewers:
            entry.status.viewers -= 1
        entry.joining.discard(viewer)
        entry.viewers.pop(viewer, None)
        entry.abandoned = entry.abandoned or (goodbye and known)
        return known

    def require_viewer(self, session: str, viewer: str) -> None:
        """Raises `UnknownSession` or `UnknownViewer`."""
        entry = self.get(session)
        if viewer not in entry.viewers and viewer not in entry.joining:
            raise UnknownViewer("This viewer has left. Join again to see the avatar.")

    def status(self, status: AvatarStatus) -> None:
        """What an avatar process says of itself; of an unknown session it is ignored.

        Viewers that vanished without goodbye are absent from its `viewer_ids`: they lose their
        place here.
        """
        entry = self._sessions.get(status.session)
        if entry is None:
            return
        self._note_company(entry)
        entry.status = status
        settled = self._clock.now() - JOIN_SETTLES_S
        present = set(status.viewer_ids)
        if len(present) == status.viewers:
            for viewer, since in list(entry.viewers.items()):
                if viewer not in present and since <= settled:
                    del entry.viewers[viewer]
        if status.abandoned and not entry.viewer_count:
            entry.abandoned = True

    def idle(self) -> list[str]:
        """Running sessions that have had no viewer for the idle timeout."""
        limit = self._clock.now() - self._limits.idle_timeout_s
        return [
            entry.id
            for entry in self._sessions.values()
            if entry.state is SessionState.RUNNING
            and not entry.pinned
            and not entry.viewer_count
            and entry.empty_since <= limit
        ]

    def unused(self, avatar: str, recorded: bool = False) -> Session | None:
        """A session of `avatar` that is always on and that nobody uses or is on the way to.

        Only one that is `recorded` or not, as is wanted.
        """
        now = self._clock.now()
        for entry in self._sessions.values():
            ready = entry.pinned and entry.avatar == avatar and entry.state is SessionState.RUNNING
            ready = ready and entry.recorded is recorded
            if ready and not entry.viewer_count and entry.reserved_until <= now:
                return entry
        return None

    def counts(self) -> dict[SessionState, int]:
        """Sessions by state."""
        counts = dict.fromkeys(SessionState, 0)
        for entry in self._sessions.values():
            counts[entry.state] += 1
        return counts

    def viewer_total(self) -> int:
        return sum(entry.viewer_count for entry in self._sessions.values())

    def _note_company(self, entry: Session) -> None:
        """Before viewers may go: until now the session was not empty."""
        if entry.viewer_count:
            entry.empty_since = self._clock.now()
