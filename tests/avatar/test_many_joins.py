"""Two hundred viewers come and go, one after the other, while one stays."""

from __future__ import annotations

import gc
import itertools
import os
from pathlib import Path

import pytest
from media_client import Client, session, small, until

from avatar_server.bench.children import child

pytestmark = pytest.mark.anyio

_JOINS = 200
_FIRST = 20
"""What is loaded and grown once is there by then."""
_PER_JOIN_KB = 25
"""Room for the history of the one who stays; a connection that is kept holds hundreds."""


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def resident_kb() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") // 1024


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux's /proc")
async def test_two_hundred_joins_leave_nothing_behind_and_the_other_misses_no_frame() -> None:
    async with session(small()) as running:
        stays = Client("stays")
        await stays.join(running.peers)
        await until(lambda: len(stays.payloads) > 5)
        before = (0, 0)
        sent: list[tuple[int, int]] = []
        # In a process of their own, so that what they hold is not counted.
        async with child("media_viewers") as viewers:
            for number in range(_JOINS):
                offer = await viewers.ask(do="offer")
                answer = await running.peers.offer(f"v{number}", offer["sdp"], False)
                await viewers.ask(do="accept", sdp=answer)
                await viewers.ask(do="leave")
                await running.peers.leave(f"v{number}", "left")
                # Kept by this test's viewer, not by the session.
                sent += [(at, sequence) for at, sequence, _ in stays.payloads]
                for kept in (
                    stays.payloads,
                    stays.pictures,
                    stays.sound,
                    stays.sound_packets,
                    stays.reports,
                ):
                    kept.clear()
                if number + 1 == _FIRST:
                    gc.collect()
                    before = descriptors(), resident_kb()
        gc.collect()
        after = descriptors(), resident_kb()
        print(f"descriptors, KB after {_FIRST} joins: {before}, after {_JOINS}: {after}")
        assert after[0] <= before[0]
        assert after[1] - before[1] < _PER_JOIN_KB * (_JOINS - _FIRST)
        assert running.peers.viewers() == ["stays"]
        assert all((b - a) & 0xFFFF == 1 for (_, a), (_, b) in itertools.pairwise(sent))
        late = running.engine.stats().late_frames
        times = sorted({at for at, _ in sent})
        missed = sum(round((b - a) / 3_000) - 1 for a, b in itertools.pairwise(times))
        # A machine too busy to draw a frame in time leaves it out for everybody, and says so.
        assert missed <= late
        await stays.close()
