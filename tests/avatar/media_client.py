"""What the media tests share: a synthetic source, a session in this process, an aiortc client."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import numpy as np
from aiortc import (
    RTCConfiguration,
    RTCPeerConnection,
    RTCRtpReceiver,
    RTCRtpSender,
    RTCSessionDescription,
)
from aiortc.jitterbuffer import JitterBuffer
from aiortc.mediastreams import AudioStreamTrack, MediaStreamError
from numpy.typing import NDArray

from avatar_server.avatar.fanout import Fanout
from avatar_server.avatar.media import MediaEngine
from avatar_server.avatar.peers import Peers
from avatar_server.clock import MonotonicClock
from avatar_server.config import MediaSettings, VideoSettings
from avatar_server.protocol.events import DATA_CHANNEL, PageEvent, encode_event
from renderers.contract import I420Frame


class MovingBar:
    """A tone, and a bar whose place tells the media time at which it was drawn."""

    def __init__(self) -> None:
        self.samples = 0
        self.drawn: list[float] = []
        self.still = False
        self.detail: NDArray[np.uint8] | None = None
        """Drawn over the picture, shifted with time: costs bits."""

    def pull_audio(self, samples: int) -> NDArray[np.int16]:
        t = (self.samples + np.arange(samples)) / 48_000
        self.samples += samples
        return (np.sin(2 * np.pi * 440 * t) * 8_000).astype(np.int16)

    def draw(self, media_time: float, frame: I420Frame) -> bool:
        if self.still and self.drawn:
            return False
        self.drawn.append(media_time)
        frame.data[:] = 128
        x = int(media_time * 200) % (frame.width - 64)
        frame.y[:, x : x + 64] = 220
        if self.detail is not None:
            rows = frame.height // 2
            shift = round(media_time * 30) * 97 % frame.width
            frame.y[rows:] = np.roll(self.detail[: frame.height - rows, : frame.width], shift, 1)
        return True


class Calls:
    """A `PeerHandler` that keeps what it is told."""

    def __init__(self) -> None:
        self.joined: list[tuple[str, bool]] = []
        self.returned: list[tuple[str, bool]] = []
        self.left: list[tuple[str, str]] = []
        self.goodbyes = 0
        self.events: list[tuple[str, PageEvent]] = []
        self.audio: list[NDArray[np.int16]] = []

    def on_join(self, viewer: str, can_speak: bool) -> None:
        self.joined.append((viewer, can_speak))

    def on_return(self, viewer: str, can_speak: bool) -> None:
        self.returned.append((viewer, can_speak))

    def on_leave(self, viewer: str, reason: str, goodbye: bool) -> None:
        self.left.append((viewer, reason))
        self.goodbyes += goodbye

    def on_event(self, viewer: str, event: PageEvent) -> None:
        self.events.append((viewer, event))

    def on_audio(self, viewer: str, pcm: NDArray[np.int16]) -> None:
        self.audio.append(pcm)


class Session:
    def __init__(self, settings: MediaSettings, max_viewers: int = 16) -> None:
        self.source = MovingBar()
        self.calls = Calls()
        self.fanout = Fanout(asyncio.get_running_loop())
        self.engine = MediaEngine(settings, self.source, MonotonicClock(), self.fanout)
        self.engine.start()
        self.peers = Peers(settings, max_viewers, self.engine, self.fanout, self.calls)

    async def close(self) -> None:
        await self.peers.close("the test ended")
        self.engine.close()


@contextlib.asynccontextmanager
async def session(
    settings: MediaSettings | None = None, max_viewers: int = 16
) -> AsyncIterator[Session]:
    running = Session(settings or MediaSettings(), max_viewers)
    try:
        yield running
    finally:
        await running.close()


def small() -> MediaSettings:
    """Settings for tests in which the picture's size does not matter."""
    return MediaSettings(video=VideoSettings(width=320, height=180, preset="ultrafast"))


async def until(condition: Callable[[], Any], timeout_s: float = 10.0) -> None:
    """Wait until `condition` holds; fails the test where it does not in time."""
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


class _From(JitterBuffer):
    """Begins after packet `start`: what is sent again of those before comes too late."""

    def __init__(self, start: int) -> None:
        super().__init__(512, is_video=True)
        self._start = start

    def add(self, packet: Any) -> Any:
        if (packet.sequence_number - self._start) & 0xFFFF > 0x7FFF:
            return False, None
        return super().add(packet)


class Client:
    """A viewer made of aiortc, which keeps every video payload and picture."""

    def __init__(self, name: str, codec: str | None = None, microphone: bool = False) -> None:
        self.name = name
        self.payloads: list[tuple[int, int, bytes]] = []
        """RTP timestamp, sequence number, payload of each video packet as it arrived."""
        self.pictures: list[tuple[float, int, NDArray[np.uint8]]] = []
        """Arrival time, 90 kHz timestamp, luma of each decoded picture."""
        self.sound: list[tuple[int, NDArray[np.int16]]] = []
        self.reports: list[tuple[str, Any]] = []
        self.messages: list[str] = []
        self.open = asyncio.Event()
        self.pc = RTCPeerConnection(RTCConfiguration(iceServers=[]))
        self.channel = self.pc.createDataChannel(DATA_CHANNEL)
        self.channel.on("open", self.open.set)
        self.channel.on("message", self.messages.append)
        if microphone:
            self.pc.addTrack(AudioStreamTrack())
        else:
            self.pc.addTransceiver("audio", "recvonly")
        self.video = self.pc.addTransceiver("video", "recvonly")
        if codec is not None:
            codecs = RTCRtpSender.getCapabilities("video").codecs
            self.video.setCodecPreferences([c for c in codecs if c.name == codec])
        self.sound_packets: list[tuple[float, int, int, bytes]] = []
        """Arrival time, sequence number, RTP timestamp, payload of each audio packet."""
        self._tasks: list[asyncio.Task[None]] = []
        self.pc.on("track", lambda track: self._tasks.append(asyncio.create_task(self._run(track))))

    async def join(self, peers: Peers, can_speak: bool = True, wait: bool = True) -> str:
        await self.pc.setLocalDescription(await self.pc.createOffer())
        answer = await peers.offer(self.name, self.pc.localDescription.sdp, can_speak)
        self._tap()
        await self.pc.setRemoteDescription(RTCSessionDescription(answer, "answer"))
        if wait:
            await asyncio.wait_for(self.open.wait(), 10)
        return answer

    def send(self, event: Any) -> None:
        self.channel.send(encode_event(event))

    async def ask_keyframe(self) -> None:
        await self.video.receiver._send_rtcp_pli(self.payload_ssrc)

    def ask_again_as_browsers_do(self) -> None:
        """From now on ask for a lost packet until it comes, and after a second without a picture
        begin anew with a keyframe.

        aiortc asks for it once, and waits for it until 512 more have come.
        """
        self._tasks.append(asyncio.create_task(self._run_nacks()))

    async def _run_nacks(self) -> None:
        receiver: Any = self.video.receiver
        seen, seen_at = 0, 0.0
        while True:
            await asyncio.sleep(0.05)
            now = asyncio.get_running_loop().time()
            if len(self.pictures) != seen:
                seen, seen_at = len(self.pictures), now
            nacks = receiver._RTCRtpReceiver__nack_generator
            missing = nacks.missing
            if now - seen_at > 1.0 and nacks.max_seq is not None:
                seen_at = now
                missing.clear()
                receiver._RTCRtpReceiver__jitter_buffer = _From(nacks.max_seq)
                await self.ask_keyframe()
            elif missing:
                await receiver._send_rtcp_nack(self.payload_ssrc, sorted(missing))

    def vanish(self) -> None:
        """Fall silent as a viewer whose machine lost its network: no goodbye of any kind."""
        connection = self.pc.sctp.transport.transport._connection
        for protocol in connection._protocols:
            protocol.transport.abort()

    async def close(self) -> None:
        await self.pc.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _tap(self) -> None:
        for transceiver in self.pc.getTransceivers():
            self._tap_receiver(transceiver.receiver, transceiver.kind)

    def _tap_receiver(self, receiver: RTCRtpReceiver, kind: str) -> None:
        handle_rtp, handle_rtcp = receiver._handle_rtp_packet, receiver._handle_rtcp_packet

        async def rtp(packet: Any, arrival_time_ms: int) -> None:
            if kind == "video":
                self.payload_ssrc = packet.ssrc
                self.payloads.append((packet.timestamp, packet.sequence_number, packet.payload))
            else:
                number, at = packet.sequence_number, asyncio.get_running_loop().time()
                self.sound_packets.append((at, number, packet.timestamp, packet.payload))
            await handle_rtp(packet, arrival_time_ms)

        async def rtcp(packet: Any) -> None:
            self.reports.append((kind, packet))
            await handle_rtcp(packet)

        receiver._handle_rtp_packet = rtp
        receiver._handle_rtcp_packet = rtcp

    async def _run(self, track: Any) -> None:
        loop = asyncio.get_running_loop()
        with contextlib.suppress(MediaStreamError):
            while True:
                frame = await track.recv()
                if track.kind == "video":
                    luma = frame.to_ndarray()[: frame.height]
                    self.pictures.append((loop.time(), frame.pts, luma))
                else:
                    self.sound.append((frame.pts, frame.to_ndarray()[0, ::2]))
