"""The viewers of a session: WebRTC connections, their data channels and their microphones."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Coroutine
from typing import Any, Protocol

import numpy as np
from aiortc import RTCIceServer
from aiortc.exceptions import InvalidAccessError, InvalidStateError, OperationError
from numpy.typing import NDArray

from avatar_server.avatar.fanout import Fanout
from avatar_server.avatar.media import MediaEngine
from avatar_server.avatar.packets import Layer
from avatar_server.avatar.rtc_internals import require_supported_aiortc
from avatar_server.avatar.signalling import OfferError, check_offer
from avatar_server.avatar.viewer import Viewer
from avatar_server.clock import Clock, MonotonicClock
from avatar_server.config import MediaSettings
from avatar_server.protocol.events import Bye, PageEvent, Ping, Pong, ServerEvent, encode_event

__all__ = ["OfferError", "PeerHandler", "Peers"]

logger = logging.getLogger(__name__)

_OFFER_TIMEOUT_S = 10.0
"""Answering takes milliseconds; only a STUN or TURN server that does not reply takes longer."""
_CONNECT_TIMEOUT_S = 20.0
"""From answer to open data channel: ICE, DTLS and SCTP with their own retries."""
_WATCH_INTERVAL_S = 0.5
_CLOSE_TIMEOUT_S = 3.0
"""Closing waits for tasks of our own only; longer means a fault, which must not hold others up."""


class PeerHandler(Protocol):
    """What the conversation hears of viewers. Called on the event loop; must not block."""

    def on_join(self, viewer: str, can_speak: bool) -> None:
        """The viewer is connected and its data channel is open."""
        ...

    def on_leave(self, viewer: str, reason: str) -> None:
        """A viewer that had joined is gone."""
        ...

    def on_event(self, viewer: str, event: PageEvent) -> None: ...

    def on_audio(self, viewer: str, pcm: NDArray[np.int16]) -> None:
        """A piece of the viewer's microphone: mono, 16 kHz, 20 ms."""
        ...


class Peers:
    """All viewers of one session. Used on one event loop.

    A viewer leaves in one of four ways: it says goodbye, its connection closes, it falls silent
    for `viewer_timeout_s` (noticed whatever ICE believes), or it never gets connected. In each
    case everything it held is freed, and `on_leave` is called if `on_join` was.
    """

    def __init__(
        self,
        settings: MediaSettings,
        max_viewers: int,
        engine: MediaEngine,
        fanout: Fanout,
        handler: PeerHandler,
        clock: Clock | None = None,
    ) -> None:
        """Raises `UnsupportedAiortcError` where the installed aiortc has not been checked."""
        require_supported_aiortc()
        self._settings = settings
        self._max_viewers = max_viewers
        self._engine = engine
        self._fanout = fanout
        self._handler = handler
        self._clock = clock or MonotonicClock()
        self._viewers: dict[str, Viewer] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._watch: asyncio.Task[None] | None = None
        self._closed = False

    def viewers(self) -> list[str]:
        """Ids of the viewers that have joined."""
        return [name for name, viewer in self._viewers.items() if viewer.joined]

    def layers(self) -> dict[str, Layer]:
        """Which of the session's pictures each viewer that has joined is sent."""
        return {name: peer.layer for name, peer in self._viewers.items() if peer.joined}

    async def offer(self, viewer: str, sdp: str, can_speak: bool) -> str:
        """The SDP answer for a viewer; raises `OfferError`.

        An offer of a viewer already here takes the place of its earlier connection.
        """
        if self._closed:
            raise OfferError(503, "The session has ended", "Start a new one.")
        checked = check_offer(sdp)
        if viewer in self._viewers:
            await self.leave(viewer, "joined again")
        if len(self._viewers) >= self._max_viewers:
            raise OfferError(
                503,
                "The session is full",
                f"{self._max_viewers} viewers are watching already. Try again in a moment.",
            )
        peer = Viewer(
            viewer,
            checked,
            can_speak,
            self._ice_servers(),
            self._engine,
            self._fanout,
            self._clock,
            _Callbacks(self),
        )
        self._viewers[viewer] = peer
        if self._watch is None:
            self._watch = asyncio.create_task(self._run_watch())
        try:
            async with asyncio.timeout(_OFFER_TIMEOUT_S):
                return await peer.answer()
        except (OperationError, InvalidAccessError, InvalidStateError, ValueError) as error:
            await self.leave(viewer, "offer refused")
            raise OfferError(400, "The offer cannot be used", str(error)) from error
        except TimeoutError as error:
            await self.leave(viewer, "offer timed out")
            raise OfferError(
                504,
                "No network path was found in time",
                "The STUN or TURN server in media.ice_servers does not reply.",
            ) from error
        except BaseException:
            await self.leave(viewer, "offer failed")
            raise

    async def add_candidate(
        self,
        viewer: str,
        candidate: str,
        sdp_mid: str | None = None,
        sdp_m_line_index: int | None = None,
    ) -> None:
        """A trickled candidate (empty: no more will come); unknown viewers are ignored.

        Raises `OfferError` for one that cannot be read.
        """
        peer = self._viewers.get(viewer)
        if peer is None:
            return
        try:
            await peer.add_candidate(candidate, sdp_mid, sdp_m_line_index)
        except (ValueError, IndexError, AssertionError) as error:
            raise OfferError(
                400, "The ICE candidate cannot be used", f"{candidate[:200]!r}: {error}"
            ) from error

    async def leave(self, viewer: str, reason: str) -> None:
        """Free all that the viewer held; does nothing for one that is not here."""
        peer = self._viewers.pop(viewer, None)
        if peer is not None:
            await self._close_viewer(peer, reason)

    def send(self, event: ServerEvent, viewer: str | None = None) -> None:
        """Send an event to one viewer, or to all that have joined.

        A viewer that does not take its events in is let go: captions and state would be wrong.
        """
        text = encode_event(event)
        chosen = self._viewers if viewer is None else {viewer: self._viewers.get(viewer)}
        for name, peer in list(chosen.items()):
            if peer is not None and peer.joined and not peer.send(text):
                self._leave_soon(peer, name, "too slow to take events")

    async def close(self, reason: str) -> None:
        """All viewers leave and nothing is left running."""
        self._closed = True
        if self._watch is not None:
            self._watch.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watch
            self._watch = None
        await asyncio.gather(*(self.leave(viewer, reason) for viewer in list(self._viewers)))
        if self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def stats(self) -> dict[str, dict[str, Any]]:
        """Per viewer: what was sent, and what its reports say of the way there."""
        return {name: peer.stats() for name, peer in self._viewers.items()}

    def _ice_servers(self) -> list[RTCIceServer]:
        return [
            RTCIceServer(
                urls=server.urls,
                username=server.username,
                credential=server.credential.get_secret_value() if server.credential else None,
            )
            for server in self._settings.ice_servers
        ]

    async def _close_viewer(self, peer: Viewer, reason: str) -> None:
        joined = peer.joined
        logger.info("viewer %s leaves: %s", peer.name, reason)
        peer.stop_media()
        if joined:
            self._handler.on_leave(peer.name, reason)
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                await peer.close()
        except TimeoutError:
            logger.error("viewer %s: closing took over %.0f s", peer.name, _CLOSE_TIMEOUT_S)
        except Exception:
            logger.exception("viewer %s: closing failed", peer.name)

    def _leave_soon(self, peer: Viewer, name: str, reason: str) -> None:
        """As `leave`, from a callback. `peer` guards against a successor of the same name."""
        if self._viewers.get(name) is peer:
            del self._viewers[name]
            self._spawn(self._close_viewer(peer, reason))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run_watch(self) -> None:
        """Notices viewers that fell silent or never arrived."""
        while True:
            await asyncio.sleep(_WATCH_INTERVAL_S)
            self._let_go_silent(self._clock.now())

    def _let_go_silent(self, now: float) -> None:
        for name, peer in list(self._viewers.items()):
            if not peer.joined:
                if now - peer.created > _CONNECT_TIMEOUT_S:
                    self._leave_soon(peer, name, f"not connected in {_CONNECT_TIMEOUT_S:.0f} s")
            elif peer.silent_for(now) > self._settings.viewer_timeout_s:
                self._leave_soon(peer, name, "nothing was heard of it any more")


class _Callbacks:
    """What a `Viewer` tells `Peers`; apart, so that the methods are not public on `Peers`."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers

    def joined(self, peer: Viewer) -> None:
        logger.info("viewer %s joined %.0f ms after its offer", peer.name, peer.age_ms())
        self._peers._handler.on_join(peer.name, peer.can_speak)

    def event(self, peer: Viewer, event: PageEvent) -> None:
        if isinstance(event, Ping):
            peer.send(encode_event(Pong(t=event.t)))
        elif isinstance(event, Bye):
            self._peers._leave_soon(peer, peer.name, "said goodbye")
        else:
            self._peers._handler.on_event(peer.name, event)

    def audio(self, peer: Viewer, pcm: NDArray[np.int16]) -> None:
        self._peers._handler.on_audio(peer.name, pcm)

    def lost(self, peer: Viewer, reason: str) -> None:
        self._peers._leave_soon(peer, peer.name, reason)
