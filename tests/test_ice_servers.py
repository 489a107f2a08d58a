"""Accounts for TURN servers."""

from __future__ import annotations

import pytest

from avatar_server.config import MediaSettings
from avatar_server.ice_servers import ice_servers, turn_account


def test_an_account_is_what_a_turn_server_with_the_same_secret_computes() -> None:
    # By: printf 1700003600:mira | openssl dgst -sha1 -hmac north -binary | base64
    assert turn_account("north", 3_600, "mira", 1_700_000_000.9) == (
        "1700003600:mira",
        "ML+qmdve3/hYgXHnFA0qbcRQ2ts=",
    )


def test_only_turn_servers_without_a_fixed_account_get_one() -> None:
    media = MediaSettings.model_validate(
        {
            "turn_secret": "north",
            "ice_servers": [
                {"urls": ["stun:a.example"]},
                {"urls": ["turn:a.example"], "username": "u", "credential": "c"},
                {"urls": ["stun:b.example", "turns:b.example"]},
            ],
        }
    )
    stun, fixed, own = ice_servers(media, "mira", 1_000.0)
    assert stun == {"urls": ["stun:a.example"]}
    assert (fixed["username"], fixed["credential"]) == ("u", "c")
    assert own["username"] == "15400:mira"
    assert ice_servers(media, "mira", 2_000.0)[2]["credential"] != own["credential"]


def test_without_servers_there_are_none() -> None:
    assert ice_servers(MediaSettings(), "mira") == []


@pytest.mark.parametrize("secret", [None, "north"])
def test_stun_needs_no_account(secret: str | None) -> None:
    values = {"ice_servers": [{"urls": ["stun:a.example"]}], "turn_secret": secret}
    assert ice_servers(MediaSettings.model_validate(values), "m") == [{"urls": ["stun:a.example"]}]
