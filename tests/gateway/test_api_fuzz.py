"""Every endpoint of the OpenAPI document, asked for whatever the document allows and forbids."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import requests
import schemathesis
import uvicorn
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import Case, GenerationMode
from schemathesis.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from avatar_server.config import settings_from_values
from avatar_server.gateway.app import create_app
from avatar_server.gateway.control import Control
from avatar_server.gateway.previews import Previews
from avatar_server.security import Role, TokenSigner
from tests.gateway.support import OFFER, SDP, eventually
from tests.gateway.test_access import SECRET, Guarded, guarded

schemathesis.openapi.media_type(
    "application/sdp",
    st.one_of(
        st.binary(max_size=400),
        st.text(max_size=200).map(lambda text: (OFFER + text).encode()),
        st.text(max_size=200).map(lambda text: ("v=0\r\n" + text).encode()),
    ),
)


@schemathesis.serializer("application/sdp")
def sdp_body(context: schemathesis.SerializationContext, value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogatepass")


HANG_S = 20.0
EXAMPLES = 12
MOST_TASKS = 25
"""A gateway with one session needs some ten; each leak of a request would be one more."""
CREDENTIALS = ("none", "operate", "link")


def document() -> dict[str, Any]:
    control = Control(settings_from_values({}), {})
    return create_app(control, Previews({}, Path())).openapi()


OPERATIONS = {
    operation.ok().label: operation.ok()
    for operation in schemathesis.openapi.from_dict(document()).get_all_operations()
}


@dataclass
class Live:
    """A server with a session that is watched, in a thread of its own."""

    loop: asyncio.AbstractEventLoop
    gateway: Guarded
    url: str
    session: str = ""
    viewer: str = ""
    tokens: dict[str, str] = field(default_factory=dict)

    def run(self, work: Any) -> Any:
        future: Future[Any] = asyncio.run_coroutine_threadsafe(work, self.loop)
        return future.result(HANG_S)

    async def watched(self) -> None:
        """See to it that there is a session with a viewer."""
        g = self.gateway
        operator = g.bearer(g.keys["operate"])
        g.control.lifetimes.go_on()
        if self.session not in g.control.registry:
            made = await g.http.post("/v1/sessions", json={"avatar": "good"}, headers=operator)
            assert made.status_code == 201, made.text
            self.session, self.viewer = made.json()["id"], ""
            self.tokens = {
                "operate": g.keys["operate"],
                "link": TokenSigner(SECRET).sign(self.session, Role.SPEAK, 600),
            }
        for other in g.control.registry.sessions():
            if other.id != self.session:
                g.control.end(other.id)
        if self.viewer not in g.control.registry.get(self.session).viewers:
            joined = await g.http.post(
                f"/v1/sessions/{self.session}/viewers", content=OFFER, headers=SDP | operator
            )
            assert joined.status_code == 201, joined.text
            self.viewer = joined.headers["location"].rsplit("/", 1)[1]


@contextmanager
def in_thread(folder: Path) -> Iterator[Live]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="fuzzed-server")
    thread.start()
    listener = socket.create_server(("127.0.0.1", 0))

    def run(work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, loop).result(60)

    manager = guarded(folder, {"audit": False})
    gateway = run(manager.__aenter__())
    server = uvicorn.Server(
        uvicorn.Config(gateway.app, log_config=None, access_log=False, lifespan="off")
    )
    serving = asyncio.run_coroutine_threadsafe(server._serve([listener]), loop)
    try:
        yield Live(loop, gateway, f"http://127.0.0.1:{listener.getsockname()[1]}")
    finally:
        server.should_exit = True
        serving.result(HANG_S)
        run(manager.__aexit__(None, None, None))
        loop.call_soon_threadsafe(loop.stop)
        thread.join(HANG_S)
        loop.close()


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with in_thread(tmp_path_factory.mktemp("fuzzed")) as found:
        yield found


def told(response: requests.Response, secrets: list[str]) -> None:
    """No fault of the server's; refusals say what to do, and nothing that is nobody's business."""
    status = response.status_code
    assert status < 500 or status == 503, response.text
    if status >= 400 and response.headers["content-type"] == "application/problem+json":
        assert response.json()["status"] == status
        assert response.json()["detail"].endswith("."), response.text
        assert len(response.content) < 10_000
    else:
        assert status < 400 or response.url.endswith("/readyz"), response.text
    for secret in (*secrets, "Traceback", ".py", "0x7f"):
        assert secret not in response.text, (secret, response.text)


def check(case: Case, response: requests.Response, secrets: list[str]) -> None:
    """`told`, and nothing that the document does not say."""
    told(response, secrets)
    case.validate_response(
        response,
        checks=[
            status_code_conformance,
            content_type_conformance,
            response_schema_conformance,
            response_headers_conformance,
        ],
    )


@pytest.mark.parametrize("label", OPERATIONS)
def test_an_endpoint_answers_as_documented_whatever_it_is_sent(live: Live, label: str) -> None:
    operation = OPERATIONS[label]
    cases = st.one_of(
        operation.as_strategy(generation_mode=GenerationMode.POSITIVE),
        operation.as_strategy(generation_mode=GenerationMode.NEGATIVE),
    )

    @settings(
        max_examples=EXAMPLES * len(CREDENTIALS),
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(cases, st.sampled_from(CREDENTIALS), st.booleans())
    def ask(case: Case, credential: str, known: bool) -> None:
        live.run(live.watched())
        if known:
            for name, value in (("session", live.session), ("viewer", live.viewer)):
                if name in case.path_parameters:
                    case.path_parameters[name] = value
        headers = {}
        if credential != "none":
            headers["Authorization"] = f"Bearer {live.tokens[credential]}"
        secrets = [*live.gateway.keys.values(), live.tokens["link"], SECRET]
        # A new link is what these are asked for.
        if label in ("POST /v1/sessions", "POST /v1/sessions/{session}/links"):
            secrets.remove(live.tokens["link"])
        response = requests.request(
            **{**case.as_transport_kwargs(live.url, headers), "timeout": HANG_S},
            allow_redirects=False,
        )
        check(case, response, secrets)

    ask()


def test_nothing_is_left_of_what_was_asked(live: Live) -> None:
    """Runs last: no place held, no task, no session beyond the watched one."""

    async def settled() -> bool:
        await live.watched()
        control = live.gateway.control
        held = any(session.joining for session in control.registry.sessions())
        return not held and not control._ending and len(asyncio.all_tasks()) < MOST_TASKS

    live.run(eventually(settled, "joins and tasks have ended"))


# What JSON parsers and URLs can be sent, and no document describes.
ODD_JSON = st.one_of(
    st.binary(max_size=200),
    st.sampled_from(
        [
            b"[" * 60_000,
            b'{"a":' * 12_000,
            b'{"avatar": ' + b"9" * 5_000 + b"}",
            b'{"avatar": "\\ud800"}',
            b'{"\\ud800": 1}',
            b'{"' + b"k" * 60_000 + b'": 1}',
            b"{" + b",".join(b'"k%d":1' % n for n in range(6_000)) + b"}",
            b'{"avatar": "good", "avatar": null}',
            b'{"role": "speak", "lifetime_s": NaN}',
            b'{"lifetime_s": 1e999}',
            b'{"lifetime_s": -Infinity}',
            b'{"lifetime_s": 1e-320}',
            b'{"deadline_s": NaN}',
            b'{"deadline_s": 86400.0000001}',
            b'{"candidate": "candidate:1 1 udp 1 \\u0000 1 typ host", "sdpMLineIndex": 1e30}',
            b'{"candidate": "\\udfff", "sdpMid": "\\ud83d"}',
            b"\xef\xbb\xbf{}",
            '{"avatar": "good"}'.encode("utf-16"),
            b"null",
            b"",
        ]
    ),
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(max_size=20),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
        max_leaves=12,
    ).map(lambda value: json.dumps(value).encode("utf-8", "surrogatepass")),
)
TYPES = st.sampled_from(
    [
        "application/json",
        "application/json; charset=utf-16",
        "text/plain",
        "",
        "multipart/form-data",
    ]
)
IDEMPOTENCY = st.none() | st.text(
    st.characters(min_codepoint=0x20, max_codepoint=0xFF, exclude_characters="\x7f"), max_size=300
)
BODIES = (
    ("POST", "/v1/sessions"),
    ("POST", "/v1/sessions/{session}/links"),
    ("PATCH", "/v1/sessions/{session}/viewers/{viewer}"),
    ("POST", "/v1/drain"),
)


def test_bodies_that_are_no_sensible_json_are_told_so(live: Live) -> None:
    @settings(max_examples=250, derandomize=True, deadline=None, database=None)
    @given(st.sampled_from(BODIES), ODD_JSON, TYPES, IDEMPOTENCY)
    def ask(place: tuple[str, str], body: bytes, kind: str, key: str | None) -> None:
        live.run(live.watched())
        path = place[1].replace("{session}", live.session).replace("{viewer}", live.viewer)
        headers = {"Authorization": f"Bearer {live.tokens['operate']}", "Content-Type": kind}
        if key is not None:
            headers["Idempotency-Key"] = key.strip()
        response = requests.request(
            place[0],
            live.url + path,
            data=body,
            headers={name: value.encode("latin-1") for name, value in headers.items()},
            timeout=HANG_S,
        )
        told(response, list(live.gateway.keys.values()))

    ask()


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "FOO"])
def test_addresses_that_lead_nowhere_are_told_so(live: Live, method: str) -> None:
    @settings(max_examples=60, derandomize=True, deadline=None, database=None)
    @given(
        st.sampled_from(
            [
                "/static/",
                "/avatars/",
                "/s/",
                "/v1/sessions/",
                "/v1/sessions?after=",
                "/",
                "/v1/logs?",
            ]
        ),
        st.binary(max_size=40).map(quote) | st.sampled_from(["../..", "%2e%2e/%2e%2e/etc", "%00"]),
    )
    def ask(start: str, rest: str) -> None:
        response = requests.request(method, live.url + start + rest, timeout=HANG_S)
        told(response, list(live.gateway.keys.values()))

    ask()
