"""Viewers behind a link that loses packets."""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import cv2
import numpy as np
import pytest
from aiortc import RTCSessionDescription
from lossy_link import Link, Relay
from media_client import Client, Session, session, small, until

from avatar_server.avatar.microphone import Microphone
from avatar_server.avatar.packets import Encoding
from avatar_server.config import MediaSettings, VideoSettings
from avatar_server.protocol.events import Bye
from renderers.contract import I420Frame

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def behind_a_link(
    running: Session, down: Link | None = None
) -> AsyncIterator[tuple[Client, Relay]]:
    """A viewer who sees pictures already; `down` is what its link is from the start."""
    client, relay = Client("far"), Relay()
    relay.down = down or Link()
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


def longest_freeze(client: Client, since: int) -> float:
    """Seconds between two pictures that follow one another, the longest."""
    times = [at for at, _, _ in client.pictures[since:]]
    return max(b - a for a, b in itertools.pairwise(times))


def longest_silence(client: Client, since: int) -> float:
    """Seconds without the source's tone, as the product's own decoder plays what came."""
    microphone = Microphone()
    pieces = [
        piece
        for _, number, timestamp, payload in client.sound_packets[since:]
        for piece in microphone.feed(number, timestamp, payload)
    ]
    level = np.abs(np.concatenate(pieces)[1_600:]).reshape(-1, 16).max(axis=1)
    runs = itertools.groupby(level < 400)
    return max((len(list(run)) / 1_000 for quiet, run in runs if quiet), default=0.0)


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


async def test_with_one_percent_lost_no_gap_in_the_sound_is_over_60_ms() -> None:
    async with session(small()) as running, behind_a_link(running) as (client, relay):
        relay.down = Link(loss=0.01, delay_s=0.02, jitter_s=0.01, seed=3)
        since = len(client.sound_packets)
        await asyncio.sleep(10)
        assert relay.down.lost >= 5
        heard = client.sound_packets[since:]
        assert len(heard) > 450
        assert longest_silence(client, since) <= 0.06


async def test_with_five_percent_lost_no_freeze_is_over_half_a_second() -> None:
    async with session(small()) as running, behind_a_link(running) as (client, relay):
        client.ask_again_as_browsers_do()
        relay.down = relay.up = Link(loss=0.05, delay_s=0.02, jitter_s=0.01, seed=5)
        since = len(client.pictures)
        await asyncio.sleep(12)
        assert relay.down.lost >= 30
        assert len(client.pictures) - since > 300
        assert longest_freeze(client, since) <= 0.5


async def test_with_ten_percent_lost_the_picture_is_whole_and_goes_on() -> None:
    async with session(small()) as running, behind_a_link(running) as (client, relay):
        client.ask_again_as_browsers_do()
        relay.down = relay.up = Link(loss=0.1, delay_s=0.02, jitter_s=0.01, seed=7)
        since = len(client.pictures)
        await asyncio.sleep(12)
        assert len(client.pictures) - since > 250
        assert longest_freeze(client, since) <= 1.2
        # Above and below the bar there is nothing but grey: smears would show there.
        for _, _, luma in client.pictures[since:]:
            assert np.count_nonzero(np.abs(luma[0].astype(int) - 128) > 60) <= 72
            assert luma.std(axis=0).max() < 12


async def test_after_a_blackout_of_three_seconds_the_picture_is_back_within_one() -> None:
    async with session(small()) as running, behind_a_link(running) as (client, relay):
        client.ask_again_as_browsers_do()
        relay.down, relay.up = Link(loss=1.0), Link(loss=1.0)
        await asyncio.sleep(3.0)
        dark = len(client.pictures)
        relay.down, relay.up = Link(), Link()
        lit = asyncio.get_running_loop().time()
        _, before, _ = client.pictures[dark - 1]
        # A picture of now, not one that was kept.
        await until(lambda: client.pictures[-1][1] - before > 2.9 * 90_000)
        assert client.pictures[-1][0] - lit < 1.0
        assert running.calls.left == []


async def test_where_the_link_is_too_slow_a_smaller_picture_is_fluent_and_no_other_is_touched() -> (
    None
):
    video = VideoSettings(
        width=640, height=360, crf=20, max_bitrate_bps=2_000_000, min_bitrate_bps=250_000
    )
    async with session(MediaSettings(video=video)) as running:
        rng = np.random.default_rng(1)
        running.source.detail = cv2.GaussianBlur(
            rng.integers(0, 255, (360, 640), np.uint8), (0, 0), 3
        )
        near = Client("near")
        await near.join(running.peers)
        async with behind_a_link(running) as (far, relay):
            far.ask_again_as_browsers_do()
            relay.down = Link(delay_s=0.02, rate_bps=600_000)
            stats = lambda name: running.peers.stats()[name]  # noqa: E731
            await until(lambda: stats("near")["joined"] and len(near.pictures) > 60)
            await until(lambda: stats("far")["layer"] == "low", 12)
            await asyncio.sleep(2)
            since, near_since = len(far.pictures), len(near.pictures)
            lost = relay.down.lost
            await asyncio.sleep(5)
            assert far.pictures[-1][2].shape == (180, 320)
            assert len(far.pictures) - since > 130
            assert longest_freeze(far, since) <= 0.5
            assert relay.down.lost - lost <= 5
            assert stats("far")["layer"] == "low"
            # The other viewer still gets the full picture, every packet of it.
            assert stats("near")["layer"] == "full"
            assert {luma.shape for _, _, luma in near.pictures} == {(360, 640)}
            assert longest_freeze(near, near_since) <= 0.5
            numbers = [number for _, number, _ in near.payloads]
            assert all((b - a) & 0xFFFF == 1 for a, b in itertools.pairwise(numbers))
            # With room again the full picture comes back by itself.
            relay.down = Link(delay_s=0.02)
            await until(lambda: far.pictures[-1][2].shape == (360, 640), 40)
            assert running.fanout.encodings == {Encoding("h264", "full")}
        await near.close()


async def test_the_first_picture_of_a_viewer_alone_fits_through_a_slow_link() -> None:
    settings = MediaSettings(video=VideoSettings(width=640, height=360))
    async with session(settings) as running:
        rng = np.random.default_rng(1)
        texture = cv2.GaussianBlur(rng.integers(0, 255, (360, 640), np.uint8), (0, 0), 1.6)

        def draw(media_time: float, frame: I420Frame) -> bool:
            frame.data[:] = 128
            frame.y[64:] = texture[64:]
            frame.y[:64, int(media_time * 100) % 500 :][:, :64] = 220
            return True

        running.source.draw = draw  # type: ignore[method-assign]
        # What a home router holds: 22 kB. An ordinary keyframe of this scene has 34 kB.
        slow = Link(delay_s=0.02, rate_bps=600_000)
        async with behind_a_link(running, slow) as (far, relay):
            assert relay.down.lost == 0
            assert len({at for at, _, _ in far.payloads}) >= 5
            first, *_ = far.payloads[0]
            small = sum(len(data) for at, _, data in far.payloads if at == first)
            near = Client("near")
            await near.join(running.peers)
            await until(lambda: len({at for at, _, _ in near.payloads}) > 2)
            first = near.payloads[0][0]
            usual = sum(len(data) for at, _, data in near.payloads if at == first)
            assert small < 0.6 * usual
            assert usual > 22_500
            await near.close()


async def test_a_viewer_whose_path_dies_comes_back_by_another_and_never_left() -> None:
    async with session(small(), max_viewers=1) as running, behind_a_link(running) as (_, relay):
        files = len(os.listdir("/proc/self/fd"))
        relay.down, relay.up = Link(loss=1.0), Link(loss=1.0)
        await asyncio.sleep(1.0)
        assert running.peers.viewers() == ["far"]
        again = Client("far")
        try:
            await again.join(running.peers)
            await until(lambda: again.pictures and again.sound)
            assert running.peers.viewers() == ["far"]
            assert (running.calls.returned, running.calls.left) == ([("far", True)], [])
            assert len(running.calls.joined) == 1
            assert running.fanout.viewers == 1
            # What the dead connection held is freed though it cannot be told so.
            await until(lambda: len(os.listdir("/proc/self/fd")) <= files + 4)
        finally:
            await again.close()
        await until(lambda: running.calls.left)


async def test_a_viewer_who_does_not_come_back_in_time_is_gone() -> None:
    settings = small().model_copy(update={"viewer_timeout_s": 2.0})
    async with session(settings) as running, behind_a_link(running) as (_, relay):
        relay.down, relay.up = Link(loss=1.0), Link(loss=1.0)
        dark = time.monotonic()
        await until(lambda: running.calls.left, 5)
        assert 1.2 < time.monotonic() - dark < 2.5
        assert running.calls.left == [("far", "nothing was heard of it any more")]
        assert running.calls.goodbyes == 0
        assert not running.peers.abandoned
        late = Client("far")
        await late.join(running.peers)
        assert running.calls.joined[1:] == [("far", True)]
        late.send(Bye())
        await until(lambda: running.peers.abandoned)
        assert running.calls.goodbyes == 1
        await late.close()


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
