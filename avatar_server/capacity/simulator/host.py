"""A virtual host: engines led by the server's scheduler, a language model, and frames."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass

from avatar_server.capacity.simulator.devices import SharedDevice, Timeline
from avatar_server.capacity.simulator.profile import Profile, StageCostOf
from avatar_server.inference.host import PRIORS
from avatar_server.inference.scheduler import CostModel, Device, Engine, Job, Scheduler

CPU, GPU = "cpu", "gpu"
FRAME_JITTER_P95_S = 0.010
"""What frames wait for inference in the middle of a time slice, at the 95th percentile: measured
with inference under SCHED_BATCH and nice 10 (design, section 1)."""


@dataclass(slots=True)
class Task:
    """A scheduler's job with what it leads to: `step` is called with the number of each step that
    is done, and says how many seconds of sound it made, or None where it was the last."""

    job: Job
    step: Callable[[int], float | None]


@dataclass(slots=True, eq=False)
class Decoding:
    """A reply of the language model on its way; `on_token` is told how many tokens there are."""

    prompt_tokens: float
    reply_tokens: int
    on_token: Callable[[int], None]
    made: int = 0
    cancelled: bool = False


@dataclass(slots=True)
class FrameCount:
    """Frames of all sessions."""

    total: int = 0
    late: int = 0


class Host:
    """Runs tasks as the server would, in virtual time.

    Frames drawn in the sessions' own processes come before all inference: they take CPU away from
    it. Those drawn in a batch on the GPU are an engine of the scheduler, with a place of its own.
    """

    def __init__(self, profile: Profile, policy: str, seed: int) -> None:
        self.profile = profile
        self.timeline = Timeline()
        self.devices = {
            name: SharedDevice(self.timeline, device.capacity)
            for name, device in profile.devices.items()
        }
        self.frames = FrameCount()
        self._costs: dict[str, StageCostOf] = {
            "stt": profile.stt,
            "endpoint": profile.endpoint,
            "retrieve": profile.retrieve,
            "tts": profile.tts_first,
            "tts.next": profile.tts_next,
        }
        self._draw = random.Random(f"{seed}/costs")
        self._frames_draw = random.Random(f"{seed}/frames")
        gpu = GPU if GPU in profile.devices else ""
        engines = [
            Engine("stt", profile.stt.batch, profile.stt.device),
            Engine("endpoint", profile.endpoint.batch, profile.endpoint.device),
            Engine("retrieve"),
            Engine("tts", profile.tts_first.batch, profile.tts_first.device),
            Engine("render", 1_000, gpu, reserved=True, limit=10_000),
        ]
        self.scheduler = Scheduler(
            self.timeline.clock,
            engines,
            [Device(name, device.places) for name, device in profile.devices.items()],
            policy=policy,
            costs=CostModel(PRIORS),
        )
        self._engines = [engine.name for engine in engines]
        self._tasks: dict[str, Task] = {}
        self._busy: set[str] = set()
        self._wakes: dict[str, float] = {}
        self._llm: list[Decoding] = []
        self._llm_running = False
        self._speaking: set[int] = set()
        self._sessions = 0
        self._ids = 0
        self._tick = 0

    # --- tasks of the scheduler's engines -----------------------------------------------------

    def submit(
        self,
        engine: str,
        session: int,
        step: Callable[[int], float | None],
        *,
        size: float = 1.0,
        deadline: float = math.inf,
        stream: str = "",
        key: str = "",
        expires: float = math.inf,
    ) -> Task:
        """Queue a job; see `Task`."""
        self._ids += 1
        job = Job(str(self._ids), str(session), engine, size=size, deadline=deadline)
        job.stream, job.key, job.expires = stream, key, expires
        task = Task(job, step)
        if self.scheduler.add(job):
            self._tasks[job.id] = task
        return task

    def cancel(self, task: Task) -> None:
        """The task's result is not wanted any more."""
        self.scheduler.cancel(task.job)
        self._tasks.pop(task.job.id, None)

    def dispatch(self) -> None:
        """Start what may start now."""
        for job in self.scheduler.take_expired("render"):
            # A picture that nobody will see any more is not drawn.
            self._tasks.pop(job.id, None)
            self.frames.total += 1
            self.frames.late += 1
        for engine in self._engines:
            if engine in self._busy:
                continue
            if jobs := self.scheduler.next_step(engine):
                self._start(engine, jobs)
            elif (wait_s := self.scheduler.next_change_s(engine)) is not None:
                when = self.timeline.now() + wait_s + 1e-6
                if not self.timeline.now() < self._wakes.get(engine, 0.0) <= when:
                    self._wakes[engine] = when
                    self.timeline.at(when, lambda: None)

    def _start(self, engine: str, jobs: list[Job]) -> None:
        self._busy.add(engine)
        began = self.timeline.now()

        def done() -> None:
            self._step_done(engine, jobs, self.timeline.now() - began)

        name = GPU if engine == "render" else self._costs[engine].device
        self._run(name, self._cost_s(engine, jobs), done)

    def _run(self, device: str, seconds: float, done: Callable[[], None]) -> None:
        if (shared := self.devices.get(device)) is not None:
            shared.start(seconds, done)
        else:
            self.timeline.after(seconds, done)

    def _step_done(self, engine: str, jobs: list[Job], ran_s: float) -> None:
        self._busy.discard(engine)
        self.scheduler.step_done(engine, jobs, ran_s)
        for job in jobs:
            task = self._tasks.get(job.id)
            made = task.step(job.steps) if task is not None else None
            if made is None:
                self.scheduler.finish(job)
                self._tasks.pop(job.id, None)
            else:
                self.scheduler.put_back(job, made)

    def _cost_s(self, engine: str, jobs: list[Job]) -> float:
        if engine == "render":
            frames = self.profile.frames
            return (frames.draw_ms + (len(jobs) - 1) * frames.draw_ms_per_face) / 1e3
        cost, piece_s = self._costs[jobs[0].cost_stage], self.profile.piece_s
        size = sum(piece_s if job.started else job.size for job in jobs)
        noise = math.exp(self._draw.gauss(-(cost.spread**2) / 2, cost.spread))
        return (cost.fixed_ms + cost.per_unit_ms * size) / 1e3 * noise

    # --- the language model -------------------------------------------------------------------

    def decode(self, decoding: Decoding) -> None:
        """Read the prompt, then write; it takes a place of its device, as in the server."""
        self._llm.append(decoding)
        if self.profile.llm.device in self.devices:
            self.scheduler.hold(self.profile.llm.device)
        self._llm_step()

    def cancel_decoding(self, decoding: Decoding) -> None:
        """Stop it; its place in the next step is free."""
        decoding.cancelled = True
        self._leave(decoding)

    def _leave(self, decoding: Decoding) -> None:
        if decoding in self._llm:
            self._llm.remove(decoding)
            if self.profile.llm.device in self.devices:
                self.scheduler.release(self.profile.llm.device)

    def _llm_step(self) -> None:
        if self._llm_running or not self._llm:
            return
        cost, active = self.profile.llm, self._llm[: self.profile.llm.sequences]
        room = float(cost.read_tokens)
        reading: list[tuple[Decoding, float]] = []
        for decoding in active:
            if decoding.prompt_tokens > 0 and room > 0:
                part = min(room, decoding.prompt_tokens)
                reading.append((decoding, part))
                room -= part
        writing = [d for d in active if d.prompt_tokens <= 0]
        step_ms = sum(part for _, part in reading) * cost.read_ms_per_token
        if writing:
            step_ms += cost.step_ms + (len(writing) - 1) * cost.step_ms_per_sequence
        self._llm_running = True

        def done() -> None:
            self._llm_running = False
            for decoding, part in reading:
                decoding.prompt_tokens -= part
            for decoding in writing:
                if not decoding.cancelled:
                    decoding.made += 1
                    if decoding.made >= decoding.reply_tokens:
                        self._leave(decoding)
                    decoding.on_token(decoding.made)
            self._llm_step()

        self._run(cost.device, step_ms / 1e3, done)

    # --- frames -------------------------------------------------------------------------------

    def start_frames(self, sessions: int) -> None:
        """From now on every session's frame is due at each tick."""
        self._sessions = sessions
        self._set_background()
        self._tick_frames()

    def set_speaking(self, session: int, speaking: bool) -> None:
        """A speaking face costs more than one at rest."""
        (self._speaking.add if speaking else self._speaking.discard)(session)
        self._set_background()

    def _set_background(self) -> None:
        frames, speaking = self.profile.frames, len(self._speaking)
        own_ms = frames.draw_ms if frames.draw_device == "own" else 0.0
        ms_per_tick = speaking * (own_ms + frames.encode_ms)
        ms_per_tick += (self._sessions - speaking) * frames.idle_ms
        cores = frames.fps * ms_per_tick / 1e3 + self._sessions * frames.session_cores
        cpu = self.devices[CPU]
        cores = min(cores + self.profile.turn.gateway_cores, cpu.capacity)
        # Others' processes have no higher priority than ours: they get no more than a half.
        others = min(self._sessions * self.profile.other_cores, (cpu.capacity - cores) / 2)
        cpu.set_background(cores + others)

    def _tick_frames(self) -> None:
        frames = self.profile.frames
        period_s = 1 / frames.fps
        self._tick += 1
        if frames.draw_device == "gpu":
            due = self.timeline.now() + period_s
            for session in range(self._sessions):
                drawn, key = self._drawn(due + period_s), f"tick-{self._tick}"
                self.submit("render", session, drawn, deadline=due, key=key, expires=due + period_s)
        else:
            self._frames_of_own_processes(period_s)
        self.timeline.after(period_s, self._tick_frames)

    def _drawn(self, late_after: float) -> Callable[[int], float | None]:
        def step(_: int) -> None:
            self.frames.total += 1
            encoded = self.timeline.now() + self.profile.frames.encode_ms / 1e3
            self.frames.late += encoded > late_after

        return step

    def _frames_of_own_processes(self, period_s: float) -> None:
        """All frames of a tick, laid out over the cores; late are those not done by the next."""
        frames, draw = self.profile.frames, self._frames_draw
        whole = max(1, round(self.devices[CPU].capacity))
        own = self._sessions * frames.session_cores / whole
        others = min(self._sessions * self.profile.other_cores / whole, 0.5)
        speed = max(0.05, 1 - own - others)
        cores = [0.0] * whole
        busy = bool(self._busy or self._llm)
        for session in range(self._sessions):
            ms = frames.draw_ms + frames.encode_ms if session in self._speaking else frames.idle_ms
            core = min(range(whole), key=cores.__getitem__)
            cores[core] += ms / 1e3 * math.exp(draw.gauss(0, 0.25)) / speed
            jitter = draw.expovariate(math.log(20) / FRAME_JITTER_P95_S) if busy else 0.0
            self.frames.total += 1
            self.frames.late += cores[core] + jitter > period_s

    # --- figures ------------------------------------------------------------------------------

    def utilisation(self) -> dict[str, float]:
        """Share of each device's capacity that was used so far."""
        used = {}
        for name, device in self.devices.items():
            device.settle()
            used[name] = round(device.busy_s / (device.capacity * self.timeline.now()), 4)
        return used
