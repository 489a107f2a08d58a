"""Whether one more session fits: pure policy under an injected clock.

What a session takes is predicted from measured costs (`Demand`), corrected by what the running
ones report of themselves.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from avatar_server.capacity.demand import WHY, Corrections, Demand, Resource, Use
from avatar_server.clock import Clock
from avatar_server.config import Settings
from avatar_server.config.sessions import UNMEASURED_SESSIONS

LEARN_S = 60.0
"""Time constant in which reports move the estimate."""
LEAST_CORRECTION, MOST_CORRECTION = 0.5, 4.0
WINDOW_S = 10.0
"""Over which late frames are counted where it is about a new session."""
MIN_FRAMES = 40
"""In the window, before their lateness says anything."""


@dataclass(frozen=True, slots=True)
class Report:
    """What a session says of itself in a heartbeat. Counters run from its process's start."""

    speaking: bool
    cpu_s: float
    frames: int
    late_frames: int
    reduced: bool = False
    """Its pictures are reduced for the time being: they cost less than they would."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """How many sessions fit, and what would run out with one more."""

    fits: int
    binding: Resource
    uses: tuple[Use, ...]
    """Of `fits` sessions; empty where nothing was measured."""
    measured: bool


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why no session starts now, and what to do; sentences."""

    resource: Resource
    reason: str
    advice: str = "Try again when a session has ended."

    @property
    def detail(self) -> str:
        """Both."""
        return f"{self.reason} {self.advice}"


@dataclass(slots=True)
class _Session:
    at: float
    last: Report
    window: deque[tuple[float, int, int]] = field(default_factory=deque)

    def late_share(self, since: float) -> float:
        """Of the frames that were due since then; 0 where there were too few to tell."""
        first = next((entry for entry in self.window if entry[0] >= since), None)
        if first is None:
            return 0.0
        last = self.window[-1]
        late = last[2] - first[2]
        due = last[1] - first[1] + late
        return late / due if due >= MIN_FRAMES else 0.0


class Admission:
    """Decides about new sessions. Give it a `demand` once costs are measured."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._settings, self._clock = settings, clock
        self._sessions: dict[str, _Session] = {}
        self._frames = self._inference = 1.0
        self._inference_last: tuple[float, float] | None = None
        self.demand: Demand | None = None

    @property
    def corrections(self) -> Corrections:
        """What was learned so far."""
        return Corrections(self._frames, self._inference)

    def late_share(self, window_s: float = WINDOW_S) -> float:
        """Share of late frames of the session that has most, over the last seconds."""
        since = self._clock.now() - min(window_s, WINDOW_S)
        return max((entry.late_share(since) for entry in self._sessions.values()), default=0.0)

    # --- what is reported ---------------------------------------------------------------------

    def report(self, session: str, report: Report) -> None:
        """A heartbeat of a running session."""
        now = self._clock.now()
        entry = self._sessions.get(session)
        if entry is None or report.frames < entry.last.frames:
            # New, or its process was replaced and counts from zero.
            entry = self._sessions[session] = _Session(now, report)
        elif now > entry.at:
            self._learn_frames(entry, report, now - entry.at)
            entry.at, entry.last = now, report
        entry.window.append((now, report.frames, report.late_frames))
        while entry.window[0][0] < now - WINDOW_S:
            entry.window.popleft()

    def forget(self, session: str) -> None:
        """It has ended."""
        self._sessions.pop(session, None)

    def report_inference(self, cpu_s: float, running: int) -> None:
        """CPU seconds that the inference process has used since its start."""
        now, last = self._clock.now(), self._inference_last
        self._inference_last = (now, cpu_s)
        if last is None or cpu_s < last[1] or now <= last[0] or not running or self.demand is None:
            return
        expected = running * self.demand.turn_cost("cpu").total_s
        expected /= self._settings.capacity.turn_interval_s
        if expected <= 0:
            return
        passed_s = now - last[0]
        ratio = (cpu_s - last[1]) / passed_s / expected
        # People who are silent just now may talk in a moment: it never falls below the estimate.
        self._inference = max(1.0, _nearer(self._inference, ratio, passed_s))

    def _learn_frames(self, entry: _Session, report: Report, passed_s: float) -> None:
        """Both ends of the interval in the same state, or it says nothing of either."""
        demand, fps = self.demand, self._settings.media.video.fps
        due = report.frames - entry.last.frames + report.late_frames - entry.last.late_frames
        steady = report.speaking == entry.last.speaking and not report.reduced
        if demand is None or not steady or due < 0.9 * fps * passed_s:
            return
        cores = (report.cpu_s - entry.last.cpu_s) / passed_s
        expected = demand.speaking_cores() if report.speaking else demand.idle_cores()
        if cores >= 0 and expected > 0:
            self._frames = _nearer(self._frames, cores / expected, passed_s)

    # --- what is decided ----------------------------------------------------------------------

    def capacity(self) -> Capacity:
        """How many sessions fit by what is known now; at least one."""
        limit, demand = self._settings.sessions.at_most(), self.demand
        if demand is None:
            fixed = self._settings.sessions.at_most(UNMEASURED_SESSIONS)
            return Capacity(fixed, Resource.LIMIT, (), measured=False)
        learned, fits = self.corrections, 1
        uses = demand.uses(1, learned)
        while fits < limit:
            more = demand.uses(fits + 1, learned)
            if any(use.share > 1 for use in more):
                return Capacity(fits, _worst(more), tuple(uses), measured=True)
            fits, uses = fits + 1, more
        # Nothing else stands against one more session than the setting allows.
        return Capacity(fits, Resource.LIMIT, tuple(uses), measured=True)

    def refusal(self, running: int, free_bytes: int | None = None) -> Refusal | None:
        """Why a session beside `running` others does not fit now; None where it does.

        `free_bytes`: memory that is free now. The first session is refused by nothing that was
        merely predicted.
        """
        capacity = self.capacity()
        if running >= capacity.fits:
            places = "1 session" if capacity.fits == 1 else f"{capacity.fits} sessions"
            return Refusal(
                capacity.binding,
                f"This server has room for {places} and all of it is in use: "
                f"{WHY[capacity.binding]}.",
            )
        if self.demand is None or not running:
            return None
        high = self._settings.capacity.overload.late_share_high
        if (late := self.late_share()) > high:
            return Refusal(
                Resource.CPU,
                f"Of a running session's frames {late:.0%} come too late already: "
                f"{WHY[Resource.CPU]}.",
                "Try again in a moment.",
            )
        if free_bytes is not None and free_bytes < self.demand.session_bytes:
            return Refusal(
                Resource.MEMORY,
                f"Only {free_bytes / 1e6:.0f} MB of memory are free and a session takes "
                f"{self.demand.session_bytes / 1e6:.0f} MB: {WHY[Resource.MEMORY]}.",
            )
        return None


def overloaded(reason: str) -> Refusal:
    """The refusal of the highest overload level."""
    return Refusal(
        Resource.OVERLOAD,
        f"This server is overloaded just now: {reason}.",
        "Try again in a minute.",
    )


def _nearer(value: float, seen: float, passed_s: float) -> float:
    seen = min(max(seen, LEAST_CORRECTION), MOST_CORRECTION)
    return value + (seen - value) * min(1.0, passed_s / LEARN_S)


def _worst(uses: list[Use]) -> Resource:
    return max(uses, key=lambda use: use.share).resource
