"""How many sessions a gateway takes, with real processes and sockets and made-up costs."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn

from avatar_server.capacity.overload import OverloadLevel
from avatar_server.gateway.app import create_app
from avatar_server.gateway.previews import Previews
from avatar_server.gateway.serve import _Server, open_port
from tests.gateway.support import Gateway, GatewayFactory, eventually, running_gateway

RUSHED = {"overload": {"rise_s": 0, "settle_s": 0, "fall_s": 0.5}}


def run(scenario: Awaitable[None]) -> None:
    async def all_of_it() -> None:
        await scenario

    asyncio.run(all_of_it())


async def full(g: Gateway) -> dict[str, Any]:
    """Start sessions until one is refused; the refusal."""
    for _ in range(40):
        response = await g.http.post("/v1/sessions", json={"avatar": "good"})
        if response.status_code != 201:
            assert response.status_code == 503, response.text
            assert int(response.headers["retry-after"]) >= 1
            return dict(response.json())
    raise AssertionError("there is no end to the places")


def test_as_many_sessions_start_as_fit_and_the_next_is_told_what_is_missing(
    gateway: GatewayFactory,
) -> None:
    async def scenario() -> None:
        async with gateway(cores=1.0) as g:
            promised = (await g.http.get("/v1/capacity")).json()
            assert promised["measured"]
            assert 1 < promised["sessions"] < 10
            assert promised["free"] == promised["sessions"]
            assert promised["refused_because"] == ""
            refusal = await full(g)
            assert len((await g.http.get("/v1/sessions")).json()) == promised["sessions"]
            assert refusal["type"] == "urn:avatar-server:full"
            assert refusal["resource"] == promised["binding"]
            assert promised["reason"] in refusal["detail"]
            assert f"room for {promised['sessions']} sessions" in refusal["detail"]
            status = (await g.http.get("/v1/status")).json()
            assert status["sessions"]["free"] == 0
            assert status["sessions"]["max"] == promised["sessions"]
            assert promised["reason"] in status["full_because"]
            ready = await g.http.get("/readyz")
            assert ready.status_code == 503
            assert promised["reason"] in ready.json()["reason"]
            session = (await g.http.get("/v1/sessions")).json()[0]["id"]
            await g.http.delete(f"/v1/sessions/{session}")
            assert await g.session()

    run(scenario())


def test_a_larger_machine_takes_more(gateway: GatewayFactory) -> None:
    async def scenario() -> None:
        sessions = []
        for cores in (1.0, 4.0):
            async with gateway(cores=cores) as g:
                sessions.append((await g.http.get("/v1/capacity")).json()["sessions"])
        assert sessions[1] > 2 * sessions[0]

    run(scenario())


def test_what_was_measured_is_not_measured_again(gateway: GatewayFactory, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with gateway(cores=1.0) as g:
            first = (await g.http.get("/v1/capacity")).json()
        assert len(list((tmp_path / "calibration").glob("*.json"))) == 2
        # This process would fail if it were started.
        async with gateway(cores=1.0, frames=("broken",)) as g:
            assert not g.control.capacity.wants_stages
            second = (await g.http.get("/v1/capacity")).json()
        assert second["sessions"] == first["sessions"]
        assert second["stage_costs"] == first["stage_costs"]
        anew = {"capacity": {"recalibrate": True}}
        async with gateway(anew, cores=1.0, frames=("broken",)) as g:
            assert not (await g.http.get("/v1/capacity")).json()["measured"]

    run(scenario())


def test_a_measurement_that_fails_leaves_the_setting(gateway: GatewayFactory) -> None:
    async def scenario() -> None:
        async with gateway({"sessions": {"max_sessions": 3}}, cores=1.0, frames=("broken",)) as g:
            capacity = (await g.http.get("/v1/capacity")).json()
            assert (capacity["sessions"], capacity["measured"]) == (3, False)
            refusal = await full(g)
            assert refusal["resource"] == "max_sessions"

    run(scenario())


def test_models_that_do_not_survive_being_measured_still_serve(gateway: GatewayFactory) -> None:
    async def scenario() -> None:
        async with gateway(cores=1.0, inference=("fragile",)) as g:
            capacity = (await g.http.get("/v1/capacity")).json()
            assert capacity["stage_costs"] is None
            assert capacity["binding"] == "cpu"
            assert await g.session()

    run(scenario())


def test_a_server_that_is_stopped_while_it_measures_ends_at_once(
    gateway: GatewayFactory,
) -> None:
    async def scenario() -> None:
        async with gateway(cores=1.0, frames=("slow",), wait=False) as g:
            await eventually(lambda: bool(g.control.capacity.phase), "it measures")
            status = (await g.http.get("/v1/status")).json()
            assert not status["ready"]
            assert status["phase"].startswith("measuring this machine")
            refused = await g.http.post("/v1/sessions", json={"avatar": "good"})
            assert refused.status_code == 503
            assert "measuring this machine" in refused.json()["detail"]

    run(asyncio.wait_for(scenario(), 30))


def test_of_many_browsers_at_the_same_moment_exactly_as_many_get_in_as_fit(
    tmp_path: Path,
) -> None:
    """Threads with connections of their own, to a real port, all let go at once."""
    callers = 12

    async def scenario() -> None:
        async with running_gateway(tmp_path, {"http": {"port": 0}}, cores=1.0) as g:
            fits = g.control.capacity.places()
            for _ in range(fits - 1):
                await g.session()
            listener = open_port(g.control.settings.http)
            port = listener.getsockname()[1]
            app = create_app(g.control, Previews(g.control.avatars, tmp_path / "pictures"))
            server = _Server(uvicorn.Config(app, log_config=None, lifespan="off"))
            serving = asyncio.create_task(server.serve([listener]))
            codes: list[int] = []
            gate = threading.Barrier(callers)

            def launch() -> None:
                with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:
                    client.get("/healthz")
                    gate.wait()
                    answer = client.post("/v1/sessions", json={"avatar": "good"})
                    codes.append(answer.status_code)

            threads = [threading.Thread(target=launch) for _ in range(callers)]
            for thread in threads:
                thread.start()
            await eventually(lambda: not any(t.is_alive() for t in threads), "all are answered")
            assert sorted(codes) == [201] + [503] * (callers - 1)
            assert len(g.control.registry) == fits
            server.should_exit = True
            await serving

    run(scenario())


# --- overload ---------------------------------------------------------------------------------


def test_long_queues_raise_the_level_everybody_is_told_and_it_is_shown(
    gateway: GatewayFactory,
) -> None:
    async def scenario() -> None:
        async with gateway({"capacity": RUSHED}, cores=8.0, inference=("busy",)) as g:
            session = await g.session()
            highest = OverloadLevel.NO_NEW_SESSIONS
            await eventually(lambda: g.control.capacity.overload.level is highest, "all levels")
            shown = (await g.http.get("/v1/capacity")).json()["overload"]
            assert shown["level"] == 5
            assert len(shown["measures"]) == 5
            assert "wait 2000 ms" in shown["reason"]
            refused = await g.http.post("/v1/sessions", json={"avatar": "good"})
            assert refused.status_code == 503
            assert refused.json()["resource"] == "overload"
            assert refused.headers["retry-after"]
            text = (await g.http.get("/metrics")).text
            assert "avatar_overload_level 5.0" in text
            assert 'avatar_overload_changes_total{direction="up"} 5.0' in text
            assert 'avatar_sessions_refused_total{reason="overload"} 1.0' in text
            assert 'avatar_capacity_used_ratio{resource="cpu"}' in text

            def state() -> str:
                status = g.control.registry.get(session).status
                return status.state if status else ""

            await eventually(lambda: state() == "level 5", "the avatar was told")
            # One that starts, or is replaced, later is told, too.
            os.kill(g.pid(session), signal.SIGKILL)
            await eventually(lambda: state() == "", "it is gone")
            await eventually(lambda: state() == "level 5", "its successor was told")

    run(scenario())


def test_when_inference_is_replaced_its_queues_are_forgotten_and_the_level_falls(
    gateway: GatewayFactory,
) -> None:
    async def scenario() -> None:
        values = {"capacity": RUSHED}
        async with gateway(values, cores=8.0, inference=("busy",)) as g:
            session = await g.session()
            overload = g.control.capacity.overload
            await eventually(lambda: overload.level >= 2, "two levels")
            g.control.models._link._on_status = lambda status: None
            g.control.capacity.inference_lost()
            await eventually(lambda: overload.level == 0, "all is well again")
            assert overload.reason == ""

            def state() -> str:
                status = g.control.registry.get(session).status
                return status.state if status else ""

            await eventually(lambda: state() == "level 0", "the avatar was told")

    run(scenario())


@pytest.mark.parametrize("enabled", [True, False])
def test_an_empty_server_takes_somebody_whatever_the_level(
    gateway: GatewayFactory, enabled: bool
) -> None:
    async def scenario() -> None:
        values = {"capacity": {"overload": {**RUSHED["overload"], "enabled": enabled}}}
        async with gateway(values, cores=8.0, inference=("busy",)) as g:
            wanted = 5 if enabled else 0
            await asyncio.sleep(1.0)
            await eventually(lambda: g.control.capacity.overload.level == wanted, "the level")
            assert await g.session()

    run(scenario())
