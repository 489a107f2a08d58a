"""A TURN server on this host that takes accounts of the TURN REST scheme: for tests, UDP only."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import struct
import time
from typing import Any

from aioice import stun

REALM = "test"
NONCE = b"nonce"


class TurnServer(asyncio.DatagramProtocol):
    """Use as an async context manager; `url` is its address."""

    def __init__(self, secret: str) -> None:
        self._secret = secret
        self._transport: Any = None
        self._relays: dict[Any, _Relay] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.users: list[str] = []
        self.refused = 0
        self.relayed = 0

    async def __aenter__(self) -> TurnServer:
        loop = asyncio.get_running_loop()
        await loop.create_datagram_endpoint(lambda: self, local_addr=("127.0.0.1", 0))
        return self

    async def __aexit__(self, *_: object) -> None:
        for relay in self._relays.values():
            relay.transport.close()
        self._transport.close()

    @property
    def url(self) -> str:
        return f"turn:127.0.0.1:{self._transport.get_extra_info('sockname')[1]}?transport=udp"

    @property
    def allocations(self) -> int:
        return len(self._relays)

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def datagram_received(self, data: bytes, addr: Any) -> None:
        if 0x40 <= data[0] <= 0x7F:
            number, length = struct.unpack("!HH", data[:4])
            relay = self._relays.get(addr)
            if relay is not None and number in relay.channels:
                self.relayed += 1
                relay.transport.sendto(data[4 : 4 + length], relay.channels[number])
            return
        request = stun.parse_message(data)
        task = asyncio.ensure_future(self._answer(request, addr))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, request: stun.Message, addr: Any) -> None:
        key = self._key(request)
        if key is None:
            refusal = self._reply(request, stun.Class.ERROR)
            refusal.attributes["ERROR-CODE"] = (401, "Unauthorized")
            refusal.attributes["REALM"] = REALM
            refusal.attributes["NONCE"] = NONCE
            self._transport.sendto(bytes(refusal), addr)
            return
        reply = self._reply(request, stun.Class.RESPONSE)
        relay = self._relays.get(addr)
        if request.message_method == stun.Method.ALLOCATE:
            self.users.append(request.attributes["USERNAME"])
            relay = self._relays[addr] = _Relay(self, addr)
            loop = asyncio.get_running_loop()
            await loop.create_datagram_endpoint(lambda: relay, local_addr=("127.0.0.1", 0))
            reply.attributes["XOR-RELAYED-ADDRESS"] = relay.transport.get_extra_info("sockname")
            reply.attributes["XOR-MAPPED-ADDRESS"] = addr
            reply.attributes["LIFETIME"] = 600
        elif request.message_method == stun.Method.CHANNEL_BIND and relay is not None:
            peer = request.attributes["XOR-PEER-ADDRESS"]
            relay.channels[request.attributes["CHANNEL-NUMBER"]] = peer
        elif request.message_method == stun.Method.REFRESH and relay is not None:
            reply.attributes["LIFETIME"] = request.attributes["LIFETIME"]
            if not request.attributes["LIFETIME"]:
                self._relays.pop(addr).transport.close()
        reply.add_message_integrity(key)
        self._transport.sendto(bytes(reply), addr)

    def _key(self, request: stun.Message) -> bytes | None:
        """The long-term key (RFC 8489 section 9.2.2) where the account is good."""
        user = request.attributes.get("USERNAME")
        if user is None:
            return None
        digest = hmac.new(self._secret.encode(), user.encode(), hashlib.sha1).digest()
        password = base64.b64encode(digest).decode()
        key = hashlib.md5(f"{user}:{REALM}:{password}".encode()).digest()
        if int(user.partition(":")[0]) < time.time() or not request.check_message_integrity(key):
            self.refused += 1
            return None
        return key

    def deliver(self, addr: Any, number: int, data: bytes) -> None:
        self._transport.sendto(struct.pack("!HH", number, len(data)) + data, addr)

    @staticmethod
    def _reply(request: stun.Message, kind: stun.Class) -> stun.Message:
        return stun.Message(
            message_method=request.message_method,
            message_class=kind,
            transaction_id=request.transaction_id,
        )


class _Relay(asyncio.DatagramProtocol):
    """One allocation: what comes from a peer with a channel goes to the client."""

    def __init__(self, server: TurnServer, client: Any) -> None:
        self._server, self._client = server, client
        self.channels: dict[int, Any] = {}
        self.transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, addr: Any) -> None:
        for number, peer in self.channels.items():
            if tuple(peer) == tuple(addr[:2]):
                self._server.deliver(self._client, number, data)
