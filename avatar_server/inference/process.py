"""Entry of the inference process: `python -m avatar_server.inference.process`.

Started by the gateway, which writes a `Bootstrap` to standard input. Exits when told to (SIGTERM)
or when the gateway is gone; SIGINT is the gateway's to decide on.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys

from avatar_server.clock import MonotonicClock
from avatar_server.inference.resources import bound_threads, lower_priority
from avatar_server.observe.logging import setup_logging
from avatar_server.processes import Bootstrap, read_bootstrap, when_parent_ends

log = logging.getLogger(__name__)

CLOSE_TIMEOUT_S = 0.15
"""A model in the middle of a step cannot be interrupted; the process goes without waiting."""


async def serve(bootstrap: Bootstrap) -> int:
    """Answer until told to stop; returns the exit code."""
    # Imported here: zmq and the models' libraries start threads, and those must inherit the
    # priority that `main` has set by now.
    from avatar_server.avatars import find_avatars
    from avatar_server.inference.cost_file import (
        SAVE_INTERVAL_S,
        cost_file,
        load_costs,
        save_costs,
    )
    from avatar_server.inference.loading import load_models
    from avatar_server.inference.service import InferenceService
    from avatar_server.inference.wire import ServiceSocket

    settings = bootstrap.load_settings()
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)

    def parent_ended() -> None:
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(stop.set)

    when_parent_ends(parent_ended)
    socket = ServiceSocket(bootstrap.inference)
    service = InferenceService(settings, MonotonicClock(), socket.send)

    def phase(text: str) -> None:
        def tell() -> None:
            service.phase = text
            service.tell_all()

        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(tell)

    costs = cost_file(settings)
    load_costs(costs, service.workers)

    async def keep_costs() -> None:
        while True:
            await asyncio.sleep(SAVE_INTERVAL_S)
            save_costs(costs, service.workers)

    async def load() -> None:
        models = await loop.run_in_executor(None, load_models, settings, phase)
        service.phase = "warming up the language model"
        await models.llm.warm_up()
        service.phase = "loading the faces"
        await service.faces.preload(find_avatars(settings.avatar_dirs).values())
        if bootstrap.measure:
            from avatar_server.capacity.stages import measure_stages

            face = service.faces.networks.any()
            service.costs = await measure_stages(models, settings, phase, face=face)
        service.start(models)
        log.info("ready after %.1f s", models.load_s, extra=models.names)

    receiving = asyncio.create_task(socket.run(service), name="receive")
    loading = asyncio.create_task(load(), name="load-models")
    stopping = asyncio.create_task(stop.wait(), name="wait-for-stop")
    keeping = asyncio.create_task(keep_costs(), name="keep-costs")
    tasks: set[asyncio.Task[object]] = {receiving, loading, stopping, keeping}
    code = 0
    while tasks:
        done, tasks = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if stopping in done:
            break
        for task in done:
            if (error := task.exception()) is not None:
                log.error("the inference process ends: %s", error, exc_info=error)
                service.phase = f"failed: {error}"
                service.tell_all()
                code, tasks = 1, set()
    keeping.cancel()
    save_costs(costs, service.workers)
    # Also lets a last status leave.
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(service.close(), CLOSE_TIMEOUT_S)
    receiving.cancel()
    socket.close()
    return code


def main() -> None:
    """Read the bootstrap, take our place among the processes, serve."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    bootstrap = read_bootstrap()
    settings = bootstrap.load_settings()
    setup_logging(settings.observe, "inference")
    bound_threads(max(settings.stt.threads, settings.tts.threads, settings.llm.threads))
    lower_priority(settings.inference)
    code = asyncio.new_event_loop().run_until_complete(serve(bootstrap))
    logging.shutdown()
    sys.stdout.flush()
    # Not by way of `asyncio.run` and the interpreter's end: both wait for threads, and a model
    # may still be loading, or be in the middle of a step, with nobody to use the result.
    os._exit(code)


if __name__ == "__main__":
    main()
