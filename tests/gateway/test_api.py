"""The HTTP API: every status code, over real processes that only pretend to be avatars."""

from __future__ import annotations

import asyncio
import base64
import hmac
import time
from collections.abc import Callable, Coroutine
from typing import Any

import httpx
import pytest

from tests.gateway.support import OFFER, SDP, Gateway, GatewayFactory, SharedRunner, eventually


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(test())


def assert_problem(response: httpx.Response, status: int, *words: str) -> dict[str, Any]:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = response.json()
    assert body["status"] == status
    assert body["title"]
    assert body["detail"].endswith("."), "the detail is a sentence"
    for word in words:
        assert word in body["detail"]
    return body


def test_a_session_is_started_shown_listed_and_ended(shared: SharedRunner) -> None:
    async def scenario(g: Gateway) -> None:
        response = await g.http.post("/v1/sessions", json={"avatar": "good"})
        assert response.status_code == 201
        session = response.json()
        assert response.headers["location"] == f"/v1/sessions/{session['id']}"
        assert session["avatar"] == "good"
        assert session["state"] == "running"
        assert session["page"] == f"/s/{session['id']}"
        assert session["viewers"] == f"/v1/sessions/{session['id']}/viewers"
        one = await g.http.get(response.headers["location"])
        assert one.json()["id"] == session["id"]
        listing = await g.http.get("/v1/sessions")
        assert [entry["id"] for entry in listing.json()] == [session["id"]]
        assert (await g.http.delete(response.headers["location"])).status_code == 204
        gone = await g.http.get(response.headers["location"])
        assert_problem(gone, 404, "new one")
        assert_problem(await g.http.delete(response.headers["location"]), 404)
        assert (await g.http.get("/v1/sessions")).json() == []

    shared(scenario)


def test_a_viewer_joins_trickles_and_leaves(shared: SharedRunner) -> None:
    async def scenario(g: Gateway) -> None:
        session = await g.session()
        response = await g.join(session)
        assert response.status_code == 201
        assert response.headers["content-type"].startswith("application/sdp")
        assert response.text.startswith("v=0")
        assert "a=speak:True" in response.text
        viewer = response.headers["location"]
        assert viewer.startswith(f"/v1/sessions/{session}/viewers/")
        candidate = {"candidate": "candidate:1 1 udp 1 192.0.2.1 9 typ host", "sdpMid": "0"}
        assert (await g.http.patch(viewer, json=candidate)).status_code == 204
        assert (await g.http.patch(viewer, json={"candidate": None})).status_code == 204
        nonsense = await g.http.patch(viewer, json={"candidate": "candidate:rubbish"})
        assert_problem(nonsense, 422)
        assert "no ICE candidate" in nonsense.json()["detail"]
        assert g.control.viewers.session(session).viewer_count == 1
        assert (await g.http.delete(viewer)).status_code == 204
        assert g.control.viewers.session(session).viewer_count == 0
        assert_problem(await g.http.delete(viewer), 404, "Join again")
        assert_problem(await g.http.patch(viewer, json=candidate), 404)

    shared(scenario)


def test_a_viewer_connects_anew_under_its_own_address(gateway: GatewayFactory) -> None:
    async def scenario() -> None:
        async with gateway({"sessions": {"max_viewers": 1, "answer_timeout_s": 0.5}}) as g:
            session = await g.session()
            viewer = (await g.join(session)).headers["location"]
            again = await g.http.put(f"{viewer}?speak=false", content=OFFER, headers=SDP)
            assert again.status_code == 200
            assert again.headers["content-type"].startswith("application/sdp")
            assert "a=speak:False" in again.text
            assert g.control.viewers.session(session).viewer_count == 1
            assert_problem(await g.http.put(viewer, json={}), 415, "application/sdp")
            nobody = f"/v1/sessions/{session}/viewers/nobody"
            assert_problem(await g.http.put(nobody, content=OFFER, headers=SDP), 404, "Join again")
            gone = f"/v1/sessions/gone/viewers/{viewer.rsplit('/', 1)[1]}"
            assert_problem(await g.http.put(gone, content=OFFER, headers=SDP), 404, "has ended")
            hung = await g.http.put(viewer, content=f"{OFFER}a=hang\r\n", headers=SDP)
            assert_problem(hung, 503, "Try again")

    run(scenario)


def test_whoever_waits_gets_the_place_of_a_session_that_everybody_left(
    gateway: GatewayFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("avatar_server.gateway.registry.YIELD_AFTER_S", 0.0)

    async def scenario() -> None:
        async with gateway({"sessions": {"max_sessions": 1, "idle_timeout_s": 60}}) as g:
            first = await g.session()
            viewer = (await g.join(first)).headers["location"]
            refused = await g.http.post("/v1/sessions", json={"avatar": "good"})
            assert_problem(refused, 503, "in use")
            assert (await g.http.get("/readyz")).status_code == 503
            await g.http.delete(viewer)
            assert (await g.http.get("/readyz")).json()["free_sessions"] == 1
            assert (await g.http.get("/v1/status")).json()["sessions"]["free"] == 1
            second = await g.session()
            assert second != first
            assert_problem(await g.join(first), 404, "has ended")

    run(scenario)


def test_a_viewer_may_only_watch(shared: SharedRunner) -> None:
    async def scenario(g: Gateway) -> None:
        address = f"/v1/sessions/{await g.session()}/viewers"
        watching = await g.http.post(f"{address}?speak=false", content=OFFER, headers=SDP)
        assert "a=speak:False" in watching.text
        wrong = await g.http.post(f"{address}?speak=perhaps", content=OFFER, headers=SDP)
        assert_problem(wrong, 422, "speak")

    shared(scenario)


def test_offers_that_cannot_be_used_are_refused_in_words(gateway: GatewayFactory) -> None:
    async def scenario() -> None:
        async with gateway({"sessions": {"max_sessions": 3, "answer_timeout_s": 0.5}}) as g:
            session = await g.session()
            address = f"/v1/sessions/{session}/viewers"
            as_json = await g.http.post(address, json={"sdp": OFFER})
            assert_problem(as_json, 415, "application/sdp")
            assert_problem(await g.join(session, "hello"), 400, "v=0")
            binary = await g.http.post(address, content=b"v=0\r\n\xff\xfe", headers=SDP)
            assert_problem(binary, 400, "UTF-8")
            assert_problem(await g.join(session, "v=0\r\ns=-\r\n"), 422, "media")
            assert_problem(await g.join(session, OFFER + "a" * 66_000), 413, "65536")

            async def endless() -> Any:
                for _ in range(70):
                    yield b"v=0\r\n" + b"a" * 1_000

            streamed = await g.http.post(address, content=endless(), headers=SDP)
            assert_problem(streamed, 413, "65536")
            assert_problem(await g.join("0" * 20), 404, "new one")
            assert_problem(await g.join(await g.session("refuse")), 422, "codec")
            silent = await g.join(await g.session("mute"))
            assert_problem(silent, 503, "did not answer")
            assert silent.headers["retry-after"] == "1"

    run(scenario)


def test_bodies_and_addresses_that_cannot_be_used_are_refused_in_words(
    shared: SharedRunner,
) -> None:
    async def scenario(g: Gateway) -> None:
        unknown = await g.http.post("/v1/sessions", json={"avatar": "nobody"})
        assert_problem(unknown, 404, "'nobody'", "good")
        assert_problem(await g.http.post("/v1/sessions", json={}), 422, "avatar")
        assert_problem(await g.http.post("/v1/sessions", json={"avatar": 3}), 422, "avatar")
        extra = await g.http.post("/v1/sessions", json={"avatar": "good", "size": 1})
        assert_problem(extra, 422, "size")
        json = {"content-type": "application/json"}
        for body in (b"{", b"", b"[]", b'"x"', b"\xff", b'{"avatar": "\\ud800"}'):
            response = await g.http.post("/v1/sessions", content=body, headers=json)
            assert response.status_code in (400, 404, 422), (body, response.text)
            assert_problem(response, response.status_code)
        assert_problem(await g.http.get("/nowhere"), 404, "/docs")
        assert_problem(await g.http.get("/static/none.js"), 404)
        assert_problem(await g.http.get("/static/../app.py"), 404)
        assert_problem(await g.http.get("/static/%00"), 404)
        wrong_method = await g.http.put("/v1/sessions")
        assert_problem(wrong_method, 405, "Allow")
        assert wrong_method.headers["allow"]
        assert_problem(await g.http.get("/avatars/nobody/picture"), 404, "nobody")
        not_drawn = await g.http.get("/avatars/good/picture")
        assert_problem(not_drawn, 404, "drawn")
        assert not_drawn.headers["retry-after"]

    shared(scenario)


def test_of_two_requests_for_the_last_place_exactly_one_is_served(
    gateway: GatewayFactory,
) -> None:
    async def scenario() -> None:
        async with gateway({"sessions": {"max_sessions": 1}}) as g:
            both = await asyncio.gather(
                *(g.http.post("/v1/sessions", json={"avatar": "good"}) for _ in range(2))
            )
            assert sorted(response.status_code for response in both) == [201, 503]
            refused = next(response for response in both if response.status_code == 503)
            assert_problem(refused, 503, "in use")
            assert int(refused.headers["retry-after"]) > 0
            ready = await g.http.get("/readyz")
            assert ready.status_code == 503
            assert ready.json()["free_sessions"] == 0
            served = next(response for response in both if response.status_code == 201)
            await g.http.delete(served.headers["location"])
            assert await g.session()

    run(scenario)


def test_a_session_takes_no_more_viewers_than_configured(gateway: GatewayFactory) -> None:
    async def scenario() -> None:
        async with gateway({"sessions": {"max_viewers": 2}}) as g:
            session = await g.session()
            answers = await asyncio.gather(*(g.join(session) for _ in range(4)))
            assert sorted(a.status_code for a in answers) == [201, 201, 503, 503]
            full = next(a for a in answers if a.status_code == 503)
            assert_problem(full, 503, "2 viewers")
            served = next(a for a in answers if a.status_code == 201)
            await g.http.delete(served.headers["location"])
            assert (await g.join(session)).status_code == 201

    run(scenario)


def test_nothing_is_started_before_the_models_are_ready(gateway: GatewayFactory) -> None:
    async def scenario() -> None:
        async with gateway(inference=("loading",), wait=False) as g:
            await eventually(lambda: g.control.models.status is not None, "inference reports")
            refused = await g.http.post("/v1/sessions", json={"avatar": "good"})
            assert_problem(refused, 503, "loading stt")
            assert refused.headers["retry-after"]
            assert (await g.http.get("/readyz")).status_code == 503
            status = (await g.http.get("/v1/status")).json()
            assert status["ready"] is False
            assert status["phase"] == "loading stt"
            assert (await g.http.get("/healthz")).status_code == 200

    run(scenario)


def test_an_avatar_that_cannot_start_is_reported_and_frees_its_place(
    gateway: GatewayFactory,
) -> None:
    async def scenario() -> None:
        values = {"sessions": {"max_sessions": 1}}
        async with gateway(values) as g:
            crashed = await g.http.post("/v1/sessions", json={"avatar": "crash"})
            assert_problem(crashed, 503, "exit code 3", "log")
            assert await g.session("good")

    run(scenario)


def test_an_avatar_that_takes_too_long_is_given_up(gateway: GatewayFactory) -> None:
    async def scenario() -> None:
        async with gateway({"sessions": {"start_timeout_s": 0.5}}) as g:
            slow = await g.http.post("/v1/sessions", json={"avatar": "never"})
            assert_problem(slow, 503, "not ready within 0.5 s")
            assert (await g.http.get("/v1/sessions")).json() == []

    run(scenario)


def test_whoever_joins_gets_turn_accounts_that_end_by_themselves(gateway: GatewayFactory) -> None:
    fixed = {"urls": ["turn:a.example"], "username": "u", "credential": "word"}
    servers = [{"urls": ["stun:a.example:3478"]}, fixed, {"urls": ["turns:b.example:443"]}]
    media = {"ice_servers": servers, "turn_secret": "shar3d", "turn_lifetime_s": 600}

    async def scenario() -> None:
        async with gateway({"media": media}) as g:
            session = await g.session()
            answer = await g.http.get(f"/v1/sessions/{session}/ice-servers")
            assert answer.headers["cache-control"] == "no-store"
            stun, static, own = answer.json()
            assert (stun, static) == (servers[0], fixed)
            expiry, _, name = own["username"].partition(":")
            assert 590 < int(expiry) - time.time() <= 600
            assert session not in name
            digest = hmac.new(b"shar3d", own["username"].encode(), "sha1").digest()
            assert base64.b64decode(own["credential"]) == digest
            other = (await g.http.get(f"/v1/sessions/{session}/ice-servers")).json()[2]
            assert other["username"] != own["username"]
            assert_problem(await g.http.get("/v1/sessions/gone/ice-servers"), 404, "has ended")
            for public in ("/v1/status", f"/v1/sessions/{session}", "/v1/sessions"):
                assert "word" not in (await g.http.get(public)).text

    run(scenario)


def test_status_and_avatars_tell_the_page_what_it_needs(gateway: GatewayFactory) -> None:
    async def scenario() -> None:
        async with gateway() as g:
            await g.session()
            status = (await g.http.get("/v1/status")).json()
            assert status["ready"] is True
            assert status["sessions"] == {"running": 1, "max": 2, "free": 1}
            assert status["models"]["stt"] == "whisper-tiny.en"
            assert status["secure_hint"] is None
            elsewhere = await g.http.get("/v1/status", headers={"host": "192.0.2.7:8080"})
            assert "https" in elsewhere.json()["secure_hint"]
            avatars = (await g.http.get("/v1/avatars")).json()
            assert {entry["name"] for entry in avatars} >= {"good"}
            assert avatars[0]["picture"] == f"/avatars/{avatars[0]['name']}/picture"
            assert avatars[0]["preview"] == f"/avatars/{avatars[0]['name']}/preview"

    run(scenario)


def test_turns_and_metrics_are_reported(shared: SharedRunner) -> None:
    async def scenario(g: Gateway) -> None:
        session = await g.session()
        await eventually(
            lambda: bool(g.control.traces.of_session(session)), "the first turn arrives"
        )
        report = (await g.http.get(f"/v1/sessions/{session}/turns")).json()
        assert report["turns"][0]["viewer_text"] == "hello"
        assert report["summary"]["voice_to_voice_ms"]["p50"] == 640.0
        assert report["summary"]["stages_ms"]["stt"]["p50"] == pytest.approx(150)
        assert_problem(await g.http.get("/v1/sessions/none/turns"), 404)
        await g.http.get("/some/random/address")
        text = (await g.http.get("/metrics")).text
        assert 'avatar_turns_total{kind="speech",outcome="answered"}' in text
        assert f'avatar_fps{{session="{session}"}} 30.0' in text
        assert 'route="/v1/sessions",status="201"' in text
        assert "random" not in text, "an unknown address must not become a label"

    shared(scenario)


def test_pages_of_other_sites_cannot_change_anything(gateway: GatewayFactory) -> None:
    async def scenario() -> None:
        allowed = {"http": {"allowed_origins": ["https://kiosk.example"]}}
        async with gateway(allowed) as g:
            body = {"avatar": "nobody"}

            async def post(**headers: str) -> int:
                named = {key.replace("_", "-"): value for key, value in headers.items()}
                response = await g.http.post("/v1/sessions", json=body, headers=named)
                return response.status_code

            passed = 404  # past the guard, there is just no such avatar
            assert await post() == passed
            assert await post(origin="http://localhost:8080") == passed
            assert await post(origin="https://kiosk.example") == passed
            assert await post(origin="https://evil.example") == 403
            assert await post(origin="http://localhost:9999") == 403
            assert await post(origin="null") == 403
            assert await post(sec_fetch_site="cross-site") == 403
            assert await post(host="evil.example", origin="http://evil.example") == 403
            refused = await g.http.post(
                "/v1/sessions", json=body, headers={"origin": "https://evil.example"}
            )
            assert_problem(refused, 403, "https://evil.example", "http.allowed_origins")
            assert (await g.http.get("/healthz", headers={"origin": "null"})).status_code == 200

    run(scenario)


def test_every_answer_has_security_headers(shared: SharedRunner) -> None:
    async def scenario(g: Gateway) -> None:
        for path in ("/healthz", "/nowhere", "/docs", "/v1/status"):
            headers = (await g.http.get(path)).headers
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["referrer-policy"] == "no-referrer"
            assert "microphone=(self)" in headers["permissions-policy"]
            assert "frame-ancestors 'none'" in headers["content-security-policy"]

    shared(scenario)


def test_the_api_is_described_without_loading_anything_from_elsewhere(
    shared: SharedRunner,
) -> None:
    async def scenario(g: Gateway) -> None:
        page = await g.http.get("/docs")
        assert page.headers["content-type"].startswith("text/html")
        assert "/v1/sessions/{session}/viewers" in page.text
        assert "http://" not in page.text
        assert "https://" not in page.text
        document = (await g.http.get("/openapi.json")).json()
        assert "application/sdp" in str(document["paths"]["/v1/sessions/{session}/viewers"])

    shared(scenario)
