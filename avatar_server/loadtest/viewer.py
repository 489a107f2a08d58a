"""A viewer without a browser: joins over HTTP and WebRTC, speaks, and keeps what comes back."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Literal
from urllib.parse import urljoin

import httpx
import numpy as np
from aiortc import (
    MediaStreamTrack,
    RTCConfiguration,
    RTCPeerConnection,
    RTCRtpReceiver,
    RTCRtpTransceiver,
    RTCSessionDescription,
)
from aiortc.mediastreams import MediaStreamError
from av import AudioFrame

from avatar_server.loadtest.meter import Meter
from avatar_server.loadtest.microphone import Microphone
from avatar_server.loadtest.packet_microphone import PacketMicrophone
from avatar_server.loadtest.received import AudioPiece, EncodedPicture, Received
from avatar_server.operate.client import credentials
from avatar_server.protocol import events

JOIN_TIMEOUT_S = 20.0
"""Time for ICE, DTLS and the data channel, on a machine under full load."""


class ViewerError(RuntimeError):
    """The server did not let the viewer in, or went away; the message is the server's sentence."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class _Tap(queue.Queue[Any]):
    """Stands where aiortc keeps encoded frames for its decoder thread, and shows them first."""

    def __init__(self, seen: Callable[[int, bytes], None], decode: bool) -> None:
        super().__init__()
        self._seen = seen
        self._decode = decode

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        if item is not None:
            _, frame = item
            self._seen(frame.timestamp, frame.data)
            if not self._decode:
                return
        super().put(item, block, timeout)


class SyntheticViewer:
    """One viewer. Use as an async context manager, or call `join` and `leave`.

    `video`: "decode" also decodes pictures (`picture()` gives the latest), "count" keeps the
    encoded ones only, which is cheap, "none" asks for no video. With a `meter` nothing goes to
    `received`: the meter has all packets, and `packets` is the microphone; both are cheaper.
    """

    def __init__(
        self,
        base_url: str,
        *,
        avatar: str | None = None,
        session: str | None = None,
        speak: bool = True,
        video: Literal["decode", "count", "none"] = "count",
        on_picture: Callable[[Any], None] | None = None,
        meter: Meter | None = None,
    ) -> None:
        if (avatar is None) == (session is None):
            raise ValueError("give either the avatar to launch or the session to join")
        self._http = httpx.AsyncClient(
            base_url=base_url, timeout=JOIN_TIMEOUT_S, headers=credentials()
        )
        self._base_url = base_url
        self._avatar = avatar
        self.session = session
        self._speak = speak
        self._video = video
        self._on_picture = on_picture
        self.meter = meter
        self._pc: RTCPeerConnection | None = None
        self._channel: Any = None
        self._location: str | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._arrivals: dict[int, float] = {}
        self._open = asyncio.Event()
        self._changed = asyncio.Event()
        self.microphone = Microphone()
        self.packets: PacketMicrophone | None = None
        self.received = Received()
        self.events: list[tuple[float, events.ServerEvent]] = []

    async def __aenter__(self) -> SyntheticViewer:
        try:
            await self.join()
        except BaseException:
            await self.leave()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.leave()

    async def join(self) -> None:
        """Launch or join the session; returns when media and events flow. Raises `ViewerError`.

        After `cut` it connects anew, as the same viewer.
        """
        if self.session is None:
            reply = await self._http.post("/v1/sessions", json={"avatar": self._avatar})
            self._check(reply)
            self.session = str(reply.json()["id"])
        pc = self._pc = RTCPeerConnection(RTCConfiguration(iceServers=[]))
        channel = self._channel = pc.createDataChannel(events.DATA_CHANNEL)
        channel.on("open", self._open.set)
        channel.on("message", self._on_message)
        pc.on("track", self._on_track)
        if self._speak and self.meter is not None:
            audio = pc.addTransceiver("audio", direction="sendrecv")
            self.packets = PacketMicrophone(audio)
        elif self._speak:
            audio = pc.addTransceiver(self.microphone, direction="sendrecv")
        else:
            audio = pc.addTransceiver("audio", direction="recvonly")
        if self.meter is not None:
            self.meter.attach(audio.receiver, "audio")
        else:
            self._watch_arrivals(audio.receiver, self._arrivals)
        if self._video != "none":
            picture = pc.addTransceiver("video", direction="recvonly")
            if self.meter is not None:
                self.meter.attach(picture.receiver, "video")
            else:
                self._tap(picture.receiver)
        await pc.setLocalDescription(await pc.createOffer())
        reply = await self._http.request(
            "PUT" if self._location else "POST",
            self._location or f"/v1/sessions/{self.session}/viewers",
            params={"speak": "true" if self._speak else "false"},
            content=pc.localDescription.sdp,
            headers={"content-type": "application/sdp"},
        )
        self._check(reply)
        if not self._location:
            self._location = urljoin(self._base_url, reply.headers["location"])
        await pc.setRemoteDescription(RTCSessionDescription(reply.text, "answer"))
        try:
            await asyncio.wait_for(self._open.wait(), JOIN_TIMEOUT_S)
        except TimeoutError:
            raise ViewerError(f"no connection within {JOIN_TIMEOUT_S:.0f} s") from None
        self._tasks.append(asyncio.create_task(self._ping(channel)))

    async def leave(self) -> None:
        """Say goodbye and free everything. May be called twice."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        if self._location:
            # A server that is gone has nothing left to free.
            with contextlib.suppress(httpx.HTTPError):
                await self._http.delete(self._location)
            self._location = None
        await self.vanish()
        await self._http.aclose()

    async def cut(self) -> None:
        """Lose the network: nothing passes any more, and nobody is told."""
        pc = self._pc
        if pc is None or pc.sctp is None:
            raise ViewerError("not connected")
        for protocol in pc.sctp.transport.transport._connection._protocols:
            protocol.transport.abort()
        self._open.clear()
        self._arrivals.clear()
        await self.vanish()

    async def vanish(self) -> None:
        """Go without a goodbye to the gateway (the transport is closed)."""
        if self.packets is not None:
            await self.packets.close()
        if self._pc:
            await self._pc.close()
            self._pc = None

    def transceivers(self) -> list[RTCRtpTransceiver]:
        """Of its connection, for measurements beyond `received`; empty before `join`."""
        return self._pc.getTransceivers() if self._pc else []

    def send(self, event: events.PageEvent) -> None:
        """Send an event, as the page would."""
        if self._channel is None or self._channel.readyState != "open":
            raise ViewerError("the event channel is not open")
        self._channel.send(events.encode_event(event))

    async def wait_for(
        self,
        kind: type[events.Event],
        *,
        since: float = 0.0,
        timeout_s: float = 20.0,
        where: Callable[[Any], bool] = lambda event: True,
    ) -> Any:
        """The first event of `kind` after `since` that satisfies `where`; raises `TimeoutError`."""
        async with asyncio.timeout(timeout_s):
            while True:
                for when, event in self.events:
                    if when >= since and isinstance(event, kind) and where(event):
                        return event
                self._changed.clear()
                await self._changed.wait()

    # --- inside -----------------------------------------------------------------------------

    @staticmethod
    def _check(reply: httpx.Response) -> None:
        if reply.is_success:
            return
        try:
            problem = reply.json()
            message = f"{problem.get('title')}: {problem.get('detail')}"
        except ValueError:
            message = reply.text[:200]
        raise ViewerError(message, reply.status_code)

    async def _ping(self, channel: Any) -> None:
        while True:
            if channel.readyState == "open":
                channel.send(events.encode_event(events.Ping(t=time.monotonic())))
            await asyncio.sleep(1.0)

    def _on_message(self, data: str | bytes) -> None:
        self.events.append((time.monotonic(), events.decode_server_event(data)))
        self._changed.set()

    def _on_track(self, track: MediaStreamTrack) -> None:
        if self.meter is not None:
            return
        if track.kind == "audio":
            self._tasks.append(asyncio.create_task(self._listen(track)))
        elif self._video == "decode":
            self._tasks.append(asyncio.create_task(self._watch(track)))

    async def _listen(self, track: MediaStreamTrack) -> None:
        first: int | None = None
        while True:
            try:
                frame = await track.recv()
            except MediaStreamError:
                return
            assert isinstance(frame, AudioFrame)
            pts = int(frame.pts or 0)
            if first is None:
                first = pts
            channels = len(frame.layout.channels)
            pcm = frame.to_ndarray().reshape(-1, channels)[:, 0].copy()
            arrived = self._arrivals.pop(pts - first, time.monotonic())
            self.received.add_audio(AudioPiece(arrived, pts, pcm.astype(np.int16, copy=False)))

    async def _watch(self, track: MediaStreamTrack) -> None:
        while True:
            try:
                frame = await track.recv()
            except MediaStreamError:
                return
            if self._on_picture:
                self._on_picture(frame)

    def _watch_arrivals(self, receiver: RTCRtpReceiver, arrivals: dict[int, float]) -> None:
        """Note when the (last) packet of each timestamp came, before the jitter buffer holds it."""
        handle = receiver._handle_rtp_packet
        first: int | None = None

        async def note(packet: Any, arrival_time_ms: int) -> None:
            nonlocal first
            if first is None:
                first = packet.timestamp
            arrivals[(packet.timestamp - first) & 0xFFFFFFFF] = time.monotonic()
            if len(arrivals) > 500:
                arrivals.pop(next(iter(arrivals)))
            await handle(packet, arrival_time_ms)

        receiver._handle_rtp_packet = note  # type: ignore[method-assign]

    def _tap(self, receiver: RTCRtpReceiver) -> None:
        arrivals: dict[int, float] = {}
        first: int | None = None
        self._watch_arrivals(receiver, arrivals)

        def seen(pts: int, data: bytes) -> None:
            # aiortc knows that a picture is whole when the next one begins: too late a moment.
            nonlocal first
            if first is None:
                first = pts
            arrived = arrivals.pop(pts - first, time.monotonic())
            self.received.add_video(EncodedPicture(arrived, pts, data))

        name = "_RTCRtpReceiver__decoder_queue"
        if not hasattr(receiver, name):
            raise ViewerError("this version of aiortc keeps its decoder queue elsewhere")
        setattr(receiver, name, _Tap(seen, self._video == "decode"))
