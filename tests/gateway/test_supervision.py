"""Processes that die, hang or will not go, with real processes and real signals."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from tests.gateway.support import OFFER, Gateway, GatewayFactory, eventually

BACK_S = 20.0  # far above what is asked of the product: these machines may be busy


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(test())


def exists(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


async def rejoin(g: Gateway, session: str, first_pid: int) -> None:
    """As the page does: post again, as told by Retry-After, until the new process answers."""

    async def once() -> bool:
        response = await g.join(session)
        if response.status_code == 503:
            assert response.headers["retry-after"] == "1"
            return False
        assert response.status_code == 201, response.text
        return f"s={first_pid}\r\n" not in response.text

    await eventually(once, "the viewer is back in the same session", BACK_S)


def test_a_killed_avatar_comes_back_under_the_same_session(gateway: GatewayFactory) -> None:
    async def scenario() -> None:
        async with gateway() as g:
            session = await g.session()
            assert (await g.join(session)).status_code == 201
            first = g.pid(session)
            os.kill(first, signal.SIGKILL)
            await eventually(lambda: not exists(first), "the process is gone")
            await rejoin(g, session, first)
            assert g.pid(session) != first
            shown = (await g.http.get(f"/v1/sessions/{session}")).json()
            assert shown["restarts"] == 1
            assert shown["viewer_count"] == 1, "viewers of the lost process hold no place"
            metrics = (await g.http.get("/metrics")).text
            assert 'restarts_total{cause="killed",role="avatar"} 1.0' in metrics

    run(scenario)


def test_a_hanging_avatar_is_killed_and_replaced(gateway: GatewayFactory) -> None:
    async def scenario() -> None:
        async with gateway({"sessions": {"hang_timeout_s": 2.0, "answer_timeout_s": 30}}) as g:
            session = await g.session()
            first = g.pid(session)
            hung = await g.join(session, OFFER + "a=hang\r\n")
            assert hung.status_code == 503, "the waiting viewer is told as soon as it is killed"
            await eventually(lambda: not exists(first), "the hanging process is gone")
            await rejoin(g, session, first)

    run(scenario)


def test_a_stopped_avatar_is_killed_too(gateway: GatewayFactory) -> None:
    async def scenario() -> None:
        async with gateway({"sessions": {"hang_timeout_s": 2.0}}) as g:
            session = await g.session()
            first = g.pid(session)
            os.kill(first, signal.SIGSTOP)
            await eventually(lambda: not exists(first), "the stopped process is gone")
            await rejoin(g, session, first)

    run(scenario)


def test_an_avatar_that_keeps_dying_ends_its_session(gateway: GatewayFactory) -> None:
    async def scenario() -> None:
        async with gateway({"sessions": {"restart_limit_per_minute": 1}}) as g:
            session = await g.session()
            first = g.pid(session)
            os.kill(first, signal.SIGKILL)
            await eventually(lambda: not exists(first), "the process is gone")
            await rejoin(g, session, first)
            os.kill(g.pid(session), signal.SIGKILL)

            async def gone() -> bool:
                return (await g.http.get(f"/v1/sessions/{session}")).status_code == 404

            await eventually(gone, "the session ends")
            assert 'ended_total{reason="failed"} 1.0' in (await g.http.get("/metrics")).text

    run(scenario)


def test_killed_inference_comes_back_and_sessions_stay(gateway: GatewayFactory) -> None:
    async def scenario() -> None:
        async with gateway() as g:
            session = await g.session()
            avatar = g.pid(session)
            first = g.control.models.status.pid
            os.kill(first, signal.SIGKILL)
            await eventually(lambda: not g.control.readiness().ready, "the loss is noticed")
            refused = await g.http.post("/v1/sessions", json={"avatar": "good"})
            assert refused.status_code == 503
            assert refused.headers["retry-after"]
            assert (await g.join(session)).status_code == 201, "the session goes on meanwhile"
            assert await g.control.models.wait_until_ready(BACK_S)
            assert g.control.models.status.pid != first
            assert g.pid(session) == avatar

    run(scenario)


def test_hanging_inference_is_killed_and_replaced(gateway: GatewayFactory) -> None:
    async def scenario() -> None:
        async with gateway({"inference": {"hang_timeout_s": 3}}, inference=("hang",)) as g:
            first = g.control.models.status.pid
            await eventually(lambda: not exists(first), "the hanging process is gone")
            assert await g.control.models.wait_until_ready(BACK_S)

    run(scenario)


def test_a_session_without_viewers_ends(gateway: GatewayFactory) -> None:
    async def scenario() -> None:
        async with gateway({"sessions": {"idle_timeout_s": 1.0}}) as g:
            watched = await g.session()
            assert (await g.join(watched)).status_code == 201
            lonely = await g.session()
            pid = g.pid(lonely)
            await eventually(lambda: lonely not in g.control.registry, "the session ends")
            await eventually(lambda: not exists(pid), "its process ends")
            assert watched in g.control.registry

    run(scenario)


def test_a_viewer_that_vanished_frees_its_place(gateway: GatewayFactory) -> None:
    async def scenario() -> None:
        async with gateway({"sessions": {"max_viewers": 1}}) as g:
            session = await g.session()
            assert (await g.join(session, OFFER + "a=vanish\r\n")).status_code == 201
            assert (await g.join(session)).status_code == 503

            async def free() -> bool:
                return (await g.join(session)).status_code == 201

            await eventually(free, "the place is free again")

    run(scenario)


def test_a_loaded_spare_becomes_the_next_session(gateway: GatewayFactory) -> None:
    async def scenario() -> None:
        async with gateway({"sessions": {"warm_spares": 1}}) as g:
            spares = g.control._spares
            await eventually(lambda: len(spares.pids) == 1, "a spare is started")
            spare = spares.pids[0]
            session = await g.session()
            assert g.pid(session) == spare
            await eventually(lambda: len(spares.pids) == 1, "the next spare is started")
            # A spare that died while it waited is not handed out.
            dead = spares.pids[0]
            os.kill(dead, signal.SIGKILL)
            await eventually(lambda: not exists(dead), "the spare is gone")
            assert g.pid(await g.session()) != dead

    run(scenario)


def test_stopping_leaves_no_process_and_no_file(gateway: GatewayFactory) -> None:
    async def scenario() -> None:
        settings = {"sessions": {"max_sessions": 3, "warm_spares": 1}}
        async with gateway(settings, inference=("stubborn",)) as g:
            sessions = [await g.session("good"), await g.session("stubborn")]
            starting = asyncio.create_task(g.http.post("/v1/sessions", json={"avatar": "never"}))
            await eventually(lambda: len(g.control._keepers) == 3, "the third one starts")
            await eventually(lambda: all(k.pid for k in g.control._keepers.values()), "spawned")
            pids = [keeper.pid for keeper in g.control._keepers.values()]
            pids += [g.control.models.status.pid, *g.control._spares.pids]
            folder = g.control._endpoints.folder
            assert folder.stat().st_mode & 0o777 == 0o700
            assert all(exists(pid) for pid in pids)
            await g.control.stop()
            assert [pid for pid in pids if exists(pid)] == []
            assert not folder.exists()
            assert (await starting).status_code == 503
            assert all(session not in g.control.registry for session in sessions)

    run(scenario)
