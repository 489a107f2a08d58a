"""The scheduler: which jobs an engine does next, among all that wait.

Pure logic under an injected clock: it is told what was asked for and what was done, and says what
to do. The inference process drives it from its workers' threads, the simulator and the tests from
virtual time. Whoever drives it from several threads guards it with a lock.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from avatar_server.clock import Clock
from avatar_server.inference.scheduler.costs import CostModel
from avatar_server.inference.scheduler.jobs import Candidate, Device, Engine, Job
from avatar_server.inference.scheduler.policies import POLICIES, Policy
from avatar_server.inference.scheduler.usage import Usage

AHEAD_S = 3.0
"""A reply with more speech buffered than this yields, whatever the policy."""
STREAM_MARGIN_S = 0.3
"""Speech is due this long before the buffered sound runs dry: messages and playout take time, and
one step in twenty takes longer than predicted."""
DEFAULT_DEADLINE_S = 1.0
"""For a job whose deadline nobody knows."""
BEST_EFFORT_DEADLINE_S = 5.0
"""Best effort waits behind all that is due before then, and so for ever by none."""


class Scheduler:
    """Jobs waiting for engines, which share devices.

    A job's life: `add`, then any number of `next_step` → `put_back`, closed by `next_step` →
    `finish`, or by `cancel` or `take_expired` at any moment. `ahead_s` bounds how much of a reply
    is made before it is heard. Raises `ValueError` for an unknown policy, engine or device.
    """

    def __init__(
        self,
        clock: Clock,
        engines: Iterable[Engine],
        devices: Iterable[Device] = (),
        *,
        policy: str = "laxity",
        costs: CostModel | None = None,
        ahead_s: float = AHEAD_S,
    ) -> None:
        if policy not in POLICIES:
            raise ValueError(f"no policy {policy!r}: choose one of {', '.join(POLICIES)}")
        self._clock = clock
        self._policy: Policy = POLICIES[policy]
        self._engines = {engine.name: engine for engine in engines}
        self._devices = {device.name: device for device in devices}
        for engine in self._engines.values():
            if engine.device and engine.device not in self._devices:
                raise ValueError(f"engine {engine.name} is on an unknown device {engine.device!r}")
        self.costs = costs or CostModel()
        self._ahead_s = ahead_s
        self._waiting: dict[str, dict[str, Job]] = {name: {} for name in self._engines}
        self._running: dict[str, dict[str, Job]] = {name: {} for name in self._engines}
        self._busy: set[str] = set()
        self._held: dict[str, int] = dict.fromkeys(self._devices, 0)
        self._dry_at: dict[str, float] = {}
        self._usage = Usage(clock)
        self._missed = dict.fromkeys(self._engines, 0)
        self._orders = 0

    # --- what waits and runs ----------------------------------------------------------------

    def depth(self, engine: str) -> int:
        """Jobs that wait for the engine."""
        return len(self._waiting[engine])

    def running(self, engine: str) -> int:
        """Jobs that the engine does now, together."""
        return len(self._running[engine])

    def missed(self) -> dict[str, int]:
        """Jobs of each engine, so far, with a step that ended after it was due.

        Speech that is heard is due when its sound runs dry. Best effort has no deadline.
        """
        return dict(self._missed)

    @property
    def idle(self) -> bool:
        """Whether nothing waits, runs or is remembered of a reply."""
        jobs = (*self._waiting.values(), *self._running.values())
        return not (any(jobs) or self._busy or self._dry_at or any(self._held.values()))

    def utilisation(self) -> dict[str, float]:
        """Share of the last 10 s or so that each engine was busy, 0..1."""
        return {name: self._usage.busy(name) for name in self._engines}

    def add(self, job: Job) -> bool:
        """Take the job in; false where its engine's queue is full (nothing changes then)."""
        waiting = self._waiting[job.engine]
        if job.id in waiting or job.id in self._running[job.engine]:
            raise ValueError(f"job {job.id!r} is queued already")
        if len(waiting) >= self._engines[job.engine].limit:
            return False
        self._orders += 1
        job.order = self._orders
        job.added_at = self._clock.now()
        job.stage = job.stage or job.engine
        if job.deadline == math.inf:
            wait_s = BEST_EFFORT_DEADLINE_S if job.best_effort else DEFAULT_DEADLINE_S
            job.deadline = job.added_at + wait_s
        waiting[job.id] = job
        return True

    def next_step(self, engine: str) -> list[Job]:
        """The jobs whose next step the engine should do now, together; none where it should wait.

        They are running until `put_back`, `finish` or `cancel`; the engine is busy until
        `step_done`.
        """
        if engine in self._busy:
            raise ValueError(f"engine {engine} is in the middle of a step")
        now = self._clock.now()
        chosen = self._choose(self._engines[engine], now)
        if chosen:
            self._busy.add(engine)
            for job in chosen:
                del self._waiting[engine][job.id]
                self._running[engine][job.id] = job
        return chosen

    # --- what was done ----------------------------------------------------------------------

    def step_done(self, engine: str, jobs: list[Job], ran_s: float) -> None:
        """The engine's step for `jobs` took `ran_s`; then each is put back or finished."""
        self._busy.discard(engine)
        self._usage.ran(engine, ran_s)
        if not jobs:
            return
        self.costs.observe(jobs[0].cost_stage, sum(job.cost_size for job in jobs), ran_s)
        now = self._clock.now()
        for job in jobs:
            due = self._dry_at.get(job.stream, job.deadline) if job.stream else job.deadline
            if now > due and not job.late and not job.best_effort:
                job.late = True
                self._missed[engine] += 1
            job.steps += 1
            job.pieces = max(1, job.pieces - 1)
            self._usage.used(engine, job.session, ran_s / len(jobs))

    def put_back(self, job: Job, produced_s: float = 0.0) -> None:
        """A step made `produced_s` of sound; there are more steps."""
        self._produced(job, produced_s)
        if self._running[job.engine].pop(job.id, None) is not None:
            self._waiting[job.engine][job.id] = job

    def finish(self, job: Job, produced_s: float = 0.0) -> None:
        """The job's last step ran."""
        self._produced(job, produced_s)
        self._running[job.engine].pop(job.id, None)

    def cancel(self, job: Job) -> None:
        """Nobody wants the job any more. A step that runs on keeps its engine busy till done."""
        self._waiting[job.engine].pop(job.id, None)
        self._running[job.engine].pop(job.id, None)

    def take_expired(self, engine: str) -> list[Job]:
        """Waiting jobs whose time is over; they leave the queue."""
        now = self._clock.now()
        waiting = self._waiting[engine]
        expired = [job for job in waiting.values() if job.expires <= now and not job.started]
        for job in expired:
            del waiting[job.id]
        return expired

    def next_change_s(self, engine: str) -> float | None:
        """Seconds until `next_step` or `take_expired` may answer differently by time alone."""
        now = self._clock.now()
        waiting = self._waiting[engine].values()
        times = [job.expires for job in waiting if not job.started]
        times += [
            self._dry_at[job.stream] - self._ahead_s for job in waiting if not self._ready(job, now)
        ]
        earliest = min(times, default=math.inf)
        return None if earliest == math.inf else max(0.0, earliest - now)

    def hold(self, device: str) -> None:
        """Work that decides its own steps (a language model's reply) takes a place."""
        self._held[device] += 1

    def release(self, device: str) -> None:
        """The place taken by `hold` is free again."""
        self._held[device] -= 1

    # --- replies and sessions ---------------------------------------------------------------

    def set_buffered(self, stream: str, seconds: float) -> None:
        """The player reports how much of the stream it has yet to play."""
        if stream in self._dry_at:
            self._dry_at[stream] = self._clock.now() + max(0.0, seconds)

    def add_sound(self, stream: str, seconds: float) -> None:
        """The stream got `seconds` of sound: of a step, or without any."""
        now = self._clock.now()
        self._dry_at[stream] = max(now, self._dry_at.get(stream, now)) + seconds

    def end_stream(self, stream: str) -> None:
        """The reply is over."""
        self._dry_at.pop(stream, None)

    def forget_session(self, session: str) -> None:
        self._usage.forget(session)

    # --- deciding ---------------------------------------------------------------------------

    def _choose(self, engine: Engine, now: float) -> list[Job]:
        ready = [job for job in self._waiting[engine.name].values() if self._ready(job, now)]
        if not ready:
            return []
        if not engine.device or engine.reserved:
            first = self._policy([self._candidate(job, now) for job in ready], now, 1)[0].job
            return self._batch(engine, first, ready, now)
        places = self._places(engine.device)
        if places <= 0:
            return []
        rivals = [
            self._candidate(job, now)
            for name, other in self._engines.items()
            if other.device == engine.device and not other.reserved and name not in self._busy
            for job in self._waiting[name].values()
            if self._ready(job, now)
        ]
        whole = self._devices[engine.device].places
        # All of them, not the best of each engine: speech may break off behind another's step.
        while rivals and places > 0:
            best = self._policy(rivals, now, 1, whole)[0].job
            if best.engine == engine.name:
                return self._batch(engine, best, ready, now)
            rivals = [c for c in rivals if c.job.engine != best.engine]
            places -= 1
        return []

    def _places(self, device: str) -> int:
        busy = sum(
            1
            for name in self._busy
            if self._engines[name].device == device and not self._engines[name].reserved
        )
        # What decides its own steps must not keep all others out.
        held = min(self._held[device], self._devices[device].places - 1)
        return self._devices[device].places - busy - held

    def _batch(self, engine: Engine, first: Job, ready: list[Job], now: float) -> list[Job]:
        batch = [first]
        alike = [
            job
            for job in ready
            if job is not first and job.key == first.key and job.cost_stage == first.cost_stage
        ]
        if engine.batch <= 1 or not first.key or not alike:
            return batch
        lead = self._candidate(first, now)
        size = first.cost_size
        ranked = self._policy([self._candidate(j, now) for j in alike], now, engine.batch - 1)
        for candidate in ranked:
            # Company must not make the first one late that would not be so alone.
            size += candidate.job.cost_size
            end = now + self.costs.predict_s(first.cost_stage, size)
            if end > lead.due >= now + lead.step_s:
                break
            batch.append(candidate.job)
        return batch

    def _ready(self, job: Job, now: float) -> bool:
        return self._dry_at.get(job.stream, -math.inf) - now <= self._ahead_s

    def _candidate(self, job: Job, now: float) -> Candidate:
        dry_at = self._dry_at.get(job.stream) if job.stream else None
        due = job.deadline if dry_at is None else dry_at - STREAM_MARGIN_S
        step_s = self.costs.predict_s(job.cost_stage, job.cost_size)
        later_s = self.costs.predict_s(f"{job.stage}.next") if job.pieces > 1 else 0.0
        return Candidate(
            job,
            due,
            step_s + (job.pieces - 1) * later_s,
            step_s,
            dry_at is not None,
            self._usage.used_s(job.engine, job.session),
        )

    def _produced(self, job: Job, seconds: float) -> None:
        if seconds > 0 and job.stream and job.id in self._running[job.engine]:
            self.add_sound(job.stream, seconds)
