"""The queue before one resource (recognition, end-of-turn check, speech, language model).

A job runs in steps that cannot be interrupted: one call, or one piece of speech. After each step
the most urgent job is chosen anew, so a long reply holds nobody up for longer than a piece.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum

from avatar_server.clock import Clock


class Urgency(IntEnum):
    """Classes of work; a lower one always goes first."""

    WAITING = 0
    """Somebody waits in silence: a finished utterance, the first sound of a reply."""
    STREAMING = 1
    """The rest of a reply that is already heard: due when what is buffered runs dry."""
    BEST_EFFORT = 2
    """Worth doing while nothing else is: partial transcripts."""


@dataclass(slots=True, eq=False)
class Job:
    """A piece of work for a resource.

    `stream` groups the jobs of one reply, whose buffered sound counts together. `expires` is the
    clock time from which nobody wants the result. The queue fills in the rest.
    """

    id: str
    session: str
    urgency: Urgency
    stream: str = ""
    expires: float = math.inf
    added_at: float = 0.0
    order: int = 0
    started: bool = False


class ResourceQueue:
    """Jobs waiting for one resource. Not thread-safe: its worker guards it.

    Between jobs of one class the session that was served least of late goes first; between
    replies that are being heard, the one whose sound runs dry first. A reply with more than
    `ahead_s` seconds buffered is held back until it has drained. `limit` bounds the queue.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        ahead_s: float = 3.0,
        limit: int = 64,
        memory_s: float = 10.0,
    ) -> None:
        self._clock = clock
        self._ahead_s = ahead_s
        self._limit = limit
        self._memory_s = memory_s
        self._jobs: dict[str, Job] = {}
        self._running: dict[str, Job] = {}
        self._dry_at: dict[str, float] = {}
        self._served: dict[str, tuple[float, float]] = {}
        self._orders = 0

    def __len__(self) -> int:
        return len(self._jobs)

    @property
    def full(self) -> bool:
        return len(self._jobs) >= self._limit

    def add(self, job: Job) -> bool:
        """Take the job in; false where the queue is full (nothing changes then)."""
        if job.id in self._jobs or job.id in self._running:
            raise ValueError(f"job {job.id!r} is queued already")
        if self.full:
            return False
        self._orders += 1
        job.order = self._orders
        job.added_at = self._clock.now()
        self._jobs[job.id] = job
        return True

    def pop(self) -> Job | None:
        """The job whose next step should run now; it is running until `put_back` or `finish`."""
        now = self._clock.now()
        best = min(
            (job for job in self._jobs.values() if self._ready(job, now)),
            key=lambda job: self._rank(job, now),
            default=None,
        )
        if best is not None:
            del self._jobs[best.id]
            self._running[best.id] = best
        return best

    def put_back(self, job: Job, ran_s: float, produced_s: float = 0.0) -> None:
        """A step ran for `ran_s` and made `produced_s` of sound; there are more steps."""
        self._account(job, ran_s, produced_s)
        if self._running.pop(job.id, None) is not None:
            self._jobs[job.id] = job

    def finish(self, job: Job, ran_s: float, produced_s: float = 0.0) -> None:
        """The job's last step ran."""
        self._account(job, ran_s, produced_s)
        self._running.pop(job.id, None)

    def cancel(self, job_id: str) -> None:
        """The job will not be asked for again; unknown ones are ignored."""
        self._jobs.pop(job_id, None)
        self._running.pop(job_id, None)

    def take_expired(self) -> list[Job]:
        """Waiting jobs whose time is over; they leave the queue."""
        now = self._clock.now()
        expired = [job for job in self._jobs.values() if job.expires <= now and not job.started]
        for job in expired:
            del self._jobs[job.id]
        return expired

    def next_change_s(self) -> float | None:
        """Seconds until `pop` or `take_expired` may answer differently by time alone."""
        now = self._clock.now()
        times = [job.expires for job in self._jobs.values() if not job.started]
        times += [
            self._dry_at[job.stream] - self._ahead_s
            for job in self._jobs.values()
            if not self._ready(job, now)
        ]
        earliest = min(times, default=math.inf)
        return None if earliest == math.inf else max(0.0, earliest - now)

    def set_buffered(self, stream: str, seconds: float) -> None:
        """The player reports how much of the stream it has yet to play."""
        if stream in self._dry_at:
            self._dry_at[stream] = self._clock.now() + max(0.0, seconds)

    def end_stream(self, stream: str) -> None:
        """The reply is over."""
        self._dry_at.pop(stream, None)

    def forget_session(self, session: str) -> None:
        self._served.pop(session, None)

    def _ready(self, job: Job, now: float) -> bool:
        return self._dry_at.get(job.stream, -math.inf) - now <= self._ahead_s

    def _rank(self, job: Job, now: float) -> tuple[float, float, float, int]:
        urgency, dry_at = job.urgency, self._dry_at.get(job.stream)
        if urgency is Urgency.WAITING and dry_at is not None:
            urgency = Urgency.STREAMING
        served = self._served_s(job.session, now)
        if urgency is Urgency.STREAMING:
            due = job.added_at if dry_at is None else dry_at
            return (urgency, due, served, job.order)
        return (urgency, served, job.added_at, job.order)

    def _account(self, job: Job, ran_s: float, produced_s: float) -> None:
        now = self._clock.now()
        job.started = True
        self._served[job.session] = (self._served_s(job.session, now) + ran_s, now)
        if produced_s > 0 and job.stream:
            self._dry_at[job.stream] = max(now, self._dry_at.get(job.stream, now)) + produced_s

    def _served_s(self, session: str, now: float) -> float:
        """Seconds of the resource that the session used, fading with time."""
        amount, at = self._served.get(session, (0.0, now))
        return amount * math.pow(0.5, (now - at) / self._memory_s)
