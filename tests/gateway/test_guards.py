"""Which pages may change something."""

from __future__ import annotations

import pytest
from starlette.datastructures import Headers

from avatar_server.gateway.guards import foreign_origin, is_loopback


def refused(loopback_only: bool = False, allowed: tuple[str, ...] = (), **headers: str) -> bool:
    named = Headers({key.replace("_", "-"): value for key, value in headers.items()})
    return foreign_origin(named, loopback_only=loopback_only, allowed=allowed) is not None


def test_the_servers_own_pages_pass_whatever_the_scheme() -> None:
    assert not refused(origin="http://box:8080", host="box:8080")
    assert not refused(origin="https://Talk.Example", host="talk.example"), "behind a TLS proxy"
    assert not refused(origin="http://[::1]:8080", host="[::1]:8080", loopback_only=True)


def test_other_ports_and_opaque_origins_are_foreign() -> None:
    assert refused(origin="http://localhost:3000", host="localhost:8080")
    assert refused(origin="null", host="localhost:8080")
    assert refused(origin="", host="localhost:8080")
    assert refused(origin="http://localhost:8080")


def test_a_name_made_to_point_at_this_machine_is_refused_on_loopback_only() -> None:
    rebound = {"origin": "http://evil.example:8080", "host": "evil.example:8080"}
    assert refused(loopback_only=True, **rebound)
    assert not refused(loopback_only=False, **rebound)
    assert not refused(loopback_only=True, allowed=("http://evil.example:8080/",), **rebound), (
        "an operator may allow it"
    )


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_a_browser_that_says_that_the_page_is_another_is_believed(site: str) -> None:
    assert refused(sec_fetch_site=site, host="localhost:8080")
    assert not refused(sec_fetch_site="same-origin", host="localhost:8080")


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("localhost", True),
        ("127.0.0.1", True),
        ("127.1.2.3", True),
        ("[::1]", True),
        ("a.localhost", True),
        ("0.0.0.0", False),
        ("192.0.2.1", False),
        ("127.0.0.1.evil.example", False),
        ("127.evil.example", False),
        ("localhost.evil.example", False),
        ("", False),
    ],
)
def test_loopback_is_recognised(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback
