"""The browser benchmark, short, and the product's path to a real browser over bad links."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest

from avatar_server.bench.browser import bench_browser, find_browser
from avatar_server.bench.children import BenchError
from tests.avatar.lossy_link import Link, Relay

try:
    find_browser()
except BenchError:
    if os.environ.get("CI") != "true":
        pytest.skip("no chromium on this machine", allow_module_level=True)


def ours(seconds: float, relay: Relay | None = None, during: Any = None) -> dict[str, Any]:
    figures = bench_browser(seconds, ["ours"], between=relay, during=during)["ours"]
    print(figures)
    return figures


def test_a_browser_shows_the_session_without_a_freeze_and_soon_after_it_was_drawn() -> None:
    figures = ours(6)
    # What a machine with too much to do leaves out, no browser can show.
    assert figures["fps"] >= 0.95 * figures["server_fps"]
    assert figures["freezes"] == 0 or figures["server_fps"] < 29
    assert figures["size"] == [1280, 720]
    assert figures["unread"] == 0
    assert 5 < figures["latency_ms"]["p50"] < 250


def test_with_five_percent_lost_no_freeze_in_a_browser_is_over_half_a_second() -> None:
    relay = Relay()
    relay.down = Link(loss=0.05, delay_s=0.02, jitter_s=0.01, seed=5)
    relay.up = Link(loss=0.05, delay_s=0.02, jitter_s=0.01, seed=6)
    figures = ours(10, relay)
    assert relay.down.lost > 20
    assert figures["longest_gap_ms"] <= 500
    assert figures["fps"] >= 0.9 * figures["server_fps"]
    assert figures["unread"] <= 3


def test_after_a_blackout_of_three_seconds_a_browser_shows_the_avatar_within_one() -> None:
    relay = Relay()

    async def black_out() -> None:
        await asyncio.sleep(1)
        relay.down, relay.up = Link(loss=1.0), Link(loss=1.0)
        await asyncio.sleep(3)
        relay.down, relay.up = Link(), Link()

    figures = ours(8, relay, black_out)
    assert 2_900 < figures["longest_gap_ms"] < 4_000


@pytest.mark.parametrize("rate_bps", [600_000, 350_000])
def test_over_a_slow_link_the_picture_in_a_browser_stays_fluent(rate_bps: int) -> None:
    relay = Relay()

    async def slow_down() -> None:
        relay.down = Link(delay_s=0.02, rate_bps=rate_bps)
        await asyncio.sleep(0)

    figures = ours(16, relay, slow_down)
    # The move to the smaller picture is within the 16 s. What the link loses before it depends on
    # when the first keyframe meets it: runs differ from 0.3 to 3.6 s.
    assert figures["fps"] >= 0.5 * figures["server_fps"]
    assert figures["longest_gap_ms"] <= 7_000
    if rate_bps < 400_000:
        assert figures["size"] == [640, 360]
