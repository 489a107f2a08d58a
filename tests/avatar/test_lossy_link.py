"""Viewers behind a link that loses packets."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiortc import RTCSessionDescription
from lossy_link import Link, Relay
from media_client import Client, Session, session, small, until

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def behind_a_link(running: Session) -> AsyncIterator[tuple[Client, Relay]]:
    client, relay = Client("far"), Relay()
    await client.pc.setLocalDescription(await client.pc.createOffer())
    offer = client.pc.localDescription.sdp
    # Without candidates in the offer the server answers the relay's address only.
    bare = "".join(
        line
        for line in offer.splitlines(keepends=True)
        if not line.startswith(("a=candidate", "a=end-of-candidates"))
    )
    answer = await relay.rewrite(await running.peers.offer("far", bare, False))
    client._tap()
    await client.pc.setRemoteDescription(RTCSessionDescription(answer, "answer"))
    try:
        await asyncio.wait_for(client.open.wait(), 10)
        await until(lambda: len(client.pictures) > 5)
        yield client, relay
    finally:
        await client.close()
        relay.close()


async def test_what_the_link_loses_is_sent_again_and_the_picture_goes_on() -> None:
    async with session(small()) as running, behind_a_link(running) as (client, relay):
        relay.down = Link(loss=0.05, delay_s=0.02, jitter_s=0.005)
        before = len(client.pictures)
        await until(lambda: relay.down.lost >= 8, 20)
        relay.down = Link()
        seen = len(client.pictures)
        await until(lambda: len(client.pictures) > seen + 20)
        assert seen > before + 10
        stats = running.peers.stats()["far"]
        assert stats["retransmitted"] >= 1


async def test_after_a_blackout_the_picture_comes_back_soon() -> None:
    async with session(small()) as running, behind_a_link(running) as (client, relay):
        relay.down, relay.up = Link(loss=1.0), Link(loss=1.0)
        await asyncio.sleep(1.5)
        dark = len(client.pictures)
        relay.down, relay.up = Link(), Link()
        lit = asyncio.get_running_loop().time()
        await until(lambda: len(client.pictures) > dark + 3)
        assert client.pictures[dark + 3][0] - lit < 3.0
        assert running.calls.left == []


async def test_one_bad_link_takes_nothing_from_the_other_viewer() -> None:
    async with session(small()) as running, behind_a_link(running) as (_, relay):
        near = Client("near")
        await near.join(running.peers)
        try:
            relay.down = Link(loss=0.3, rate_bps=50_000)
            await until(lambda: len(near.payloads) > 60)
            numbers = [number for _, number, _ in near.payloads]
            assert all((b - a) & 0xFFFF == 1 for a, b in itertools.pairwise(numbers))
        finally:
            await near.close()
