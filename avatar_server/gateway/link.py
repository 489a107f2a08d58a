"""The gateway's sockets: a ROUTER that avatar processes connect to, a DEALER to inference."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import zmq
import zmq.asyncio

from avatar_server.protocol.messages import (
    Answer,
    AnyMessage,
    AskInferenceStatus,
    AvatarReady,
    AvatarStatus,
    InferenceStatus,
    Message,
    Offer,
    Picture,
    Problem,
    ProtocolError,
    TakePicture,
    TurnTrace,
    decode,
    encode,
)

# Signalling is a few messages a viewer: a longer queue means that the peer does not read.
HIGH_WATER_MARK = 1_000
MAX_MESSAGE_BYTES = 1_000_000
# A UNIX socket's path may have 107 bytes; below a deep TMPDIR it would not fit.
MAX_FOLDER_CHARS = 80

log = logging.getLogger(__name__)


class Unreachable(Exception):
    """The avatar process is not connected, does not read, or did not answer in time."""


class Endpoints:
    """Addresses of the sockets, in a folder that only this user can enter (0700)."""

    def __init__(self) -> None:
        folder = tempfile.mkdtemp(prefix="avatar-server-")
        if len(folder) > MAX_FOLDER_CHARS:
            shutil.rmtree(folder)
            folder = tempfile.mkdtemp(prefix="avatar-server-", dir="/tmp")
        self.folder = Path(folder)
        self.gateway = f"ipc://{folder}/gateway"
        self.inference = f"ipc://{folder}/inference"

    def remove(self) -> None:
        """Delete the folder and the sockets in it."""
        shutil.rmtree(self.folder, ignore_errors=True)


class AvatarLink:
    """Talks to all avatar processes; each one's identity is its session id.

    `on_message(session, message)` gets all but answers to offers, which `offer` returns.
    """

    def __init__(
        self,
        context: zmq.asyncio.Context,
        endpoint: str,
        on_message: Callable[[str, AvatarReady | AvatarStatus | TurnTrace], None],
    ) -> None:
        self._on_message = on_message
        self._pending: dict[str, tuple[str, asyncio.Future[Answer | Problem | Picture]]] = {}
        self._socket = context.socket(zmq.ROUTER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.SNDHWM, HIGH_WATER_MARK)
        self._socket.setsockopt(zmq.RCVHWM, HIGH_WATER_MARK)
        self._socket.setsockopt(zmq.MAXMSGSIZE, MAX_MESSAGE_BYTES)
        # Sending to nobody is an error here, and a restarted process takes its name over.
        self._socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self._socket.setsockopt(zmq.ROUTER_HANDOVER, 1)
        self._socket.bind(endpoint)
        self._task = asyncio.create_task(self._receive(), name="avatar-link")

    async def send(self, session: str, message: Message) -> None:
        """Raises `Unreachable`."""
        try:
            await self._socket.send_multipart([session.encode(), encode(message)], zmq.NOBLOCK)
        except zmq.ZMQError as error:
            raise Unreachable(f"the avatar process cannot be reached ({error})") from error

    async def offer(
        self, session: str, viewer: str, sdp: str, can_speak: bool, timeout_s: float
    ) -> Answer | Problem:
        """Hand an offer over and wait for what comes back; raises `Unreachable`."""
        request = secrets.token_hex(8)
        message = Offer(request=request, viewer=viewer, sdp=sdp, can_speak=can_speak)
        answer = await self._ask(session, request, message, timeout_s)
        if isinstance(answer, Picture):
            raise Unreachable("the avatar answered something else")
        return answer

    async def picture(self, session: str, timeout_s: float) -> bytes:
        """A JPEG file of what is shown; empty while nothing is. Raises `Unreachable`."""
        request = secrets.token_hex(8)
        answer = await self._ask(session, request, TakePicture(request=request), timeout_s)
        return answer.jpeg if isinstance(answer, Picture) else b""

    async def _ask(
        self, session: str, request: str, message: Message, timeout_s: float
    ) -> Answer | Problem | Picture:
        future: asyncio.Future[Answer | Problem | Picture]
        future = asyncio.get_running_loop().create_future()
        self._pending[request] = (session, future)
        try:
            await self.send(session, message)
            return await asyncio.wait_for(future, timeout_s)
        except TimeoutError as error:
            raise Unreachable(f"the avatar did not answer within {timeout_s:g} s") from error
        finally:
            self._pending.pop(request, None)

    def lost(self, session: str) -> None:
        """Fail what is still waiting for a process that is gone."""
        for owner, future in self._pending.values():
            if owner == session and not future.done():
                future.set_exception(Unreachable("the avatar process ended"))

    async def close(self) -> None:
        await _end(self._task, self._socket)

    async def _receive(self) -> None:
        while True:
            frames = await self._socket.recv_multipart()
            if len(frames) != 2:
                log.warning("a message of %d frames was ignored", len(frames))
                continue
            session = frames[0].decode("utf-8", "replace")
            if (message := _decode(frames[1], session)) is not None:
                self._take(session, message)

    def _take(self, session: str, message: AnyMessage) -> None:
        if isinstance(message, Answer | Problem | Picture):
            owner, future = self._pending.get(message.request, ("", None))
            if future is not None and owner == session and not future.done():
                future.set_result(message)
        elif isinstance(message, AvatarReady | AvatarStatus | TurnTrace):
            if message.session != session:
                log.warning("session %s spoke for session %s", session, message.session)
                return
            self._on_message(session, message)
        else:
            log.warning("an avatar sent a %s, which is not for us", type(message).__name__)


class InferenceLink:
    """Talks to the inference process: asks it how it is, hears how it is."""

    def __init__(
        self,
        context: zmq.asyncio.Context,
        endpoint: str,
        on_status: Callable[[InferenceStatus], None],
    ) -> None:
        self._on_status = on_status
        self._socket = context.socket(zmq.DEALER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.IDENTITY, b"gateway")
        self._socket.setsockopt(zmq.MAXMSGSIZE, MAX_MESSAGE_BYTES)
        # Questions must not pile up for a process that is not there.
        self._socket.setsockopt(zmq.IMMEDIATE, 1)
        self._socket.setsockopt(zmq.RECONNECT_IVL, 100)
        self._socket.setsockopt(zmq.RECONNECT_IVL_MAX, 500)
        self._socket.connect(endpoint)
        self._task = asyncio.create_task(self._receive(), name="inference-link")

    async def ask(self) -> None:
        """Ask for an `InferenceStatus`; nothing happens where the process is not there."""
        with contextlib.suppress(zmq.Again):
            await self._socket.send(encode(AskInferenceStatus()), zmq.NOBLOCK)

    async def close(self) -> None:
        await _end(self._task, self._socket)

    async def _receive(self) -> None:
        while True:
            frames = await self._socket.recv_multipart()
            message = _decode(frames[-1], "inference")
            if isinstance(message, InferenceStatus):
                self._on_status(message)
            elif message is not None:
                log.warning("inference sent a %s, which is not for us", type(message).__name__)


def _decode(data: bytes, sender: str) -> AnyMessage | None:
    try:
        return decode(data)
    except ProtocolError as error:
        log.warning("%s sent something that cannot be read: %s", sender, error)
        return None


async def _end(task: asyncio.Task[None], socket: zmq.asyncio.Socket) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    socket.close(linger=0)
