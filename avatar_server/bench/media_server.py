"""The measured side of the media benchmark, a process of its own.

Reads one JSON command a line, answers with one JSON line. `python -m` this module; see
`avatar_server.bench.media`.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import sys
import threading
import time
from typing import Any, Protocol

import numpy as np
from aiortc import (
    AudioStreamTrack,
    RTCConfiguration,
    RTCPeerConnection,
    RTCRtpSender,
    RTCSessionDescription,
    VideoStreamTrack,
)
from av import VideoFrame
from numpy.typing import NDArray

from avatar_server.avatar.encoder import H264Encoder
from avatar_server.avatar.encoder.base import wrap_i420
from avatar_server.avatar.fanout import Fanout
from avatar_server.avatar.media import MediaEngine, MediaSource
from avatar_server.avatar.peers import Peers
from avatar_server.bench.clip import Clip, rgb_frames
from avatar_server.bench.stamp import stamp
from avatar_server.clock import MonotonicClock
from avatar_server.config import MediaSettings
from avatar_server.protocol.events import PageEvent
from renderers import I420Frame

_STOCK_FRAMES = 45
"""Distinct RGB frames of the stock path, played to and fro: 125 MB."""


_PROBE_S = 0.025
"""Between samples of the event loop's lag: often enough for a p95."""
_PROBED_S = 5.0


class Side(Protocol):
    """One of the paths that are compared."""

    async def offer(self, viewer: str, sdp: str) -> str: ...

    def counters(self) -> dict[str, float]: ...

    async def close(self) -> None: ...


class Ours:
    """The product's path: drawn to I420, encoded once, sent by the lean sender."""

    def __init__(self, settings: MediaSettings, talk: bool, stamped: bool) -> None:
        self.clip = Clip(settings.video, talk)
        source = Stamped(self.clip) if stamped else self.clip
        self._fanout = Fanout(asyncio.get_running_loop())
        self.engine = MediaEngine(settings, source, MonotonicClock(), self._fanout)
        self._peers = Peers(settings, 64, self.engine, self._fanout, _Nobody())
        self.engine.start()

    async def offer(self, viewer: str, sdp: str) -> str:
        return await self._peers.offer(viewer, sdp, False)

    def counters(self) -> dict[str, float]:
        stats = self.engine.stats()
        return {
            "frames": stats.frames,
            "late_frames": stats.late_frames,
            "packets": sum(s["packets"] for s in self._peers.stats().values()),
            "audio_cpu_s": _thread_cpu_s("media-audio") + stats.sounding_s,
            "video_cpu_s": _thread_cpu_s("media-video") - stats.sounding_s,
            "drawing_cpu_s": stats.drawing_s,
        }

    async def close(self) -> None:
        await self._peers.close("measured")
        self.engine.close()
        self.clip.close()


class Stamped:
    """A source with the time of drawing in the corner of each picture."""

    def __init__(self, source: MediaSource) -> None:
        self._source = source
        self.pull_audio = source.pull_audio

    def draw(self, media_time: float, frame: I420Frame) -> bool:
        began = time.time()
        self._source.draw(media_time, frame)
        stamp(frame.y, began)
        return True


class Stock:
    """The usual aiortc path: an RGB array a frame, encoded by the library for each viewer."""

    def __init__(self, settings: MediaSettings, codec: str, stamped: bool) -> None:
        self._stamped = stamped
        self._frames = rgb_frames(settings.video, _STOCK_FRAMES)
        self._codec = codec
        self._connections: list[RTCPeerConnection] = []
        self._tracks: list[_RgbTrack] = []

    async def offer(self, viewer: str, sdp: str) -> str:
        connection = RTCPeerConnection(RTCConfiguration(iceServers=[]))
        self._connections.append(connection)
        track = _RgbTrack(self._frames, self._stamped)
        self._tracks.append(track)
        connection.addTrack(AudioStreamTrack())
        video = connection.addTransceiver(track, "sendonly")
        codecs = RTCRtpSender.getCapabilities("video").codecs
        video.setCodecPreferences([c for c in codecs if c.name == self._codec])
        await connection.setRemoteDescription(RTCSessionDescription(sdp, "offer"))
        await connection.setLocalDescription(await connection.createAnswer())
        return str(connection.localDescription.sdp)

    def counters(self) -> dict[str, float]:
        return {"frames": sum(t.sent for t in self._tracks) / max(1, len(self._tracks))}

    async def close(self) -> None:
        await asyncio.gather(*(connection.close() for connection in self._connections))


class _RgbTrack(VideoStreamTrack):
    def __init__(self, frames: list[NDArray[np.uint8]], stamped: bool) -> None:
        super().__init__()
        self._stamped = stamped
        self._frames = frames
        self.sent = 0

    async def recv(self) -> VideoFrame:
        pts, time_base = await self.next_timestamp()
        turn = self.sent % (2 * len(self._frames))
        pixels = self._frames[min(turn, 2 * len(self._frames) - 1 - turn)]
        if self._stamped:
            stamp(pixels)
        frame = VideoFrame.from_ndarray(pixels, format="rgb24")
        frame.pts, frame.time_base = pts, time_base
        self.sent += 1
        return frame


class _Nobody:
    """A `PeerHandler` that does nothing."""

    def on_join(self, viewer: str, can_speak: bool) -> None: ...

    def on_return(self, viewer: str, can_speak: bool) -> None: ...

    def on_leave(self, viewer: str, reason: str, goodbye: bool) -> None: ...

    def on_event(self, viewer: str, event: PageEvent) -> None: ...

    def on_audio(self, viewer: str, pcm: NDArray[np.int16]) -> None: ...


def _thread_cpu_s(name: str) -> float:
    """CPU time of the threads of that name."""
    total = 0.0
    for thread in threading.enumerate():
        if thread.name == name and thread.ident is not None:
            total += time.clock_gettime(time.pthread_getcpuclockid(thread.ident))
    return total


async def _measure(side: Side, seconds: float) -> dict[str, float]:
    """CPU and counters over `seconds`."""
    before, cpu, wall = side.counters(), time.process_time(), time.monotonic()
    await asyncio.sleep(seconds)
    after, cpu, wall = side.counters(), time.process_time() - cpu, time.monotonic() - wall
    figures = {f"{key}_per_s": (after[key] - before[key]) / wall for key in before}
    for key in [key for key in before if key.endswith("_cpu_s")]:
        figures[key.replace("_cpu_s", "_cpu_ms_per_s")] = 1e3 * figures.pop(f"{key}_per_s")
    return figures | {"cpu_ms_per_s": 1e3 * cpu / wall}


async def _probe(seconds: float) -> dict[str, float]:
    """The event loop's lag. Not while CPU is measured: 40 wake-ups a second are some per cent."""
    lags: list[float] = []

    async def probe() -> None:
        while True:
            before = time.monotonic()
            await asyncio.sleep(_PROBE_S)
            lags.append(time.monotonic() - before - _PROBE_S)

    task = asyncio.create_task(probe())
    await asyncio.sleep(seconds)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    return {
        "loop_lag_p50_ms": 1e3 * float(np.percentile(lags, 50)),
        "loop_lag_p95_ms": 1e3 * float(np.percentile(lags, 95)),
    }


def _pieces(settings: MediaSettings, frames: int = 150) -> dict[str, Any]:
    """CPU time of each step of one frame, alone on a thread: p50 and p95 in ms."""
    video = settings.video
    clip, encoder = Clip(video), H264Encoder(video)
    frame = I420Frame.empty(video.width, video.height)
    steps: dict[str, list[float]] = {"render": [], "convert": [], "encode": [], "static": []}
    clock = time.thread_time
    for index in range(frames + 10):
        marks = [clock()]
        clip.draw(index / video.fps, frame)
        marks.append(clock())
        wrap_i420(frame)
        marks.append(clock())
        encoder.encode(frame, index * 3_000, index == 0)
        marks.append(clock())
        if index >= 10:
            for step, took in zip(("render", "convert", "encode"), np.diff(marks), strict=True):
                steps[step].append(float(took))
    for index in range(frames, frames + 60):
        start = clock()
        encoder.repeat(index * 3_000)
        steps["static"].append(clock() - start)
    encoder.close()
    clip.close()
    rgb = rgb_frames(video, 2)
    steps["stock_convert"] = []
    for index in range(40):
        start = clock()
        VideoFrame.from_ndarray(rgb[index % 2], format="rgb24").reformat(format="yuv420p")
        steps["stock_convert"].append(clock() - start)
    return {"source": clip.name} | {
        f"{step}_ms": {
            "p50": 1e3 * float(np.percentile(took, 50)),
            "p95": 1e3 * float(np.percentile(took, 95)),
        }
        for step, took in steps.items()
    }


async def serve() -> None:
    """Answer commands until standard input ends."""
    settings = MediaSettings()
    side: Side | None = None
    reader = asyncio.StreamReader(limit=1 << 22)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    try:
        while line := await reader.readline():
            command = json.loads(line)
            kind = command["do"]
            reply: dict[str, Any] = {}
            if kind == "start":
                path = command["path"]
                stamped = command.get("stamped", False)
                if path in ("talk", "reply"):
                    side = Ours(settings, path == "talk", stamped)
                else:
                    side = Stock(settings, path, stamped)
                gc.collect()
                gc.freeze()
            elif kind == "pieces":
                reply = _pieces(settings)
            elif side is None:
                raise RuntimeError("start a path first")
            elif kind == "offer":
                reply = {"sdp": await side.offer(command["viewer"], command["sdp"])}
            elif kind == "measure":
                reply = await _measure(side, command["seconds"])
                if command.get("lag"):
                    reply |= await _probe(min(command["seconds"], _PROBED_S))
            print(json.dumps(reply), flush=True)
    finally:
        if side is not None:
            await side.close()


if __name__ == "__main__":
    asyncio.run(serve())
