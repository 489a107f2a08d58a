"""A small gateway with the product's HTTP and event contract, for tests of the page alone.

It answers offers with real WebRTC peers, but its avatar is a drawing and it says only what a test
tells it to say. Tests steer it from their own thread.
"""

from __future__ import annotations

import asyncio
import fractions
import re
import socket
import threading
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np
import uvicorn
from aiortc import RTCPeerConnection, RTCSessionDescription, VideoStreamTrack
from aiortc.mediastreams import AudioStreamTrack
from aiortc.sdp import candidate_from_sdp
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

import avatar_server.gateway
from avatar_server.protocol import events
from tests.avatar.lossy_link import Link, Relay

STATIC = Path(avatar_server.gateway.__file__).parent / "static"
WIDTH_PX, HEIGHT_PX, FPS = 640, 360, 15
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; media-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
AVATARS: list[dict[str, Any]] = [
    {
        "name": "mira",
        "title": "Mira",
        "description": "A patient guide who explains one thing at a time.",
        "language": "en",
        "greeting": "Hello!",
        "suggestions": ["What can you do?", "Tell me about this place", "How do you work?"],
    },
    {
        "name": "otto",
        "title": "Otto",
        "description": "Knows the workshop, its tools and their hours.",
        "language": "en",
        "greeting": "Good day.",
        "suggestions": [],
    },
]


def drawing(phase: float = 0.0) -> np.ndarray[Any, Any]:
    """A face of (HEIGHT_PX, WIDTH_PX, 3) BGR that looks about with `phase` in 0..1."""
    image = np.empty((HEIGHT_PX, WIDTH_PX, 3), np.uint8)
    shade = np.linspace(0, 1, HEIGHT_PX)[:, None]
    for channel, (top, bottom) in enumerate(((178, 120), (170, 132), (150, 96))):
        image[..., channel] = (top + (bottom - top) * shade).astype(np.uint8)
    x = 320 + int(12 * np.sin(2 * np.pi * phase))
    cv2.ellipse(image, (320, 380), (170, 120), 0, 0, 360, (96, 74, 44), -1, cv2.LINE_AA)
    cv2.ellipse(image, (x, 160), (92, 118), 0, 0, 360, (52, 60, 84), -1, cv2.LINE_AA)
    cv2.ellipse(image, (x, 178), (74, 96), 0, 0, 360, (168, 194, 232), -1, cv2.LINE_AA)
    for side in (-28, 28):
        cv2.circle(image, (x + side, 168), 7, (50, 44, 40), -1, cv2.LINE_AA)
    cv2.ellipse(image, (x, 214), (22, 10), 0, 0, 180, (84, 84, 176), -1, cv2.LINE_AA)
    return image


class DrawnTrack(VideoStreamTrack):
    """Frames of the drawing at FPS."""

    def __init__(self) -> None:
        super().__init__()
        self._count = 0
        self._frames = [
            av.VideoFrame.from_ndarray(drawing(i / FPS), format="bgr24").reformat(format="yuv420p")
            for i in range(FPS)
        ]
        self._begin = time.monotonic()

    async def recv(self) -> av.VideoFrame:
        await asyncio.sleep(max(0.0, self._begin + self._count / FPS - time.monotonic()))
        frame = self._frames[self._count % len(self._frames)]
        frame.pts = self._count * 90_000 // FPS
        frame.time_base = fractions.Fraction(1, 90_000)
        self._count += 1
        return frame


@dataclass
class Viewer:
    """A joined viewer."""

    id: str
    session: str
    speak: bool
    sends_audio: bool
    peer: RTCPeerConnection
    channel: Any = None
    relay: Relay | None = None


@dataclass
class Script:
    """What the gateway is told to do, and what it saw. Plain values, read by any thread."""

    ready: bool = True
    phase: str = "running"
    max_sessions: int = 2
    taken: int = 0
    """Places that others hold."""
    full_because: str = "This server has room for 2 sessions: the CPU would not do for one more."
    answer_pings: bool = True
    answer_offers: bool = True
    block_media: bool = False
    far: bool = False
    """Viewers are reached through a relay, which `go_dark` switches off."""
    candidate_host: str = ""
    """Offered in place of the gateway's own address."""
    can_speak: bool = True
    recorded: bool = False
    ice_servers: list[dict[str, Any]] = field(default_factory=list)
    avatars: list[dict[str, Any]] = field(default_factory=lambda: AVATARS)
    preview_misses: int = 2
    sessions: dict[str, str] = field(default_factory=dict)
    offers: list[tuple[str, bool]] = field(default_factory=list)
    returns: list[str] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    candidates: int = 0
    received: list[events.PageEvent] = field(default_factory=list)


class PageGateway:
    """Runs in a thread; `stop` and `start` take it away and bring it back on the same port."""

    def __init__(self) -> None:
        self.script = Script()
        self.viewers: dict[str, Viewer] = {}
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self._numbers = 0
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server: uvicorn.Server | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    # --- steering, from the test's thread ---------------------------------------------------

    def start(self) -> None:
        """Listens; returns when it does."""
        config = uvicorn.Config(
            self._app(), host="127.0.0.1", port=self.port, log_level="warning", lifespan="off"
        )
        config.timeout_graceful_shutdown = 1
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._run, name="page-gateway")
        self._thread.start()
        deadline = time.monotonic() + 10
        while not self._server.started:
            if time.monotonic() > deadline or not self._thread.is_alive():
                raise RuntimeError(f"the test gateway did not start on port {self.port}")
            time.sleep(0.02)

    def stop(self) -> None:
        """Stops listening, then ends every peer."""
        if self._thread is None or self._server is None:
            return
        self._server.should_exit = True
        self._thread.join(10)
        assert not self._thread.is_alive(), "the test gateway did not end"
        self._thread = None

    def viewer(self) -> Viewer:
        """The first viewer; a page counts itself as connected a little before it is one here."""
        self.wait_for(lambda: bool(self.viewers))
        return next(iter(self.viewers.values()))

    def say(self, *sent: events.ServerEvent) -> None:
        """Sends events to every viewer."""
        self.viewer()
        self._call(self._say(sent))

    def drop_viewers(self) -> None:
        """Ends every peer, as the death of an avatar process would."""
        self.viewer()
        self._call(self._close_all())

    def go_dark(self) -> None:
        """Nothing passes any more between the gateway and the viewers it has now."""
        for viewer in self.viewers.values():
            assert viewer.relay is not None
            viewer.relay.up, viewer.relay.down = Link(loss=1.0), Link(loss=1.0)

    def forget_viewers(self) -> None:
        """Lets the viewers go as if nothing had been heard of them: they are not told."""
        self.go_dark()
        self.drop_viewers()

    def hang(self, viewer: str) -> None:
        """Neither media nor answers come any more from a viewer's peer, which stays."""

        async def stop() -> None:
            self.viewers[viewer].channel.remove_all_listeners("message")
            for sender in self.viewers[viewer].peer.getSenders():
                await sender.stop()

        self._call(stop())

    def wait_for(self, condition: Callable[[], bool], timeout_s: float = 15.0) -> None:
        """Waits until `condition` holds; raises `AssertionError` with what was seen instead."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < deadline, f"still not after {timeout_s} s: {self.script}"
            time.sleep(0.05)

    def texts(self) -> list[str]:
        """What viewers typed."""
        return [event.text for event in self.script.received if isinstance(event, events.Text)]

    def count(self, kind: type[events.Event]) -> int:
        """How many events of a kind the pages sent."""
        return sum(isinstance(event, kind) for event in self.script.received)

    def _run(self) -> None:
        assert self._server is not None
        with asyncio.Runner() as runner:
            self._loop = runner.get_loop()
            runner.run(self._serve(self._server))

    async def _serve(self, server: uvicorn.Server) -> None:
        await server.serve()
        await self._close_all()

    def _call(self, work: Coroutine[Any, Any, None]) -> None:
        assert self._loop is not None
        asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    async def _say(self, sent: tuple[events.ServerEvent, ...]) -> None:
        for viewer in self.viewers.values():
            for event in sent:
                viewer.channel.send(events.encode_event(event))

    async def _close_all(self) -> None:
        for viewer in list(self.viewers.values()):
            await self._close(viewer)

    async def _close(self, viewer: Viewer) -> None:
        if self.viewers.get(viewer.id) is viewer:
            del self.viewers[viewer.id]
        await viewer.peer.close()
        if viewer.relay is not None:
            viewer.relay.close()

    # --- HTTP -------------------------------------------------------------------------------

    def _app(self) -> Starlette:
        async def index(request: Request) -> Response:
            headers = {"Content-Security-Policy": CONTENT_SECURITY_POLICY}
            return FileResponse(STATIC / "index.html", headers=headers)

        routes = [
            Route("/", index),
            Route("/s/{session}", index),
            Mount("/static", StaticFiles(directory=STATIC)),
            Route("/v1/avatars", self._avatars),
            Route("/avatars/{name}/{kind}", self._picture),
            Route("/v1/status", self._status),
            Route("/v1/sessions", self._create, methods=["POST"]),
            Route("/v1/sessions/{id}", self._session),
            Route("/v1/sessions/{id}/ice-servers", self._ice_servers),
            Route("/v1/sessions/{id}/viewers", self._join, methods=["POST"]),
            Route(
                "/v1/sessions/{id}/viewers/{viewer}",
                self._viewer,
                methods=["PUT", "PATCH", "DELETE"],
            ),
        ]
        return Starlette(routes=routes)

    async def _avatars(self, request: Request) -> Response:
        return JSONResponse(
            [
                {
                    **avatar,
                    "picture": f"/avatars/{avatar['name']}/picture",
                    "preview": f"/avatars/{avatar['name']}/preview",
                }
                for avatar in self.script.avatars
            ]
        )

    async def _picture(self, request: Request) -> Response:
        if request.path_params["kind"] == "preview" and self.script.preview_misses > 0:
            self.script.preview_misses -= 1
            return problem(404, "Not drawn yet", "Try again in a few seconds.")
        encoded = cv2.imencode(".png", drawing())[1]
        return Response(encoded.tobytes(), media_type="image/png")

    @property
    def _free(self) -> int:
        script = self.script
        return max(0, script.max_sessions - script.taken - len(script.sessions))

    async def _status(self, request: Request) -> Response:
        script = self.script
        sessions = {
            "running": script.max_sessions - self._free,
            "max": script.max_sessions,
            "free": self._free,
        }
        return JSONResponse(
            {
                "version": "0.0.test",
                "ready": script.ready,
                "reason": "" if script.ready else "Models are being loaded.",
                "phase": script.phase,
                "sessions": sessions,
                "full_because": "" if self._free else script.full_because,
                "models": {},
                "recorded": script.recorded,
            }
        )

    async def _create(self, request: Request) -> Response:
        name = (await request.json())["avatar"]
        if all(avatar["name"] != name for avatar in self.script.avatars):
            return problem(404, "No such avatar", f"There is no avatar {name!r}.")
        if not self.script.ready:
            return problem(503, "Not ready", "Models are being loaded.", retry_after_s=1)
        if self._free == 0:
            return problem(503, "Full", "All sessions are in use.", retry_after_s=1)
        self._numbers += 1
        session = f"s{self._numbers}"
        self.script.sessions[session] = name
        return JSONResponse(self._view(session), 201)

    def _view(self, session: str) -> dict[str, Any]:
        present = sum(viewer.session == session for viewer in self.viewers.values())
        avatar = self.script.sessions[session]
        return {
            "id": session,
            "avatar": avatar,
            "state": "running",
            "page": f"/s/{session}",
            "viewers": present,
            "recorded": self.script.recorded,
        }

    async def _session(self, request: Request) -> Response:
        session = request.path_params["id"]
        if session not in self.script.sessions:
            return problem(404, "No such session", "It has ended.")
        return JSONResponse(self._view(session))

    async def _ice_servers(self, request: Request) -> Response:
        if request.path_params["id"] not in self.script.sessions:
            return problem(404, "No such session", "It has ended.")
        return JSONResponse(self.script.ice_servers)

    async def _join(self, request: Request) -> Response:
        session = request.path_params["id"]
        if session not in self.script.sessions:
            return problem(404, "No such session", "It has ended.")
        if not self.script.answer_offers:
            return problem(503, "The avatar is restarting", "It is back in a moment", 1)
        sdp = (await request.body()).decode()
        speak = request.query_params["speak"] == "true"
        self.script.offers.append((session, speak))
        self._numbers += 1
        viewer, answer = await self._answer(f"v{self._numbers}", session, speak, sdp)
        return Response(
            answer,
            201,
            {"Location": f"/v1/sessions/{session}/viewers/{viewer.id}"},
            "application/sdp",
        )

    async def _return(self, request: Request) -> Response:
        earlier = self.viewers.get(request.path_params["viewer"])
        if earlier is None:
            return problem(404, "No such viewer", "Join again.")
        sdp = (await request.body()).decode()
        self.script.returns.append(earlier.id)
        _, answer = await self._answer(earlier.id, earlier.session, earlier.speak, sdp)
        await self._close(earlier)
        return Response(answer, 200, media_type="application/sdp")

    async def _answer(self, name: str, session: str, speak: bool, sdp: str) -> tuple[Viewer, str]:
        peer = RTCPeerConnection()
        audio = sdp[sdp.index("m=audio") :].split("m=", 2)[1]
        viewer = Viewer(name, session, speak, "a=sendrecv" in audio, peer)
        if self.script.far or self.script.candidate_host:
            # Without the page's candidates the peer answers only where it is asked from.
            sdp = without(sdp, "a=candidate", "a=end-of-candidates")

        @peer.on("datachannel")
        def joined(channel: Any) -> None:
            assert channel.label == events.DATA_CHANNEL
            viewer.channel = channel
            channel.on("message", lambda data: self._event(viewer, data))
            self.viewers[viewer.id] = viewer
            avatar = self.script.sessions[session]
            title = next(a["title"] for a in self.script.avatars if a["name"] == avatar)
            hello = events.Hello(
                session=session,
                viewer=viewer.id,
                avatar=avatar,
                title=title,
                can_speak=speak and self.script.can_speak,
                recorded=self.script.recorded,
            )
            channel.send(events.encode_event(hello))
            channel.send(events.encode_event(events.State(state="idle")))

        await peer.setRemoteDescription(RTCSessionDescription(sdp, "offer"))
        peer.addTrack(AudioStreamTrack())
        peer.addTrack(DrawnTrack())
        await peer.setLocalDescription(await peer.createAnswer())
        answer = str(peer.localDescription.sdp)
        if self.script.block_media:
            answer = without(answer, "a=candidate", "a=end-of-candidates")
            await peer.close()
        elif self.script.candidate_host:
            answer = re.sub(
                r"(a=candidate:\S+ 1 udp \d+) \S+ ", rf"\1 {self.script.candidate_host} ", answer
            )
        elif self.script.far:
            viewer.relay = Relay()
            answer = await viewer.relay.rewrite(answer)
        return viewer, answer

    def _event(self, viewer: Viewer, data: str | bytes) -> None:
        event = events.decode_page_event(data)
        self.script.received.append(event)
        if isinstance(event, events.Ping) and self.script.answer_pings:
            viewer.channel.send(events.encode_event(events.Pong(t=event.t)))

    async def _viewer(self, request: Request) -> Response:
        if request.method == "PUT":
            return await self._return(request)
        viewer = self.viewers.get(request.path_params["viewer"])
        if request.method == "DELETE":
            self.script.deleted.append(request.path_params["viewer"])
            if viewer is not None:
                await self._close(viewer)
            return Response(status_code=204)
        body = await request.json()
        self.script.candidates += 1
        if viewer is not None and viewer.relay is None and body["candidate"]:
            candidate = candidate_from_sdp(body["candidate"].partition(":")[2])
            candidate.sdpMid, candidate.sdpMLineIndex = body["sdpMid"], body["sdpMLineIndex"]
            await viewer.peer.addIceCandidate(candidate)
        return Response(status_code=204)


def without(sdp: str, *prefixes: str) -> str:
    """The SDP without the lines that begin so."""
    return "".join(line for line in sdp.splitlines(keepends=True) if not line.startswith(prefixes))


def problem(status: int, title: str, detail: str, retry_after_s: int | None = None) -> JSONResponse:
    """A problem document."""
    return JSONResponse(
        {"title": title, "detail": detail, "status": status},
        status,
        {} if retry_after_s is None else {"Retry-After": str(retry_after_s)},
        "application/problem+json",
    )
