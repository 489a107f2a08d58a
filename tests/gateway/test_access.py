"""Who may do what: every route, with every kind of credential."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.routing import APIRoute

from avatar_server.config import settings_from_values
from avatar_server.gateway.access import NEEDS, Access, Need, key_required
from avatar_server.gateway.app import create_app
from avatar_server.gateway.control import Control
from avatar_server.gateway.exposure import NotSafe, check_exposure, tls_context
from avatar_server.gateway.previews import Previews
from avatar_server.gateway.reload import Reloader
from avatar_server.security import AuditLog, KeyStore, Role, Scope, TokenSigner
from tests.gateway.support import OFFER, SDP, fake_avatars, fake_commands

SECRET = "a secret for tests, of 32 bytes and more"
STRANGER = ("203.0.113.9", 50_000)


@dataclass
class Guarded:
    control: Control
    http: httpx.AsyncClient
    access: Access
    audit: Path
    keys: dict[str, str]
    app: Any

    def bearer(self, credential: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {credential}"}

    def log(self) -> list[dict[str, str]]:
        if not self.audit.exists():
            return []
        return [json.loads(line) for line in self.audit.read_text().splitlines()]


@asynccontextmanager
async def guarded(folder: Path, security: dict[str, Any] | None = None) -> AsyncIterator[Guarded]:
    """A server that asks for keys, reached from another machine."""
    settings = settings_from_values(
        {
            "security": {"require_key": "always", **(security or {})},
            "sessions": {"warm_spares": 0, "max_sessions": 4},
            "http": {"host": "0.0.0.0", "allow_plain": True},
        }
    )
    store = KeyStore(folder / "keys.json")
    keys = {scope.value: store.create(scope.value, scope)[1] for scope in Scope}
    keys["revoked"] = store.create("revoked", Scope.ADMIN)[1]
    store.revoke("revoked")
    audit = folder / "audit.jsonl"
    access = Access(settings, keys=store, audit=AuditLog(audit), token_secret=SECRET)
    avatars = fake_avatars(folder)
    control = Control(settings, avatars, commands=fake_commands())
    previews = Previews(avatars, folder / "previews")
    reloader = Reloader(control, previews, lambda: (settings, avatars))
    app = create_app(control, previews, access, reloader=reloader)
    await control.start()
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False, client=STRANGER)
    try:
        async with httpx.AsyncClient(
            transport=transport, base_url="http://avatars.example", timeout=30
        ) as http:
            assert await control.models.wait_until_ready(20)
            yield Guarded(control, http, access, audit, keys, app)
    finally:
        await control.stop()
        await previews.stop()


def flat(found: list[Any]) -> Iterator[Any]:
    """All routes; those of included routers are kept below an entry of their own."""
    for route in found:
        if (router := getattr(route, "original_router", None)) is not None:
            yield from flat(router.routes)
        else:
            yield route


def routes(app: Any) -> list[tuple[str, str]]:
    return [
        (method, route.path)
        for route in flat(app.routes)
        if isinstance(route, APIRoute)
        for method in sorted(route.methods - {"HEAD"})
    ]


def test_every_route_says_what_it_needs(tmp_path: Path) -> None:
    settings = settings_from_values({})
    control = Control(settings, fake_avatars(tmp_path), commands=fake_commands())
    app = create_app(control, Previews(control.avatars, tmp_path))
    assert set(routes(app)) == set(NEEDS)


def test_what_a_stranger_reaches_is_this_and_no_more() -> None:
    public = {"/", "/s/{session}", "/admin", "/docs", "/healthz", "/readyz", "/v1/status"}
    public |= {"/v1/avatars", "/avatars/{name}/picture", "/avatars/{name}/preview"}
    assert {place for place, need in NEEDS.items() if need is Need.NOTHING} == {
        ("GET", path) for path in public
    }


def test_nothing_is_reached_beside_the_routes_that_are_checked(tmp_path: Path) -> None:
    """A mount or a plain route has no dependency of ours: only what is public may be one."""
    control = Control(settings_from_values({}), fake_avatars(tmp_path), commands=fake_commands())
    app = create_app(control, Previews(control.avatars, tmp_path))
    others = {route.path for route in flat(app.routes) if not isinstance(route, APIRoute)}
    assert others == {"/openapi.json", "/static"}
    documented = {
        (method.upper(), path)
        for path, operations in app.openapi()["paths"].items()
        for method in operations
    }
    pages = {("GET", path) for path in ("/", "/admin", "/docs", "/s/{session}")}
    assert documented == set(NEEDS) - pages


# By need: which credentials get past the door. Everything else is 401, or 403 where the
# credential is good for something else.
ALLOWED = {
    Need.NOTHING: {"none", "wrong", "revoked", "read", "operate", "admin", "link", "expired"},
    Need.READ: {"read", "operate", "admin"},
    Need.OPERATE: {"operate", "admin"},
    Need.START: {"operate", "admin"},
    Need.VIEW: {"operate", "admin", "link"},
}
CREDENTIALS = ["none", "wrong", "revoked", "read", "operate", "admin", "link", "expired", "other"]
FORBIDDEN = {
    (Need.OPERATE, "read"),
    (Need.START, "read"),
    (Need.VIEW, "read"),
    (Need.VIEW, "other"),
}
BODIES: dict[tuple[str, str], dict[str, Any]] = {
    ("POST", "/v1/sessions"): {"json": {"avatar": "good"}},
    ("POST", "/v1/sessions/{session}/links"): {"json": {}},
    ("POST", "/v1/sessions/{session}/viewers"): {"content": OFFER, "headers": SDP},
    ("PATCH", "/v1/sessions/{session}/viewers/{viewer}"): {"json": {"candidate": ""}},
}


async def begin(g: Guarded) -> str:
    """A session, started by an operator."""
    operator = g.bearer(g.keys["operate"])
    made = await g.http.post("/v1/sessions", json={"avatar": "good"}, headers=operator)
    assert made.status_code == 201, made.text
    return str(made.json()["id"])


def test_the_matrix_of_routes_and_credentials(tmp_path: Path) -> None:
    async def scenario() -> None:
        limits = {"start_burst": 10_000, "request_burst": 100_000}
        async with guarded(tmp_path, limits) as g:
            signer = TokenSigner(SECRET)
            seen = set[tuple[str, str]]()
            session = await begin(g)
            for method, path in routes(g.app):
                need = NEEDS[method, path]
                for kind in CREDENTIALS:
                    g.control.lifetimes.go_on()
                    if session not in g.control.registry:
                        session = await begin(g)
                    credential = {
                        "none": None,
                        "wrong": "avs_000000000000_" + "x" * 43,
                        "link": signer.sign(session, Role.SPEAK, 60),
                        "expired": signer.sign(session, Role.SPEAK, 60, now=1_000_000.0),
                        "other": signer.sign("another", Role.SPEAK, 60),
                    }.get(kind, g.keys.get(kind))
                    place = path.replace("{session}", session).replace("{viewer}", "abc")
                    call: dict[str, Any] = dict(BODIES.get((method, path), {}))
                    headers = {**call.pop("headers", {})}
                    if credential is not None:
                        headers |= g.bearer(credential)
                    answer = await g.http.request(method, place, headers=headers, **call)
                    what = (method, path, kind, answer.status_code, answer.text[:200])
                    assert answer.status_code < 500 or answer.status_code == 503, what
                    if kind in ALLOWED[need] or (need is Need.NOTHING and kind == "other"):
                        assert answer.status_code not in (401, 403), what
                    elif (need, kind) in FORBIDDEN:
                        assert answer.status_code == 403, what
                    else:
                        assert answer.status_code == 401, what
                        assert answer.headers["www-authenticate"] == "Bearer"
                    for running in g.control.registry.sessions():
                        if running.id != session:
                            g.control.end(running.id)
                    seen.add((method, path))
            assert seen == set(NEEDS)

    asyncio.run(scenario())


def test_a_watcher_may_not_speak_whatever_it_asks_for(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with guarded(tmp_path) as g:
            operator = g.bearer(g.keys["operate"])
            made = await g.http.post("/v1/sessions", json={"avatar": "good"}, headers=operator)
            session = made.json()["id"]
            links = f"/v1/sessions/{session}/links"
            link = await g.http.post(links, json={"role": "watch"}, headers=operator)
            assert link.status_code == 201
            assert link.json()["link"] == f"/s/{session}#t={link.json()['token']}"
            for token, speaks in ((link.json()["token"], False), (made.json()["token"], True)):
                answer = await g.http.post(
                    f"/v1/sessions/{session}/viewers?speak=true",
                    content=OFFER,
                    headers=SDP | g.bearer(token),
                )
                assert answer.status_code == 201, answer.text
                assert f"a=speak:{speaks}" in answer.text

    asyncio.run(scenario())


def test_a_revoked_link_lets_nobody_in_and_lets_go_who_came_by_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with guarded(tmp_path) as g:
            operator = g.bearer(g.keys["operate"])
            session = await begin(g)
            links, viewers = (f"/v1/sessions/{session}/{part}" for part in ("links", "viewers"))
            made = [(await g.http.post(links, json={}, headers=operator)).json() for _ in range(2)]
            places = []
            for link in made:
                joined = await g.http.post(
                    viewers, content=OFFER, headers=SDP | g.bearer(link["token"])
                )
                assert joined.status_code == 201, joined.text
                places.append(joined.headers["location"])
            listed = (await g.http.get(links, headers=operator)).json()
            assert [one["viewers"] for one in listed] == [0, 1, 1], (
                "the first came with the session"
            )
            assert not any(link["token"] in str(listed) for link in made)
            done = await g.http.delete(f"{links}/{made[0]['id']}", headers=operator)
            assert done.status_code == 204
            for method, place, body in (
                ("POST", viewers, OFFER),
                ("PUT", places[0], OFFER),
                ("GET", f"/v1/sessions/{session}", ""),
            ):
                refused = await g.http.request(
                    method, place, content=body, headers=SDP | g.bearer(made[0]["token"])
                )
                assert refused.status_code == 401, (method, refused.text)
                assert "was revoked" in refused.json()["detail"]
                assert refused.json()["title"] == "This link cannot be used"
            left = g.control.registry.get(session).viewers
            assert [
                place.rsplit("/", 1)[1] for place in places if place.rsplit("/", 1)[1] in left
            ] == [places[1].rsplit("/", 1)[1]]
            again = await g.http.put(
                places[1], content=OFFER, headers=SDP | g.bearer(made[1]["token"])
            )
            assert again.status_code == 200, "the other link is as good as before"
            unknown = await g.http.delete(f"{links}/abc", headers=operator)
            assert unknown.status_code == 404
            listed = (await g.http.get(links, headers=operator)).json()
            assert [one["revoked"] for one in listed] == [False, True, False]
            assert g.log()[-1]["action"] == "link.revoke"

    asyncio.run(scenario())


def test_an_expired_link_says_so(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with guarded(tmp_path) as g:
            session = await begin(g)
            old = TokenSigner(SECRET).sign(session, Role.SPEAK, 60, now=1_000_000.0)
            refused = await g.http.get(f"/v1/sessions/{session}", headers=g.bearer(old))
            assert refused.status_code == 401
            assert "has expired" in refused.json()["detail"]

    asyncio.run(scenario())


def test_anybody_may_start_where_the_operator_says_so(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with guarded(tmp_path, {"public_start": True}) as g:
            assert (await g.http.get("/v1/status")).json()["start"] == "anybody"
            made = await g.http.post("/v1/sessions", json={"avatar": "good"})
            assert made.status_code == 201
            session = made.json()["id"]
            bare = await g.http.post(f"/v1/sessions/{session}/viewers", content=OFFER, headers=SDP)
            assert bare.status_code == 401
            joined = await g.http.post(
                f"/v1/sessions/{session}/viewers",
                content=OFFER,
                headers=SDP | g.bearer(made.json()["token"]),
            )
            assert joined.status_code == 201
            ended = await g.http.delete(f"/v1/sessions/{session}")
            assert ended.status_code == 401

    asyncio.run(scenario())


def test_only_operators_choose_whether_a_session_is_recorded(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with guarded(tmp_path, {"public_start": True}) as g:
            body = {"avatar": "good", "record": True}
            refused = await g.http.post("/v1/sessions", json=body)
            assert refused.status_code == 403
            assert not g.control.registry.sessions()
            operator = g.bearer(g.keys["operate"])
            made = await g.http.post("/v1/sessions", json=body, headers=operator)
            assert made.status_code == 201
            assert made.json()["recorded"]
            assert "session.create.recorded" in [line["action"] for line in g.log()]

    asyncio.run(scenario())


def test_a_link_longer_than_allowed_is_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with guarded(tmp_path, {"most_link_lifetime_s": 100, "link_lifetime_s": 60}) as g:
            operator = g.bearer(g.keys["operate"])
            made = await g.http.post("/v1/sessions", json={"avatar": "good"}, headers=operator)
            links = f"/v1/sessions/{made.json()['id']}/links"
            long = await g.http.post(links, json={"lifetime_s": 101}, headers=operator)
            assert long.status_code == 422
            assert "at most 100 s" in long.json()["detail"]

    asyncio.run(scenario())


def test_starting_too_often_is_slowed_down_and_says_for_how_long(tmp_path: Path) -> None:
    async def scenario() -> None:
        security = {"public_start": True, "start_burst": 2, "starts_per_minute": 6}
        async with guarded(tmp_path, security) as g:
            for _ in range(2):
                made = await g.http.post("/v1/sessions", json={"avatar": "good"})
                assert made.status_code == 201
            third = await g.http.post("/v1/sessions", json={"avatar": "good"})
            assert third.status_code == 429
            # 10 s for the next one, less what the two starts took.
            assert 3 <= int(third.headers["retry-after"]) <= 10
            assert third.json()["detail"].endswith(".")

    asyncio.run(scenario())


def test_asking_too_often_is_slowed_down(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with guarded(tmp_path, {"request_burst": 5, "requests_per_minute": 60}) as g:
            codes = [(await g.http.get("/healthz")).status_code for _ in range(8)]
            assert codes[:5] == [200] * 5
            assert codes[-1] == 429

    asyncio.run(scenario())


def test_what_operators_do_and_what_is_refused_is_written_down_without_secrets(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        async with guarded(tmp_path) as g:
            operator = g.bearer(g.keys["operate"])
            made = await g.http.post("/v1/sessions", json={"avatar": "good"}, headers=operator)
            session = made.json()["id"]
            await g.http.delete(f"/v1/sessions/{session}", headers=g.bearer(g.keys["revoked"]))
            await g.http.delete(f"/v1/sessions/{session}", headers=operator)
            told = [(e["actor"], e["action"], e["target"], e["outcome"]) for e in g.log()]
            assert told == [
                ("operate", "session.create", session, "done"),
                ("nobody", "DELETE /v1/sessions/{session}", session, "unauthorised"),
                ("operate", "session.end", session, "done"),
            ]
            assert {e["address"] for e in g.log()} == {STRANGER[0]}
            text = g.audit.read_text()
            assert not any(key in text for key in g.keys.values())
            assert made.json()["token"] not in text

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("values", "required"),
    [
        ({}, False),
        ({"http": {"host": "0.0.0.0"}}, True),
        ({"http": {"host": "::"}}, True),
        ({"http": {"trusted_proxies": ["127.0.0.1"]}}, True),
        ({"security": {"require_key": "always"}}, True),
        ({"http": {"host": "0.0.0.0"}, "security": {"require_key": "never"}}, False),
    ],
)
def test_keys_are_asked_for_where_others_can_reach_the_server(
    values: dict[str, Any], required: bool
) -> None:
    assert key_required(settings_from_values(values)) is required


def test_a_server_is_not_opened_wider_without_tls_and_a_key(tmp_path: Path) -> None:
    store = KeyStore(tmp_path / "keys.json")
    wide = {"host": "0.0.0.0"}
    check_exposure(settings_from_values({}), store)
    with pytest.raises(NotSafe, match="no TLS"):
        check_exposure(settings_from_values({"http": wide}), store)
    plain = settings_from_values({"http": wide | {"allow_plain": True}})
    with pytest.raises(NotSafe, match="avatar-server keys create"):
        check_exposure(plain, store)
    store.create("ops", Scope.OPERATE)
    check_exposure(plain, store)


def test_certificates_that_cannot_be_used_are_told_in_words(tmp_path: Path) -> None:
    missing = settings_from_values(
        {"http": {"tls_certificate": str(tmp_path / "c.pem"), "tls_key": str(tmp_path / "k.pem")}}
    )
    with pytest.raises(NotSafe, match=r"There is no file .*c\.pem"):
        tls_context(missing.http)
    (tmp_path / "c.pem").write_text("nonsense", encoding="utf-8")
    (tmp_path / "k.pem").write_text("nonsense", encoding="utf-8")
    with pytest.raises(NotSafe, match="PEM"):
        tls_context(missing.http)
