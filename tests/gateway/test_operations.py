"""Launching, listing, draining and reading the log: over the API and from the command line."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from avatar_server.clock import ManualClock
from avatar_server.config import HttpSettings
from avatar_server.gateway.idempotency import KEEP_S, MOST, Idempotency
from avatar_server.gateway.problems import ProblemError
from avatar_server.operate.client import CallFailed, ServerClient, server_url
from avatar_server.security import KeyStore, Scope
from tests.gateway.serving import StartServer, run_cli
from tests.gateway.support import Gateway, GatewayFactory, SharedRunner, eventually


def test_a_repeated_launch_with_the_same_key_starts_one_session(shared: SharedRunner) -> None:
    async def scenario(g: Gateway) -> None:
        key = {"Idempotency-Key": "one"}
        first, second = await asyncio.gather(
            *(g.http.post("/v1/sessions", json={"avatar": "good"}, headers=key) for _ in range(2))
        )
        codes = sorted((first.status_code, second.status_code))
        assert codes == [201, 409], (first.text, second.text)
        again = await g.http.post("/v1/sessions", json={"avatar": "good"}, headers=key)
        made = first if first.status_code == 201 else second
        assert again.json()["id"] == made.json()["id"]
        assert len(g.control.registry) == 1
        other = await g.http.post("/v1/sessions", json={"avatar": "crash"}, headers=key)
        assert other.status_code == 422
        assert "new key" in other.json()["detail"]

    shared(scenario)


def test_a_failed_attempt_is_not_remembered() -> None:
    async def scenario() -> None:
        memory = Idempotency[int](ManualClock())

        async def fail() -> int:
            raise ProblemError(503, "full", "Full.")

        async def work() -> int:
            return 7

        with pytest.raises(ProblemError):
            await memory.once("k", "a", fail)
        assert await memory.once("k", "a", work) == 7
        assert await memory.once("k", "a", fail) == 7

    asyncio.run(scenario())


def test_answers_are_kept_for_a_day_and_within_bounds() -> None:
    async def scenario() -> None:
        clock = ManualClock()
        memory = Idempotency[int](clock)
        calls = 0

        async def work() -> int:
            nonlocal calls
            calls += 1
            return calls

        assert await memory.once("k", "a", work) == 1
        clock.advance(KEEP_S - 1)
        assert await memory.once("k", "a", work) == 1
        clock.advance(1)
        assert await memory.once("k", "a", work) == 2
        for number in range(MOST):
            await memory.once(f"other-{number}", "a", work)
        assert await memory.once("k", "a", work) > 2
        with pytest.raises(ProblemError, match="255"):
            await memory.once("x" * 256, "a", work)

    asyncio.run(scenario())


def test_long_lists_come_in_pages(gateway: GatewayFactory) -> None:
    async def scenario() -> None:
        async with gateway({"sessions": {"max_sessions": 5}, "capacity": FIXED}) as g:
            made = [await g.session() for _ in range(5)]
            seen: list[str] = []
            path = "/v1/sessions?limit=2"
            for _ in range(10):
                page = await g.http.get(path)
                seen += [one["id"] for one in page.json()]
                link = page.links.get("next")
                if link is None:
                    break
                path = link["url"]
            assert seen == made
            assert (await g.http.get("/v1/sessions?limit=0")).status_code == 422

    asyncio.run(scenario())


FIXED = {"admission": "fixed"}


def test_what_is_always_on_runs_from_the_start_and_is_given_to_visitors(
    gateway: GatewayFactory,
) -> None:
    async def scenario() -> None:
        sessions = {"always_on": ["good"], "max_sessions": 3, "idle_timeout_s": 0.2}
        async with gateway({"sessions": sessions, "capacity": FIXED}) as g:
            await eventually(lambda: len(g.control.registry) == 1, "the session runs")
            await eventually(lambda: g.control.registry.unused("good") is not None, "it is ready")
            (pinned,) = g.control.registry.sessions()
            await asyncio.sleep(0.7)
            assert pinned.id in g.control.registry, "it is not idle"
            first = await g.session()
            assert first == pinned.id
            second = await g.session()
            assert second != pinned.id, "two visitors must not meet in one session"
            await g.http.delete(f"/v1/sessions/{pinned.id}")
            await eventually(
                lambda: any(
                    entry.pinned and entry.id != pinned.id
                    for entry in g.control.registry.sessions()
                ),
                "it is replaced",
            )

    asyncio.run(scenario())


def test_draining_refuses_what_is_new_and_says_so_when_it_is_over(gateway: GatewayFactory) -> None:
    async def scenario() -> None:
        async with gateway({"capacity": FIXED}) as g:
            session = await g.session()
            assert (await g.join(session)).status_code == 201
            over = asyncio.Event()
            g.control.on_drained = over.set
            state = await g.http.post("/v1/drain", json={"deadline_s": 1.5})
            assert state.status_code == 202
            assert state.json()["draining"] is True
            assert state.json()["sessions"] == 1
            refused = await g.http.post("/v1/sessions", json={"avatar": "good"})
            assert refused.status_code == 503
            assert "being replaced" in refused.json()["detail"]
            assert int(refused.headers["retry-after"]) > 0
            assert (await g.http.get("/readyz")).status_code == 503
            assert (await g.join(session)).status_code == 201, "whoever is here may come back"
            await asyncio.wait_for(over.wait(), 10)
            assert len(g.control.registry) == 0

    asyncio.run(scenario())


def test_a_drain_can_be_taken_back(shared: SharedRunner) -> None:
    async def scenario(g: Gateway) -> None:
        await g.http.post("/v1/drain", json={"deadline_s": 60})
        answer = await g.http.delete("/v1/drain")
        assert answer.json()["draining"] is False
        await g.session()

    shared(scenario)


@pytest.mark.parametrize("body", [{"deadline_s": -1}, {"deadline_s": "soon"}, {"in": 5}, []])
def test_a_drain_that_makes_no_sense_is_refused(shared: SharedRunner, body: Any) -> None:
    async def scenario(g: Gateway) -> None:
        answer = await g.http.post("/v1/drain", json=body)
        assert answer.status_code == 422
        assert not g.control.lifetimes.draining

    shared(scenario)


# --- the command line, against a real server with fake children ------------------------------


def test_launch_sessions_link_logs_and_stop(tmp_path: Path, start: StartServer) -> None:
    server = start("--sessions", "3")
    on = ("--on", server.url)
    code, output = run_cli(tmp_path, "launch", "good", *on, "--json")
    assert code == 0, output
    session = json.loads(output)
    page = httpx.get(session["address"])
    assert page.status_code == 200
    code, output = run_cli(tmp_path, "sessions", *on)
    assert code == 0
    assert session["id"] in output
    code, output = run_cli(tmp_path, "link", session["id"], "--role", "watch", *on)
    assert output.strip() == f"{server.url}/s/{session['id']}"
    code, output = run_cli(tmp_path, "logs", session["id"], *on)
    assert code == 0, output
    assert "session started" in output
    code, output = run_cli(tmp_path, "stop", session["id"], *on)
    assert code == 0, output
    code, output = run_cli(tmp_path, "sessions", *on)
    assert output.strip() == "No session runs."
    code, output = run_cli(tmp_path, "logs", session["id"], *on)
    assert "session ended" in output, "the log outlives the session"


def test_what_a_server_refuses_is_said_in_words(tmp_path: Path, start: StartServer) -> None:
    KeyStore(tmp_path / "data" / "api-keys.json").create("ops", Scope.OPERATE)
    server = start("--set", "security.require_key=always")
    on = ("--on", server.url)
    code, output = run_cli(tmp_path, "launch", "good", *on)
    assert code == 1
    assert "AVATAR_SERVER_KEY" in output
    code, output = run_cli(tmp_path, "launch", "good", "--on", "http://127.0.0.1:9")
    assert code == 1
    assert "avatar-server serve" in output
    assert run_cli(tmp_path, "stop", *on)[0] == 2
    assert "Traceback" not in output


def test_draining_from_the_command_line_ends_the_server(tmp_path: Path, start: StartServer) -> None:
    server = start("--sessions", "2")
    run_cli(tmp_path, "launch", "good", "--on", server.url)
    children = server.children()
    assert children
    code, output = run_cli(tmp_path, "drain", "--deadline", "1", "--on", server.url)
    assert code == 0, output
    assert "has stopped" in output
    assert server.process.wait(10) == 0
    assert "Traceback" not in server.text()


def test_an_always_on_avatar_that_is_unknown_stops_the_start(tmp_path: Path) -> None:
    code, output = run_cli(tmp_path, "serve", "--set", "sessions.always_on=[nobody]")
    assert code == 2
    assert "nobody" in output


@pytest.mark.parametrize(
    ("on", "http", "url"),
    [
        (None, {}, "http://localhost:8080"),
        (None, {"host": "0.0.0.0", "port": 9}, "http://localhost:9"),
        (None, {"host": "2001:db8::1"}, "http://[2001:db8::1]:8080"),
        (None, {"tls_certificate": "c", "tls_key": "k"}, "https://localhost:8080"),
        ("example.org:1", {}, "http://example.org:1"),
        ("https://example.org", {}, "https://example.org"),
    ],
)
def test_which_server_is_asked(on: str | None, http: dict[str, Any], url: str) -> None:
    assert server_url(on, HttpSettings(**http)) == url


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (httpx.Response(200, text="<html>"), None),
        (httpx.Response(503, json={"detail": "Full."}, headers={"Retry-After": "7"}), "after 7 s"),
        (httpx.Response(502, text="<html>Bad gateway"), "Something else"),
    ],
)
def test_answers_that_are_not_ours_break_nothing(answer: httpx.Response, words: str | None) -> None:
    transport = httpx.MockTransport(lambda request: answer)
    with ServerClient("http://x.example", transport=transport) as client:
        if words is None:
            with pytest.raises((CallFailed, json.JSONDecodeError)):
                client.launch("a")
        else:
            with pytest.raises(CallFailed, match=words):
                client.launch("a")
