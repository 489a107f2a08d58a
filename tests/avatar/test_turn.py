"""The server's own end of TURN and STUN."""

from __future__ import annotations

import asyncio
import logging
import time

import pytest
from media_client import Client, session, small, until
from turn_server import TurnServer

from avatar_server.config import MediaSettings

pytestmark = pytest.mark.anyio


def settings(server: str, **changes: object) -> MediaSettings:
    values = {**small().model_dump(), "ice_servers": [{"urls": [server]}], **changes}
    return MediaSettings.model_validate(values)


async def test_media_flows_through_a_relay_with_an_account_that_ends_by_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The relay is the only way: the server has no address of its own to offer.
    monkeypatch.setattr("avatar_server.avatar.ice.host_addresses", lambda public: [])
    async with TurnServer("north") as turn:
        media = settings(turn.url, turn_secret="north", turn_lifetime_s=600)
        async with session(media) as running:
            client = Client("v")
            # The relay listens on loopback, so that the client must be there too.
            monkeypatch.setattr("aioice.ice.get_host_addresses", lambda **_: ["127.0.0.1"])
            try:
                answer = await client.join(running.peers)
                assert "typ relay" in answer
                assert "typ host" not in answer
                await until(lambda: client.pictures and client.sound)
                await until(lambda: turn.relayed > 60)
                expiry = int(turn.users[0].partition(":")[0])
                assert 590 <= expiry - time.time() <= 600
            finally:
                await client.close()
            await until(lambda: running.calls.left)
            await until(lambda: turn.allocations == 0)


async def test_a_relay_that_refuses_us_is_logged_without_secrets_and_done_without(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    async with TurnServer("north") as turn:
        media = settings(turn.url, turn_secret="s0uth")
        async with session(media) as running:
            client = Client("v")
            try:
                answer = await client.join(running.peers)
                assert "typ relay" not in answer
                await until(lambda: client.payloads)
            finally:
                await client.close()
        assert turn.refused == 1
    assert "the TURN server gave no address: error 401, the account was refused" in caplog.text
    assert "s0uth" not in caplog.text


async def test_servers_that_do_not_answer_delay_a_join_by_two_seconds_only() -> None:
    loop = asyncio.get_running_loop()
    silent, _ = await loop.create_datagram_endpoint(
        asyncio.DatagramProtocol, local_addr=("127.0.0.1", 0)
    )
    port = silent.get_extra_info("sockname")[1]
    media = settings(f"turn:127.0.0.1:{port}", turn_secret="north")
    async with session(media) as running:
        client = Client("v")
        try:
            began = time.monotonic()
            await client.join(running.peers)
            assert 1.9 < time.monotonic() - began < 4.0
            await until(lambda: client.payloads)
        finally:
            await client.close()
    silent.close()
