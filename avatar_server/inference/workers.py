"""Threads that do the engines' work, in the order that the scheduler decides.

Models are synchronous and slow; the event loop only hands work over and takes results back.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import math
import threading
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from avatar_server.clock import Clock
from avatar_server.inference.scheduler import CostModel, Device, Engine, Job, Scheduler
from avatar_server.protocol.messages import JobTiming

log = logging.getLogger(__name__)

T = TypeVar("T")


class OverloadedError(RuntimeError):
    """The engine has more waiting than it can hold, or the job's time passed in the queue."""


@dataclass(slots=True, eq=False)
class _Work:
    """A job on its way through the thread."""

    job: Job
    loop: asyncio.AbstractEventLoop
    make: Callable[[], Iterator[Any]] | None = None
    together: Callable[[Sequence[Any]], Sequence[Any]] | None = None
    item: Any = None
    seconds_of: Callable[[Any], float] = lambda _: 0.0
    results: asyncio.Queue[tuple[str, Any]] = field(default_factory=asyncio.Queue)
    iterator: Iterator[Any] | None = None
    cancelled: bool = False
    running: bool = False
    started_at: float | None = None
    ran_s: float = 0.0

    def put(self, kind: str, value: Any = None) -> None:
        # The loop may be closed where the process ends in the middle of a step.
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self.results.put_nowait, (kind, value))


@dataclass(frozen=True, slots=True)
class Together:
    """A call of several that are queued at once; see `EngineWorker.call_together`."""

    session: str
    item: Any
    deadline: float
    timeout_s: float


class Running(Generic[T]):
    """A job's results as they come; closing it cancels the job."""

    def __init__(self, worker: EngineWorker, work: _Work) -> None:
        self._worker = worker
        self._work = work

    @property
    def timing(self) -> JobTiming:
        """How long the job waited and ran so far."""
        started = self._work.started_at
        queued = 0.0 if started is None else started - self._work.job.added_at
        return JobTiming(queued=queued, ran=self._work.ran_s)

    async def results(self) -> AsyncGenerator[T, None]:
        """Results in order; raises what the work raised, or `OverloadedError`."""
        try:
            while True:
                kind, value = await self._work.results.get()
                if kind == "item":
                    yield value
                elif kind == "end":
                    return
                else:
                    raise value
        finally:
            self._worker.cancel(self._work)

    async def only(self) -> T:
        """The one result; raises as `results` does."""
        async with contextlib.aclosing(self.results()) as results:
            async for value in results:
                return value
        raise RuntimeError(f"{self._worker.name} ended without a result")


class EngineWorker:
    """One engine's daemon thread. Made and closed by `Workers`."""

    def __init__(self, name: str, workers: Workers) -> None:
        self.name = name
        self._scheduler = workers.scheduler
        self._changed = workers.changed
        self._clock = workers.clock
        self._works: dict[str, _Work] = {}
        self._orphans: list[_Work] = []
        self._ids = itertools.count(1)
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def depth(self) -> int:
        """Jobs waiting."""
        return self._scheduler.depth(self.name)

    async def call(
        self,
        session: str,
        function: Callable[[], T],
        *,
        stage: str = "",
        size: float = 1.0,
        deadline: float = math.inf,
        best_effort: bool = False,
        timeout_s: float = 30.0,
    ) -> tuple[T, JobTiming]:
        """Run `function` on the thread; cancelling the caller drops it where it still waits.

        `stage`, `size`, `deadline` (clock) and `best_effort` are what the scheduler goes by: see
        `Job`. `timeout_s` bounds the wait. Raises what `function` raises, or `OverloadedError`.
        """
        return await self.call_together(
            session,
            None,
            lambda _: [function()],
            stage=stage,
            size=size,
            deadline=deadline,
            best_effort=best_effort,
            timeout_s=timeout_s,
            key="",
        )

    async def call_together(
        self,
        session: str,
        item: Any,
        function: Callable[[Sequence[Any]], Sequence[T]],
        *,
        key: str,
        stage: str = "",
        size: float = 1.0,
        deadline: float = math.inf,
        best_effort: bool = False,
        timeout_s: float = 30.0,
    ) -> tuple[T, JobTiming]:
        """As `call`, for a backend that batches: `function` gets the items of several calls with
        the same `key`, as many as the engine's batch size allows, and gives a result for each."""
        job = self._job(session, stage, size, deadline, best_effort, timeout_s)
        job.key = key
        work = _Work(job, asyncio.get_running_loop(), together=function, item=item)
        self._add(work)
        running: Running[T] = Running(self, work)
        return await running.only(), running.timing

    def start_together(
        self,
        wanted: Sequence[Together],
        function: Callable[[Sequence[Any]], Sequence[T]],
        *,
        key: str,
        stage: str = "",
    ) -> list[Running[T]]:
        """Queue several at once, so that the first step already takes as many as it may.

        Each ends with one result (`Running.only`). Raises `OverloadedError`, and queues nothing,
        where there is no room for all.
        """
        loop = asyncio.get_running_loop()
        works = []
        for each in wanted:
            job = self._job(each.session, stage, 1.0, each.deadline, False, each.timeout_s)
            job.key = key
            works.append(_Work(job, loop, together=function, item=each.item))
        with self._changed:
            added = []
            try:
                for work in works:
                    self._add(work)
                    added.append(work)
            except OverloadedError:
                for work in added:
                    self.cancel(work)
                raise
        return [Running(self, work) for work in works]

    def start(
        self,
        session: str,
        make: Callable[[], Iterator[T]],
        *,
        stage: str = "",
        size: float = 1.0,
        deadline: float = math.inf,
        stream: str = "",
        seconds_of: Callable[[T], float] = lambda _: 0.0,
        best_effort: bool = False,
        timeout_s: float = 30.0,
    ) -> Running[T]:
        """Queue an iterator whose every `next` is one step, made and run on the thread.

        `timeout_s` bounds the wait for the first step. Raises `OverloadedError` at once where
        the queue is full.
        """
        job = self._job(session, stage, size, deadline, best_effort, timeout_s)
        job.stream = stream
        work = _Work(job, asyncio.get_running_loop(), make=make, seconds_of=seconds_of)
        self._add(work)
        return Running(self, work)

    def cancel(self, work: _Work) -> None:
        """Forget the work; a step that runs is the last."""
        with self._changed:
            if work.cancelled:
                return
            work.cancelled = True
            self._scheduler.cancel(work.job)
            self._works.pop(work.job.id, None)
            if not work.running and work.iterator is not None:
                self._orphans.append(work)
            self._changed.notify_all()

    def set_buffered(self, stream: str, seconds: float) -> None:
        """See `Scheduler.set_buffered`."""
        with self._changed:
            self._scheduler.set_buffered(stream, seconds)
            self._changed.notify_all()

    def add_sound(self, stream: str, seconds: float) -> None:
        """See `Scheduler.add_sound`."""
        with self._changed:
            self._scheduler.add_sound(stream, seconds)

    def end_stream(self, stream: str) -> None:
        with self._changed:
            self._scheduler.end_stream(stream)

    def end(self) -> None:
        """Take no more work; the thread ends after the step that runs."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def join(self, timeout_s: float) -> None:
        """Wait for the thread. A step that runs on is left behind: the thread is a daemon."""
        self._thread.join(timeout_s)

    def _job(
        self,
        session: str,
        stage: str,
        size: float,
        deadline: float,
        best_effort: bool,
        timeout_s: float,
    ) -> Job:
        return Job(
            f"{self.name}-{next(self._ids)}",
            session,
            self.name,
            stage,
            size,
            deadline,
            expires=self._clock.now() + timeout_s,
            best_effort=best_effort,
        )

    def _add(self, work: _Work) -> None:
        with self._changed:
            if self._closed or not self._scheduler.add(work.job):
                raise OverloadedError(f"{self.name}: {self.depth} jobs are waiting already")
            self._works[work.job.id] = work
            self._changed.notify_all()

    def _run(self) -> None:
        while works := self._next():
            self._step(works)

    def _next(self) -> list[_Work]:
        while True:
            with self._changed:
                if self._closed:
                    return []
                orphans, self._orphans = self._orphans, []
                for job in self._scheduler.take_expired(self.name):
                    work = self._works.pop(job.id)
                    work.put("error", OverloadedError(f"{self.name}: waited too long for a turn"))
                if not orphans:
                    if jobs := self._scheduler.next_step(self.name):
                        works = [self._works[job.id] for job in jobs]
                        for work in works:
                            work.running = True
                        return works
                    self._changed.wait(self._scheduler.next_change_s(self.name))
            for work in orphans:
                _close(work)

    def _step(self, works: list[_Work]) -> None:
        began = self._clock.now()
        for work in works:
            if work.started_at is None:
                work.started_at = began
        kind, values = _do(works)
        ran_s = self._clock.now() - began
        with self._changed:
            # Only what made something says what a step costs.
            jobs = [work.job for work in works] if kind == "item" else []
            self._scheduler.step_done(self.name, jobs, ran_s)
            for work, value in zip(works, values, strict=True):
                self._settle(work, kind, value, ran_s)
            self._changed.notify_all()
        for work, value in zip(works, values, strict=True):
            if work.cancelled:
                _close(work)
            else:
                work.put(kind, value)

    def _settle(self, work: _Work, kind: str, value: Any, ran_s: float) -> None:
        work.running = False
        work.ran_s += ran_s
        # Nobody will hear what a cancelled step made.
        made = kind == "item" and not work.cancelled
        produced_s = work.seconds_of(value) if made else 0.0
        if made and work.together is None:
            self._scheduler.put_back(work.job, produced_s)
        else:
            self._scheduler.finish(work.job, produced_s)
            self._works.pop(work.job.id, None)


class Workers:
    """A thread for each engine, all led by one scheduler. Used on one event loop."""

    def __init__(
        self,
        clock: Clock,
        engines: Iterable[Engine],
        devices: Iterable[Device] = (),
        *,
        policy: str = "laxity",
        costs: CostModel | None = None,
        ahead_s: float = 3.0,
    ) -> None:
        self.clock = clock
        self.changed = threading.Condition()
        engines = list(engines)
        self.scheduler = Scheduler(
            clock, engines, devices, policy=policy, costs=costs, ahead_s=ahead_s
        )
        self._workers = {engine.name: EngineWorker(engine.name, self) for engine in engines}

    def __getitem__(self, engine: str) -> EngineWorker:
        return self._workers[engine]

    @property
    def costs(self) -> CostModel:
        """What the work cost so far, for predicting."""
        return self.scheduler.costs

    def depths(self) -> dict[str, int]:
        """Jobs waiting for each engine."""
        return {name: worker.depth for name, worker in self._workers.items()}

    def running(self) -> dict[str, int]:
        """Jobs that each engine does now."""
        with self.changed:
            return {name: self.scheduler.running(name) for name in self._workers}

    def missed(self) -> dict[str, int]:
        """See `Scheduler.missed`."""
        with self.changed:
            return self.scheduler.missed()

    def utilisation(self) -> dict[str, float]:
        """See `Scheduler.utilisation`."""
        with self.changed:
            return self.scheduler.utilisation()

    def observe(self, stage: str, size: float, seconds: float) -> None:
        """Teach the cost model what no step of a worker shows."""
        with self.changed:
            self.scheduler.costs.observe(stage, size, seconds)

    def learned_costs(self) -> dict[str, Any]:
        """See `CostModel.snapshot`."""
        with self.changed:
            return self.scheduler.costs.snapshot()

    def restore_costs(self, learned: dict[str, Any]) -> None:
        """See `CostModel.restore`. Raises `ValueError`."""
        with self.changed:
            self.scheduler.costs.restore(learned)

    @contextlib.contextmanager
    def holding(self, device: str | None) -> Iterator[None]:
        """Take a place of the device, where there is one, for work that decides its own steps."""
        if device is None:
            yield
            return
        with self.changed:
            self.scheduler.hold(device)
        try:
            yield
        finally:
            with self.changed:
                self.scheduler.release(device)
                self.changed.notify_all()

    def forget_session(self, session: str) -> None:
        """The session is over."""
        with self.changed:
            self.scheduler.forget_session(session)

    def close(self, timeout_s: float = 0.5) -> None:
        """End all threads, waiting for each at most this long."""
        for worker in self._workers.values():
            worker.end()
        for worker in self._workers.values():
            worker.join(timeout_s)


def _do(works: list[_Work]) -> tuple[str, Sequence[Any]]:
    """The next step of `works`: what came of it, and a value for each."""
    work = works[0]
    try:
        if work.together is not None:
            results = work.together([each.item for each in works])
            if len(results) != len(works):
                raise RuntimeError(f"{len(works)} jobs gave {len(results)} results")
            return "item", results
        if work.iterator is None:
            assert work.make is not None
            work.iterator = work.make()
        return "item", [next(work.iterator)]
    except StopIteration:
        return "end", [None]
    except Exception as error:
        return "error", [error] * len(works)


def _close(work: _Work) -> None:
    close = getattr(work.iterator, "close", None)
    if close is None:
        return
    try:
        close()
    except Exception:
        log.exception("a cancelled job could not be closed")
