"""Which measures against overload are in force: a pure state machine under an injected clock.

Levels build on each other: a level includes all before it. The order goes from what nobody misses
to what everybody notices. Sound is on none of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from avatar_server.clock import Clock
from avatar_server.config import OverloadSettings

RELAPSE_S = 60.0
"""A level that has to be taken again within this time of being given back was needed."""
MAX_HOLD = 16
"""Times `fall_s` that a level is kept at most after it was given back too early."""


class OverloadLevel(IntEnum):
    """What gives way."""

    NONE = 0
    NO_PARTIALS = 1
    """No transcripts of unfinished speech."""
    IDLE_HALF_RATE = 2
    """Avatars that nobody talks with are drawn half as often."""
    CHEAP_ENCODE = 3
    """Coarser pictures, which take less to encode."""
    SHORT_REPLIES = 4
    """One sentence instead of several."""
    NO_NEW_SESSIONS = 5
    """Whoever is there keeps what there is."""


DESCRIPTIONS = {
    OverloadLevel.NONE: "none",
    OverloadLevel.NO_PARTIALS: "no partial transcripts",
    OverloadLevel.IDLE_HALF_RATE: "idle avatars at half the frame rate",
    OverloadLevel.CHEAP_ENCODE: "coarser pictures",
    OverloadLevel.SHORT_REPLIES: "shorter replies",
    OverloadLevel.NO_NEW_SESSIONS: "no new sessions",
}


@dataclass(frozen=True, slots=True)
class Load:
    """How it goes now: of all sessions the worst, of all queues the longest.

    `late_share` is that of late frames among those due, `frame_cost` the share of the time between
    frames that drawing and encoding take, `wait_ms` how long jobs wait that somebody waits for.
    """

    late_share: float = 0.0
    frame_cost: float = 0.0
    wait_ms: float = 0.0


class Overload:
    """Follows the load; `level` is what is in force."""

    def __init__(self, settings: OverloadSettings, clock: Clock) -> None:
        self._settings, self._clock = settings, clock
        self.level = OverloadLevel.NONE
        self.reason = ""
        """What made the level rise last, in words; empty at level 0."""
        self._high_since: float | None = None
        self._low_since: float | None = None
        self._changed_at = float("-inf")
        self._fell_at = float("-inf")
        self._hold = 1

    def update(self, load: Load) -> OverloadLevel:
        """Take the load of this moment; to be called about once a second."""
        settings, now = self._settings, self._clock.now()
        if not settings.enabled:
            return self.level
        over = self._over(load)
        self._high_since = None if not over else _since(self._high_since, now)
        self._low_since = None if over or not self._under(load) else _since(self._low_since, now)
        if now - self._changed_at < settings.settle_s:
            return self.level
        if self._high_since is not None and now - self._high_since >= settings.rise_s:
            self._rise(over, now)
        elif self._low_since is not None and self.level:
            quiet_since = max(self._low_since, self._changed_at)
            if now - quiet_since >= settings.fall_s * self._hold:
                self._fall(now)
        return self.level

    def _rise(self, reason: str, now: float) -> None:
        if self.level is OverloadLevel.NO_NEW_SESSIONS:
            return
        # Given back too early: without a longer hold it would go up and down for ever.
        relapsed = now - self._fell_at < RELAPSE_S
        self._hold = min(MAX_HOLD, self._hold * 2) if relapsed else 1
        self.level = OverloadLevel(self.level + 1)
        self.reason = reason
        self._changed_at = now
        self._high_since = None

    def _fall(self, now: float) -> None:
        self.level = OverloadLevel(self.level - 1)
        self._changed_at = self._fell_at = now
        if not self.level:
            self.reason = ""

    def _over(self, load: Load) -> str:
        """What is above its high mark, in words; empty where nothing is."""
        settings = self._settings
        if load.late_share > settings.late_share_high:
            return f"{load.late_share:.0%} of a session's frames are late"
        if load.frame_cost > settings.frame_cost_high:
            return f"a frame takes {load.frame_cost:.0%} of the time there is for it"
        if load.wait_ms > settings.wait_high_ms:
            return f"speech and language wait {load.wait_ms:.0f} ms before they run"
        return ""

    def _under(self, load: Load) -> bool:
        settings = self._settings
        return (
            load.late_share <= settings.late_share_low
            and load.frame_cost <= settings.frame_cost_low
            and load.wait_ms <= settings.wait_low_ms
        )


def _since(moment: float | None, now: float) -> float:
    return now if moment is None else moment
