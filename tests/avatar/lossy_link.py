"""A UDP relay on this host that loses, delays, reorders and caps, by a seed."""

from __future__ import annotations

import asyncio
import random
import re
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Link:
    """What happens to each packet, in both directions."""

    loss: float = 0.0
    delay_s: float = 0.0
    jitter_s: float = 0.0
    rate_bps: float | None = None
    queue_s: float = 0.3
    """With a rate: packets that would wait longer are lost."""
    seed: int = 1
    lost: int = 0
    passed: int = 0
    _random: random.Random = field(init=False)
    _free_at: float = 0.0

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def delay(self, size: int, now: float) -> float | None:
        """Seconds until the packet arrives; `None`: never."""
        if self._random.random() < self.loss:
            self.lost += 1
            return None
        wait = self.delay_s + self._random.random() * self.jitter_s
        if self.rate_bps is not None:
            start = max(now, self._free_at)
            if start - now > self.queue_s:
                self.lost += 1
                return None
            self._free_at = start + size * 8 / self.rate_bps
            wait += self._free_at - now
        self.passed += 1
        return wait


class _Side(asyncio.DatagramProtocol):
    def __init__(self, relay: Relay, name: str) -> None:
        self.relay, self.name = relay, name
        self.peer: Any = None
        self.transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self.relay.forward(self, data, addr)


class Relay:
    """Stands between a viewer and the server: use `rewrite` on the server's answer."""

    def __init__(self) -> None:
        self.down = Link()
        self.up = Link(seed=2)

    async def rewrite(self, answer: str) -> str:
        """The answer with the relay's address in place of the server's."""
        found = re.search(r"a=candidate:\S+ 1 udp \d+ (\d+\.\d+\.\d+\.\d+) (\d+) typ host", answer)
        assert found, "the server offers no IPv4 host candidate"
        host, port = found[1], int(found[2])
        loop = asyncio.get_running_loop()
        self._viewer = _Side(self, "viewer")
        self._server = _Side(self, "server")
        await loop.create_datagram_endpoint(lambda: self._viewer, local_addr=(host, 0))
        await loop.create_datagram_endpoint(lambda: self._server, local_addr=(host, 0))
        self._server.peer = (host, port)
        ours = self._viewer.transport.get_extra_info("sockname")[1]
        lines = [line for line in answer.splitlines() if not line.startswith("a=candidate")]
        candidate = f"a=candidate:1 1 udp 2130706431 {host} {ours} typ host"
        at = next(i for i, line in enumerate(lines) if line.startswith("a=ice-ufrag"))
        return "\r\n".join([*lines[:at], candidate, *lines[at:]]) + "\r\n"

    def forward(self, side: _Side, data: bytes, addr: Any) -> None:
        loop = asyncio.get_running_loop()
        if side is self._viewer:
            side.peer = addr
            other, link = self._server, self.up
        else:
            other, link = self._viewer, self.down
        if other.peer is None:
            return
        wait = link.delay(len(data), loop.time())
        if wait is not None:
            loop.call_later(wait, self._send, other, data)

    def _send(self, side: _Side, data: bytes) -> None:
        if not side.transport.is_closing():
            side.transport.sendto(data, side.peer)

    def close(self) -> None:
        self._viewer.transport.close()
        self._server.transport.close()
