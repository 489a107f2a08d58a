"""The viewers of the media benchmark, a process of its own so that their cost is not counted.

They take part in WebRTC as viewers do (reports, keyframe requests) but do not decode. Reads one
JSON command a line, answers with one JSON line; see `avatar_server.bench.media`.
"""

from __future__ import annotations

import asyncio
import json
import queue
import sys
from typing import Any

from aiortc import RTCConfiguration, RTCPeerConnection, RTCSessionDescription

from avatar_server.protocol.events import DATA_CHANNEL, Ping, encode_event

_PING_INTERVAL_S = 1.0


class _Undecoded(queue.Queue[Any]):
    """In place of the queue to aiortc's decoder thread: only the end passes."""

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        if item is None:
            super().put(item, block, timeout)


class BenchViewer:
    """One viewer; counts what arrives."""

    def __init__(self) -> None:
        self.packets = 0
        self.octets = 0
        self._connection = RTCPeerConnection(RTCConfiguration(iceServers=[]))
        self._channel = self._connection.createDataChannel(DATA_CHANNEL)
        self._connection.addTransceiver("audio", "recvonly")
        self._connection.addTransceiver("video", "recvonly")
        self._ping: asyncio.Task[None] | None = None

    async def offer(self) -> str:
        await self._connection.setLocalDescription(await self._connection.createOffer())
        return str(self._connection.localDescription.sdp)

    async def accept(self, answer: str) -> None:
        for transceiver in self._connection.getTransceivers():
            self._count(transceiver.receiver)
        await self._connection.setRemoteDescription(RTCSessionDescription(answer, "answer"))
        self._ping = asyncio.create_task(self._run_ping())

    async def close(self) -> None:
        if self._ping is not None:
            self._ping.cancel()
            await asyncio.gather(self._ping, return_exceptions=True)
        await self._connection.close()

    def _count(self, receiver: Any) -> None:
        receiver._RTCRtpReceiver__decoder_queue = _Undecoded()
        handle = receiver._handle_rtp_packet

        async def counted(packet: Any, arrival_time_ms: int) -> None:
            self.packets += 1
            self.octets += len(packet.payload)
            await handle(packet, arrival_time_ms)

        receiver._handle_rtp_packet = counted

    async def _run_ping(self) -> None:
        while True:
            await asyncio.sleep(_PING_INTERVAL_S)
            if self._channel.readyState == "open":
                self._channel.send(encode_event(Ping(t=0.0)))


async def serve() -> None:
    """Answer commands until standard input ends."""
    viewers: list[BenchViewer] = []
    waiting: list[BenchViewer] = []
    reader = asyncio.StreamReader(limit=1 << 22)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    try:
        while line := await reader.readline():
            command = json.loads(line)
            reply: dict[str, Any] = {}
            if command["do"] == "offer":
                waiting.append(BenchViewer())
                reply = {"sdp": await waiting[-1].offer()}
            elif command["do"] == "accept":
                viewer = waiting.pop(0)
                viewers.append(viewer)
                await viewer.accept(command["sdp"])
                async with asyncio.timeout(20):
                    while viewer.packets == 0:  # noqa: ASYNC110
                        await asyncio.sleep(0.02)
            elif command["do"] == "count":
                reply = {
                    "packets": sum(viewer.packets for viewer in viewers),
                    "octets": sum(viewer.octets for viewer in viewers),
                }
            elif command["do"] == "leave":
                await asyncio.gather(*(viewer.close() for viewer in viewers))
                viewers.clear()
            print(json.dumps(reply), flush=True)
    finally:
        await asyncio.gather(*(viewer.close() for viewer in viewers))


if __name__ == "__main__":
    asyncio.run(serve())
