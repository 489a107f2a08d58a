"""The thread that does a resource's work."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Iterator, Sequence

import pytest

from avatar_server.clock import ManualClock, MonotonicClock
from avatar_server.inference.scheduler import Device, Engine
from avatar_server.inference.workers import EngineWorker, OverloadedError, Workers


@contextlib.asynccontextmanager
async def worker(**options: int) -> AsyncIterator[EngineWorker]:
    workers = Workers(MonotonicClock(), [Engine("test", **options)])  # type: ignore[arg-type]
    try:
        yield workers["test"]
    finally:
        workers.close(2.0)


async def occupy(made: EngineWorker, release: threading.Event) -> asyncio.Task[object]:
    """A job that runs until `release` is set."""
    begun = threading.Event()
    busy = asyncio.create_task(made.call("busy", lambda: (begun.set(), release.wait(10))))
    await asyncio.to_thread(begun.wait, 10)
    return busy


def test_a_call_gives_its_result_and_how_long_it_took() -> None:
    async def run() -> None:
        async with worker() as made:
            value, timing = await made.call("s", lambda: (time.sleep(0.02), 7)[1])
            assert value == 7
            assert timing.ran >= 0.02
            assert timing.queued >= 0.0

    asyncio.run(run())


def test_an_error_reaches_the_caller_and_the_thread_goes_on() -> None:
    async def run() -> None:
        async with worker() as made:
            with pytest.raises(ZeroDivisionError):
                await made.call("s", lambda: 1 // 0)
            assert (await made.call("s", lambda: 1))[0] == 1

    asyncio.run(run())


def test_closing_the_results_closes_the_generator_on_its_thread() -> None:
    closed_on: list[str] = []
    closed = threading.Event()

    def numbers() -> Iterator[int]:
        try:
            yield from range(1_000_000)
        finally:
            closed_on.append(threading.current_thread().name)
            closed.set()

    async def run() -> None:
        async with worker() as made:
            async with contextlib.aclosing(made.start("s", numbers).results()) as results:
                async for number in results:
                    if number == 3:
                        break
            assert await asyncio.to_thread(closed.wait, 5)
            assert made.depth == 0
            assert (await made.call("s", lambda: 1))[0] == 1

    asyncio.run(run())
    assert closed_on == ["test"]


def test_the_first_piece_of_one_reply_comes_between_the_pieces_of_another() -> None:
    order: list[str] = []
    begun, go = threading.Event(), threading.Event()

    def pieces(name: str, count: int) -> Iterator[str]:
        for number in range(count):
            if name == "long" and number == 1:
                begun.set()
                go.wait(5)
            order.append(f"{name}{number}")
            yield name

    async def run() -> None:
        async with worker() as made:

            async def read(name: str, count: int) -> None:
                running = made.start(
                    name, lambda: pieces(name, count), stream=name, seconds_of=lambda _: 1.0
                )
                async for _ in running.results():
                    pass

            long = asyncio.create_task(read("long", 4))
            await asyncio.to_thread(begun.wait, 5)
            short = asyncio.create_task(read("short", 1))
            await asyncio.sleep(0)
            go.set()
            await asyncio.gather(long, short)

    asyncio.run(run())
    assert order.index("short0") < order.index("long2")


def test_a_full_queue_refuses_at_once() -> None:
    release = threading.Event()

    async def run() -> None:
        async with worker(limit=1) as made:
            busy = await occupy(made, release)
            waiting = asyncio.create_task(made.call("s", lambda: True))
            await asyncio.sleep(0)
            with pytest.raises(OverloadedError, match="1 jobs are waiting"):
                await made.call("s", lambda: True)
            release.set()
            assert (await waiting)[0] is True
            await busy

    asyncio.run(run())


def test_a_job_that_waited_too_long_is_told_so() -> None:
    release = threading.Event()

    async def run() -> None:
        async with worker() as made:
            busy = await occupy(made, release)
            late = asyncio.create_task(made.call("s", lambda: 1, timeout_s=0.01))
            await asyncio.sleep(0.05)
            release.set()
            with pytest.raises(OverloadedError, match="waited too long"):
                await late
            await busy

    asyncio.run(run())


def test_a_cancelled_call_that_still_waits_never_runs() -> None:
    release = threading.Event()
    ran: list[int] = []

    async def run() -> None:
        async with worker() as made:
            busy = await occupy(made, release)
            dropped = asyncio.create_task(made.call("s", lambda: ran.append(1)))
            await asyncio.sleep(0.01)
            dropped.cancel()
            await asyncio.wait([dropped])
            release.set()
            await busy
            await made.call("s", lambda: ran.append(2), best_effort=True)

    asyncio.run(run())
    assert ran == [2]


def test_after_closing_nothing_is_taken() -> None:
    async def run() -> None:
        workers = Workers(ManualClock(), [Engine("test")])
        workers.close(2.0)
        with pytest.raises(OverloadedError):
            workers["test"].start("s", lambda: iter((1,)))

    asyncio.run(run())


def test_calls_that_wait_together_are_done_together_where_the_backend_batches() -> None:
    release = threading.Event()
    batches: list[list[int]] = []

    def double(items: Sequence[int]) -> list[int]:
        batches.append(list(items))
        return [item * 2 for item in items]

    async def run() -> None:
        async with worker(batch=3) as made:
            busy = await occupy(made, release)
            calls = [
                asyncio.create_task(made.call_together(f"s{n}", n, double, key="double"))
                for n in range(5)
            ]
            await asyncio.sleep(0.01)
            calls[1].cancel()
            await asyncio.sleep(0.01)
            release.set()
            results = await asyncio.gather(*calls, return_exceptions=True)
            assert [r[0] for r in results if isinstance(r, tuple)] == [0, 4, 6, 8]
            await busy

    asyncio.run(run())
    assert batches == [[0, 2, 3], [4]]


def test_a_backend_that_fails_fails_all_of_its_batch_and_nobody_else() -> None:
    release = threading.Event()

    def broken(items: Sequence[int]) -> list[int]:
        raise ValueError("no")

    async def run() -> None:
        async with worker(batch=2) as made:
            busy = await occupy(made, release)
            calls = [
                asyncio.create_task(made.call_together("s", n, broken, key="k")) for n in range(2)
            ]
            await asyncio.sleep(0.01)
            release.set()
            for call in calls:
                with pytest.raises(ValueError, match="no"):
                    await call
            assert (await made.call("s", lambda: 1))[0] == 1
            await busy

    asyncio.run(run())


def test_engines_of_one_device_take_turns_on_its_places() -> None:
    running = peak = 0
    lock = threading.Lock()

    def step() -> None:
        nonlocal running, peak
        with lock:
            running += 1
            peak = max(peak, running)
        time.sleep(0.01)
        with lock:
            running -= 1

    async def run() -> None:
        engines = [Engine(name, device="cpu") for name in "abc"]
        workers = Workers(MonotonicClock(), engines, [Device("cpu", 2)])
        try:
            calls = [workers[name].call("s", step) for name in "abcabc"]
            await asyncio.wait_for(asyncio.gather(*calls), 10)
            with workers.holding("cpu"):
                await asyncio.wait_for(asyncio.gather(workers["a"].call("s", step)), 10)
            assert workers.scheduler.idle
        finally:
            workers.close(2.0)

    asyncio.run(run())
    assert peak == 2


def test_what_steps_took_is_learned() -> None:
    async def run() -> None:
        async with worker() as made:
            for _ in range(3):
                await made.call("s", lambda: time.sleep(0.02), stage="nap")
            costs = made._scheduler.costs
            assert costs.seen("nap") == 3
            assert costs.predict_s("nap") >= 0.02

    asyncio.run(run())
