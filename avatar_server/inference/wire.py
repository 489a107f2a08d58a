"""The ZeroMQ socket of the inference process."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import zmq
import zmq.asyncio

from avatar_server.protocol.messages import (
    Message,
    ProtocolError,
    ToInference,
    decode,
    encode,
)

if TYPE_CHECKING:
    from avatar_server.inference.service import InferenceService

log = logging.getLogger(__name__)

UNSENT_LIMIT = 2_000
"""Messages to one peer that reads none of them; then it is taken for gone."""


class ServiceSocket:
    """A bound ROUTER: decodes what comes, sends without ever waiting for a peer."""

    def __init__(self, endpoint: str) -> None:
        self._context = zmq.asyncio.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        # Unreachable peers are reported, not silently skipped; a restarted avatar comes back
        # under its old identity.
        self._socket.set(zmq.ROUTER_MANDATORY, 1)
        self._socket.set(zmq.ROUTER_HANDOVER, 1)
        self._socket.set(zmq.SNDHWM, UNSENT_LIMIT)
        self._socket.set(zmq.LINGER, 100)
        self._socket.bind(endpoint)
        self._outgoing: asyncio.Queue[tuple[bytes, Message]] = asyncio.Queue()

    def send(self, peer: bytes, message: Message) -> None:
        """Queue a message. The queue is emptied without waiting, so it stays short."""
        self._outgoing.put_nowait((peer, message))

    async def run(self, service: InferenceService) -> None:
        """Receive and send until cancelled."""
        sending = asyncio.create_task(self._send_all(service), name="send")
        try:
            while True:
                frames = await self._socket.recv_multipart()
                self._receive(service, frames)
        finally:
            sending.cancel()

    def _receive(self, service: InferenceService, frames: list[bytes]) -> None:
        peer, payload = frames[0], frames[-1]
        try:
            if len(frames) != 2:
                raise ProtocolError(f"a message is one frame, not {len(frames) - 1}")
            message = decode(payload)
            if not isinstance(message, ToInference):
                raise ProtocolError(f"{type(message).__name__} is not for the inference process")
        except ProtocolError as error:
            log.warning("dropped %d bytes from peer %r: %s", len(payload), peer[:64], error)
            return
        try:
            service.handle(peer, message)
        except Exception:
            log.exception("a %s could not be handled", type(message).__name__)

    async def _send_all(self, service: InferenceService) -> None:
        while True:
            peer, message = await self._outgoing.get()
            try:
                await self._socket.send_multipart([peer, encode(message)], flags=zmq.NOBLOCK)
            except zmq.ZMQError as error:
                if error.errno not in (zmq.EHOSTUNREACH, zmq.EAGAIN):
                    raise
                log.info("peer %r cannot be reached: %s", peer[:64], error)
                service.peer_gone(peer)

    def close(self) -> None:
        """Close; what is already with ZeroMQ still leaves, for at most 100 ms."""
        self._socket.close()
        self._context.term()
