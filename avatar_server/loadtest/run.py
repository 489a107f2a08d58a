"""One run of the load test: viewers in, talk, watch, out; everything noted in a `RunRecord`."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from typing import Any, Protocol

from avatar_server.config import LoadTestSettings
from avatar_server.loadtest.crew import VIEWERS_PER_PROCESS, Crew
from avatar_server.loadtest.plan import KillOrder, LoadPlan
from avatar_server.loadtest.record import Kill, RunRecord
from avatar_server.loadtest.results import (
    ANY_REPORT,
    Command,
    Finished,
    Joined,
    Order,
    Refused,
    Second,
    Settled,
    Talked,
    Turn,
)
from avatar_server.loadtest.target import LoadError, Pids, Target, kill
from avatar_server.loadtest.usage import AVATAR, UsageMeter

_JOIN_TIMEOUT_S = 60.0
"""A session's start, with the imports of its viewers' process, on a machine under full load."""
_SETTLE_TIMEOUT_S = 75.0
_LAST_TURN_S = 60.0
"""After the measured time: the last question, its answer, and the viewer's patience."""
_RESULTS_TIMEOUT_S = 30.0
_LEAD_S = 1.0
_REFRESH_S = 5.0
_POLL_S = 0.2
_FASTEST_POLL_S = 0.05


class Progress(Protocol):
    """What a run tells while it goes on."""

    def phase(self, text: str) -> None:
        """What is done now, in words."""
        ...

    def report(self, report: ANY_REPORT) -> None:
        """Something that a viewers' process said."""
        ...

    def second(self, record: RunRecord) -> None:
        """Once a second while measuring; `record.usage` has a new entry."""
        ...


class LoadRun:
    """Runs `plan` against `target`."""

    def __init__(
        self, target: Target, plan: LoadPlan, settings: LoadTestSettings, progress: Progress
    ) -> None:
        self._target, self._plan, self._settings = target, plan, settings
        self._progress = progress
        self._record = RunRecord(plan.sessions, plan.viewers, plan.talkers)
        # By session's number:
        self._processes: Counter[int] = Counter()
        self._settled: Counter[int] = Counter()
        self._talked: Counter[int] = Counter()
        self._viewers: Counter[int] = Counter()
        self._changed = asyncio.Event()
        self._usage = UsageMeter()
        self._pids = Pids()
        self._pids_at = 0.0
        self._peaks: dict[str, float] = {}

    async def run(self) -> RunRecord:
        """Raises `LoadError` and `CrewError`."""
        record, plan = self._record, self._plan
        avatars = await self._target.avatars(plan.avatars)
        status = await self._target.get("/v1/status")
        record.server = {"version": status["version"], "models": status["models"]}
        if plan.kills and (await self._target.pids()).gateway is None:
            raise LoadError("--kill needs a server whose processes are on this machine")
        try:
            async with Crew(self._on_report) as crew:
                await self._join(crew, avatars)
                await self._measure(crew)
                self._progress.phase("collecting")
                crew.tell(Command(do="end"))
                wanted = self._viewers.total()
                await self._until(crew, lambda: len(record.finished) >= wanted, _RESULTS_TIMEOUT_S)
        finally:
            for joined in record.joined.values():
                await self._target.end_session(joined.id)
        return record

    # --- joining ----------------------------------------------------------------------------

    async def _join(self, crew: Crew, avatars: list[dict[str, Any]]) -> None:
        plan, settings = self._plan, self._settings
        for number in range(plan.sessions):
            self._progress.phase(f"session {number + 1} of {plan.sessions} joins")
            avatar = avatars[number % len(avatars)]
            count = min(plan.viewers, VIEWERS_PER_PROCESS)
            order = Order(
                url=self._target.url,
                session=number,
                avatar=avatar["name"],
                viewers=count,
                talks=number < plan.talkers,
                greets=bool(avatar.get("greeting")),
                speech=str(plan.speech),
                seed=plan.seed,
                answer_timeout_s=settings.answer_timeout_s,
                interrupt_share=settings.interrupt_share,
                pause_s=(settings.pause_min_s, settings.pause_max_s),
            )
            await self._start(crew, order)
            # One after another, as people come: joining itself is not what is measured.
            await self._until(crew, lambda n=number: self._known(n), _JOIN_TIMEOUT_S)
            joined = self._record.joined.get(number)
            for first in range(count, plan.viewers, VIEWERS_PER_PROCESS):
                if joined is not None:
                    order.first, order.id, order.talks = first, joined.id, False
                    order.viewers = min(VIEWERS_PER_PROCESS, plan.viewers - first)
                    await self._start(crew, order)
        self._progress.phase("the avatars greet")
        await self._until(crew, lambda: self._all(self._settled), _SETTLE_TIMEOUT_S)

    async def _start(self, crew: Crew, order: Order) -> None:
        self._processes[order.session] += 1
        self._viewers[order.session] += order.viewers
        await crew.start(order)

    def _known(self, number: int) -> bool:
        return number in self._record.joined or any(
            refused.session == number for refused in self._record.refused
        )

    # --- measuring --------------------------------------------------------------------------

    async def _measure(self, crew: Crew) -> None:
        record = self._record
        record.start = time.monotonic() + _LEAD_S
        record.end = record.start + self._plan.duration_s
        if not record.joined:
            return
        self._progress.phase("measuring")
        before = await self._target.metrics()
        crew.tell(Command(do="talk", until=record.end))
        sampling = asyncio.create_task(self._sample(crew))
        killing = asyncio.create_task(self._kill_all())
        try:
            await self._until(
                crew,
                lambda: self._all(self._talked),
                self._plan.duration_s + _LEAD_S + _LAST_TURN_S,
            )
            if killing.done():
                killing.result()
            after = await self._target.metrics()
        finally:
            for task in (sampling, killing):
                task.cancel()
            await asyncio.gather(sampling, killing, return_exceptions=True)
        record.server["metrics"] = {
            name: round(value - before.get(name, 0.0), 4)
            for name, value in after.items()
            if value != before.get(name, 0.0)
        }
        record.server["peaks"] = self._peaks
        record.server["capacity"] = await self._target.get_if_there("/v1/capacity")
        record.server["turns"] = {
            number: (await self._target.get(f"/v1/sessions/{joined.id}/turns"))["turns"]
            for number, joined in record.joined.items()
        }

    def _all(self, done: Counter[int]) -> bool:
        """Whether every process of the sessions that were let in has said so."""
        return all(done[number] >= self._processes[number] for number in self._record.joined)

    async def _sample(self, crew: Crew) -> None:
        await self._refresh(crew)
        await asyncio.to_thread(self._usage.sample, self._named(crew))
        while True:
            await asyncio.sleep(1.0)
            if time.monotonic() - self._pids_at > _REFRESH_S:
                await self._refresh(crew)
            # On a thread: asking a GPU takes a while.
            self._record.usage.append(
                await asyncio.to_thread(self._usage.sample, self._named(crew))
            )
            self._progress.second(self._record)

    def _named(self, crew: Crew) -> dict[int, str]:
        numbers = {joined.id: number for number, joined in self._record.joined.items()}
        return self._pids.named(numbers, os.getpid(), crew.pids)

    async def _refresh(self, crew: Crew) -> None:
        self._pids_at = time.monotonic()
        try:
            self._pids = await self._target.pids()
            metrics = await self._target.metrics()
        except LoadError:
            return  # busy; the next time will do
        for name, value in metrics.items():
            if name.startswith(("avatar_inference_queue_depth", "avatar_overload_level")):
                self._peaks[name] = max(value, self._peaks.get(name, 0.0))

    # --- killing ----------------------------------------------------------------------------

    async def _kill_all(self) -> None:
        await asyncio.gather(*(self._kill(order) for order in self._plan.kills))

    async def _kill(self, order: KillOrder) -> None:
        await asyncio.sleep(max(0.0, self._record.start + order.at_s - time.monotonic()))
        pids = await self._target.pids()
        if order.process == AVATAR:
            joined = self._record.joined.get(order.number)
            if joined is None:
                name = f"{AVATAR} {order.number + 1}"
                self._record.notes.append(f"{name} was not killed: its session was refused")
                return
            pid, name = pids.avatars.get(joined.id), f"{AVATAR} {order.number + 1}"
            session = order.number
        else:
            pid, name, session = pids.inference, order.process, None
        if pid is None:
            raise LoadError(f"{name} is not running: it cannot be killed")
        kill(pid)
        entry = Kill(name, pid, time.monotonic(), session)
        self._record.kills.append(entry)
        # The server is asked until it is: nothing tells us.
        while not await self._is_back(entry):  # noqa: ASYNC110
            await asyncio.sleep(_FASTEST_POLL_S if session is not None else _POLL_S)
        self._pids_at = 0.0
        entry.back_at = time.monotonic()

    async def _is_back(self, entry: Kill) -> bool:
        if entry.session is not None:
            # Back for its viewers: they are in again.
            return self._record.joined[entry.session].at > entry.at
        return await self._target.ready_inference() not in (None, entry.pid)

    # --- reports ----------------------------------------------------------------------------

    def _on_report(self, report: ANY_REPORT) -> None:
        match report:
            case Joined():
                self._record.joined[report.session] = report
            case Refused():
                self._record.refused.append(report)
                # Without its first viewer there is no session.
                gone = self._viewers[report.session] if report.viewer == 0 else 1
                self._viewers[report.session] -= gone
            case Settled():
                self._settled[report.session] += 1
            case Talked():
                self._talked[report.session] += 1
            case Turn():
                self._record.turns.append(report)
            case Finished():
                self._record.finished.append(report)
            case Second():
                pass
        self._progress.report(report)
        self._changed.set()

    async def _until(self, crew: Crew, condition: Any, timeout_s: float) -> None:
        """Wait for reports that make `condition` true; without them the run goes on as it is."""

        async def wait() -> None:
            while not condition():
                self._changed.clear()
                await self._changed.wait()

        try:
            await crew.wait(asyncio.wait_for(wait(), timeout_s))
        except TimeoutError:
            return
