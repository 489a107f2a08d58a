"""A thread that does the work of one resource, in the order that its queue decides.

Models are synchronous and slow; the event loop only hands work over and takes results back.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from avatar_server.clock import Clock
from avatar_server.inference.scheduler import Job, ResourceQueue, Urgency
from avatar_server.protocol.messages import JobTiming

log = logging.getLogger(__name__)

T = TypeVar("T")


class OverloadedError(RuntimeError):
    """The resource has more waiting than it can hold, or the job's time passed in the queue."""


@dataclass(slots=True, eq=False)
class _Work:
    """A job on its way through the thread."""

    job: Job
    make: Callable[[], Iterator[Any]]
    seconds_of: Callable[[Any], float]
    loop: asyncio.AbstractEventLoop
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


class Running(Generic[T]):
    """A job's results as they come; closing it cancels the job."""

    def __init__(self, worker: ResourceWorker, work: _Work) -> None:
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


class ResourceWorker:
    """Owns one daemon thread and one queue; `close` ends both."""

    def __init__(self, name: str, queue: ResourceQueue, clock: Clock) -> None:
        self.name = name
        self._queue = queue
        self._clock = clock
        self._changed = threading.Condition()
        self._works: dict[str, _Work] = {}
        self._orphans: list[_Work] = []
        self._ids = itertools.count(1)
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def depth(self) -> int:
        """Jobs waiting."""
        return len(self._queue)

    async def call(
        self,
        session: str,
        function: Callable[[], T],
        urgency: Urgency = Urgency.WAITING,
        *,
        timeout_s: float = 30.0,
    ) -> tuple[T, JobTiming]:
        """Run `function` on the thread; cancelling the caller drops it where it still waits."""
        running: Running[T] = self.start(
            session, lambda: iter((function(),)), urgency, timeout_s=timeout_s
        )
        async with contextlib.aclosing(running.results()) as results:
            async for value in results:
                return value, running.timing
        raise RuntimeError(f"{self.name} ended without a result")

    def start(
        self,
        session: str,
        make: Callable[[], Iterator[T]],
        urgency: Urgency = Urgency.WAITING,
        *,
        stream: str = "",
        seconds_of: Callable[[T], float] = lambda _: 0.0,
        timeout_s: float = 30.0,
    ) -> Running[T]:
        """Queue an iterator whose every `next` is one step, made and run on the thread.

        `timeout_s` bounds the wait for the first step. Raises `OverloadedError` at once where
        the queue is full.
        """
        job = Job(
            f"{self.name}-{next(self._ids)}",
            session,
            urgency,
            stream=stream,
            expires=self._clock.now() + timeout_s,
        )
        work = _Work(job, make, seconds_of, asyncio.get_running_loop())
        with self._changed:
            if self._closed or not self._queue.add(job):
                raise OverloadedError(f"{self.name}: {len(self._queue)} jobs are waiting already")
            self._works[job.id] = work
            self._changed.notify()
        return Running(self, work)

    def cancel(self, work: _Work) -> None:
        """Forget the work; a step that runs is the last."""
        with self._changed:
            if work.cancelled:
                return
            work.cancelled = True
            self._queue.cancel(work.job.id)
            self._works.pop(work.job.id, None)
            if not work.running and work.iterator is not None:
                self._orphans.append(work)
                self._changed.notify()

    def set_buffered(self, stream: str, seconds: float) -> None:
        """See `ResourceQueue.set_buffered`."""
        with self._changed:
            self._queue.set_buffered(stream, seconds)
            self._changed.notify()

    def end_stream(self, stream: str) -> None:
        with self._changed:
            self._queue.end_stream(stream)

    def forget_session(self, session: str) -> None:
        with self._changed:
            self._queue.forget_session(session)

    def close(self, timeout_s: float = 0.5) -> None:
        """End the thread. A step that runs on is left behind: the thread is a daemon."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while (work := self._next()) is not None:
            self._step(work)

    def _next(self) -> _Work | None:
        while True:
            with self._changed:
                if self._closed:
                    return None
                orphans, self._orphans = self._orphans, []
                for job in self._queue.take_expired():
                    work = self._works.pop(job.id)
                    work.put("error", OverloadedError(f"{self.name}: waited too long for a turn"))
                if not orphans:
                    if (next_job := self._queue.pop()) is not None:
                        work = self._works[next_job.id]
                        work.running = True
                        return work
                    self._changed.wait(self._queue.next_change_s())
            for work in orphans:
                _close(work)

    def _step(self, work: _Work) -> None:
        began = self._clock.now()
        if work.started_at is None:
            work.started_at = began
        kind, value, produced_s = "end", None, 0.0
        try:
            if work.iterator is None:
                work.iterator = work.make()
            value = next(work.iterator)
            kind, produced_s = "item", work.seconds_of(value)
        except StopIteration:
            pass
        except Exception as error:
            kind, value = "error", error
        ran_s = self._clock.now() - began
        with self._changed:
            work.running = False
            work.ran_s += ran_s
            more = kind == "item" and not work.cancelled
            if more:
                self._queue.put_back(work.job, ran_s, produced_s)
            else:
                # Nobody will hear what a cancelled step made.
                self._queue.finish(work.job, ran_s, 0.0 if work.cancelled else produced_s)
                self._works.pop(work.job.id, None)
        if work.cancelled:
            _close(work)
        else:
            work.put(kind, value)


def _close(work: _Work) -> None:
    close = getattr(work.iterator, "close", None)
    if close is None:
        return
    try:
        close()
    except Exception:
        log.exception("a cancelled job could not be closed")
