"""`avatar-server bench joins`: what viewers who come and go leave behind, and who notices.

Viewers join one session of a real server one after another, speak into its ears, and leave, while
another watches all along. Memory, file descriptors and threads of the avatar process and of the
gateway are read from /proc before and after, and the watcher's packets are counted by their
sequence numbers, so that one that is missing cannot hide.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from avatar_server.loadtest.server import ServerProcess
from avatar_server.loadtest.viewer import SyntheticViewer

WARM_UP = 10
"""Joins before the first reading: pools, caches and the voice-activity model are made with them."""
STAY_S = 0.3
"""Each viewer stays so long once it is connected."""
SETTLE_S = 6.0
"""Before each reading: longer than the patience with viewers who vanished (5 s)."""
FDS_ALLOWED = 2
MEMORY_ALLOWED_KIB = 40
"""Per join. A leaked viewer holds over 1,000 KiB (its packets to repeat and its sound)."""


class PacketCount:
    """Counts one stream's packets by sequence number."""

    def __init__(self) -> None:
        self._ssrc: int | None = None
        self._first = self._last = 0
        self._seen: set[int] = set()
        self._frames: dict[int, float] = {}

    def add(self, ssrc: int, sequence: int, timestamp: int, now: float) -> None:
        """A packet came. Those of another SSRC (retransmissions) do not count."""
        if self._ssrc is None:
            self._ssrc, self._first, self._last = ssrc, sequence, sequence
        if ssrc != self._ssrc:
            return
        self._last += (sequence - self._last + 0x8000 & 0xFFFF) - 0x8000
        self._seen.add(self._last)
        self._frames.setdefault(timestamp, now)

    @property
    def received(self) -> int:
        return len(self._seen)

    @property
    def missing(self) -> int:
        """Packets that never came, between the first and the last that did."""
        return max(self._seen) - min(self._seen) + 1 - len(self._seen) if self._seen else 0

    @property
    def frames(self) -> int:
        return len(self._frames)

    @property
    def longest_gap_ms(self) -> float:
        """Between the arrivals of two pictures (or pieces of sound)."""
        times = sorted(self._frames.values())
        return float(np.max(np.diff(times)) * 1e3) if len(times) > 1 else 0.0


def process_figures(pid: int) -> dict[str, float]:
    """`rss_kib`, `fds` and `threads` of a process of this machine. Raises `OSError`."""
    place = Path(f"/proc/{pid}")
    status = dict(
        line.split(":", 1) for line in (place / "status").read_text().splitlines() if ":" in line
    )
    return {
        "rss_kib": float(status["VmRSS"].split()[0]),
        "fds": float(len(list((place / "fd").iterdir()))),
        "threads": float(status["Threads"]),
    }


def bench_joins(
    *,
    count: int = 200,
    avatar: str | None = None,
    arguments: Sequence[str] = (),
    progress: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Let `count` viewers come and go, and return the figures. Linux only: it reads /proc.

    Keys: `joins`, `join_ms` {`p50`, `p95`}; `avatar` and `gateway`, each {`before`, `after`}
    {`rss_kib`, `fds`, `threads`}; `rss_kib_per_join` (of the avatar process); `watcher` {`video`,
    `audio`} {`received`, `missing`, `frames`, `longest_gap_ms`}; `late_frames` (left out by the
    server before encoding, while it measured); `clean`: nothing was left behind or missed.
    """
    with ExitStack() as stack:
        progress("starting a server")
        server = stack.enter_context(ServerProcess(["--sessions", "1", *arguments]))
        assert server.process is not None
        return asyncio.run(_run(server.url, server.process.pid, avatar, count, progress))


async def _run(
    url: str, gateway: int, avatar: str | None, count: int, progress: Callable[[str], None]
) -> dict[str, Any]:
    async with httpx.AsyncClient(base_url=url, timeout=10) as http:
        name = avatar or (await http.get("/v1/avatars")).json()[0]["name"]
        async with SyntheticViewer(url, avatar=name, speak=False) as watcher:
            streams = {"video": PacketCount(), "audio": PacketCount()}
            for transceiver in watcher.transceivers():
                _count(transceiver.receiver, streams[transceiver.kind])
            address = f"/v1/sessions/{watcher.session}"

            async def session() -> dict[str, Any]:
                view: dict[str, Any] = (await http.get(address)).json()
                return view

            async def reading() -> tuple[dict[str, dict[str, float]], int]:
                await asyncio.sleep(SETTLE_S)
                view = await session()
                if view["viewer_count"] != 1:
                    raise RuntimeError(f"{view['viewer_count']} viewers are counted; one is there")
                pids = {"avatar": int(view["pid"]), "gateway": gateway}
                figures = {kind: process_figures(pid) for kind, pid in pids.items()}
                return figures, int(view["late_frames"])

            for _ in range(WARM_UP):
                await _visit(url, str(watcher.session))
            before, late = await reading()
            took = []
            for number in range(count):
                took.append(await _visit(url, str(watcher.session)))
                if (number + 1) % 50 == 0:
                    progress(f"{number + 1} of {count}")
            after, late_after = await reading()
    grown = (after["avatar"]["rss_kib"] - before["avatar"]["rss_kib"]) / count
    watched = {
        kind: {
            "received": stream.received,
            "missing": stream.missing,
            "frames": stream.frames,
            "longest_gap_ms": round(stream.longest_gap_ms, 1),
        }
        for kind, stream in streams.items()
    }
    fds = max(after[kind]["fds"] - before[kind]["fds"] for kind in before)
    missed = sum(stream["missing"] for stream in watched.values())
    return {
        "joins": count,
        "join_ms": {
            "p50": round(float(np.percentile(took, 50)), 1),
            "p95": round(float(np.percentile(took, 95)), 1),
        },
        **{kind: {"before": before[kind], "after": after[kind]} for kind in before},
        "rss_kib_per_join": round(grown, 2),
        "watcher": watched,
        "late_frames": late_after - late,
        "clean": bool(fds <= FDS_ALLOWED and grown <= MEMORY_ALLOWED_KIB and not missed),
    }


async def _visit(url: str, session: str) -> float:
    """Join as somebody who may speak, stay a moment, leave; ms until connected."""
    began = time.monotonic()
    async with SyntheticViewer(url, session=session, video="count"):
        took = (time.monotonic() - began) * 1e3
        await asyncio.sleep(STAY_S)
    return took


def _count(receiver: Any, count: PacketCount) -> None:
    handle = receiver._handle_rtp_packet

    async def counted(packet: Any, arrival_time_ms: int) -> None:
        count.add(packet.ssrc, packet.sequence_number, packet.timestamp, time.monotonic())
        await handle(packet, arrival_time_ms)

    receiver._handle_rtp_packet = counted
