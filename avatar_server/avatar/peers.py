"""The viewers of a session: WebRTC connections, their data channels and their microphones."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

import numpy as np
from aiortc.exceptions import InvalidAccessError, InvalidStateError, OperationError
from numpy.typing import NDArray

from avatar_server.avatar.fanout import Fanout
from avatar_server.avatar.ice import NoFreePortError, require_supported_aioice
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
_WATCH_INTERVAL_S = 0.25
_STUCK_S = 1.0
"""An event loop that did not run for so long heard nobody, whoever spoke."""
_REPLACE_TIMEOUT_S = 0.5
"""A relay that does not answer its goodbye must not hold up who connects anew."""
_CLOSE_TIMEOUT_S = 3.0
"""Closing waits for tasks of our own only; longer means a fault, which must not hold others up."""


class PeerHandler(Protocol):
    """What the conversation hears of viewers. Called on the event loop; must not block."""

    def on_join(self, viewer: str, can_speak: bool) -> None:
        """The viewer is connected and its data channel is open."""
        ...

    def on_return(self, viewer: str, can_speak: bool) -> None:
        """A viewer that had joined is connected anew, over another network perhaps."""
        ...

    def on_leave(self, viewer: str, reason: str, goodbye: bool) -> None:
        """A viewer that had joined is gone. `goodbye`: it left on purpose, and may not be back."""
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

    A viewer whose network changed offers again under its name before that time is over: it never
    left, and `on_return` is called once the new connection stands.
    """

    def __init__(
        self,
        settings: MediaSettings,
        max_viewers: int,
        engine: MediaEngine,
        fanout: Fanout,
        handler: PeerHandler,
        clock: Clock | None = None,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_change` is called whenever somebody joined or left.

        Raises where the installed aiortc or aioice has not been checked.
        """
        require_supported_aiortc()
        require_supported_aioice()
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
        self._abandoned = False
        self._on_change = on_change

    def viewers(self) -> list[str]:
        """Ids of the viewers that have joined; one that is connecting anew is still there."""
        return [name for name, viewer in self._viewers.items() if viewer.known]

    @property
    def abandoned(self) -> bool:
        """Nobody is here, and the last one said goodbye."""
        return self._abandoned and not self._viewers

    def layers(self) -> dict[str, Layer]:
        """Which of the session's pictures each viewer that has joined is sent."""
        return {name: peer.layer for name, peer in self._viewers.items() if peer.joined}

    async def offer(self, viewer: str, sdp: str, can_speak: bool) -> str:
        """The SDP answer for a viewer; raises `OfferError`.

        An offer of a viewer already here takes the place of its earlier connection, which is
        closed; to the conversation it is the same viewer.
        """
        if self._closed:
            raise OfferError(503, "The session has ended", "Start a new one.")
        checked = check_offer(sdp)
        earlier = self._viewers.get(viewer)
        if earlier is None and len(self._viewers) >= self._max_viewers:
            raise OfferError(
                503,
                "The session is full",
                f"{self._max_viewers} viewers are watching already. Try again in a moment.",
            )
        peer = Viewer(
            viewer,
            checked,
            can_speak,
            self._settings,
            self._engine,
            self._fanout,
            self._clock,
            _Callbacks(self),
        )
        self._viewers[viewer] = peer
        self._abandoned = False
        if earlier is not None:
            peer.known = earlier.known
            logger.info("viewer %s connects anew", viewer)
            earlier.stop_media()
            # Its ports may be the last ones; on a path that is dead it still closes at once.
            await asyncio.wait({self._spawn(self._free(earlier))}, timeout=_REPLACE_TIMEOUT_S)
        if self._watch is None:
            self._watch = asyncio.create_task(self._run_watch())
        try:
            async with asyncio.timeout(_OFFER_TIMEOUT_S):
                return await peer.answer()
        except (OperationError, InvalidAccessError, InvalidStateError, ValueError) as error:
            await self.leave(viewer, "offer refused")
            raise OfferError(400, "The offer cannot be used", str(error)) from error
        except NoFreePortError as error:
            await self.leave(viewer, "no UDP port is free")
            logger.warning("viewer %s cannot join: %s", viewer, error)
            raise OfferError(
                503,
                "No media port is free",
                f"On this machine {error}. Try again when a viewer has left; whoever runs the "
                "server can widen media.udp_ports.",
            ) from error
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

    async def leave(self, viewer: str, reason: str, goodbye: bool = False) -> None:
        """Free all that the viewer held; does nothing for one that is not here."""
        peer = self._viewers.pop(viewer, None)
        if peer is not None:
            await self._close_viewer(peer, reason, goodbye)

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

    async def _close_viewer(self, peer: Viewer, reason: str, goodbye: bool) -> None:
        logger.info("viewer %s leaves: %s", peer.name, reason)
        peer.stop_media()
        if peer.known:
            peer.known = False
            self._abandoned = goodbye
            self._handler.on_leave(peer.name, reason, goodbye)
            self._on_change()
        await self._free(peer)

    async def _free(self, peer: Viewer) -> None:
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                await peer.close()
        except TimeoutError:
            logger.error("viewer %s: closing took over %.0f s", peer.name, _CLOSE_TIMEOUT_S)
        except Exception:
            logger.exception("viewer %s: closing failed", peer.name)

    def _leave_soon(self, peer: Viewer, name: str, reason: str, goodbye: bool = False) -> None:
        """As `leave`, from a callback. `peer` guards against a successor of the same name."""
        if self._viewers.get(name) is peer:
            del self._viewers[name]
            self._spawn(self._close_viewer(peer, reason, goodbye))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _run_watch(self) -> None:
        """Notices viewers that fell silent or never arrived."""
        looked = self._clock.now()
        while True:
            await asyncio.sleep(_WATCH_INTERVAL_S)
            now = self._clock.now()
            if now - looked > _STUCK_S:
                for peer in self._viewers.values():
                    peer.excuse(now)
            looked = now
            self._let_go_silent(now)

    def _let_go_silent(self, now: float) -> None:
        # Noticed a look late at most, and heard of a look late at most.
        patience = self._settings.viewer_timeout_s - 2 * _WATCH_INTERVAL_S
        for name, peer in list(self._viewers.items()):
            if not peer.joined:
                if now - peer.created > _CONNECT_TIMEOUT_S:
                    self._leave_soon(peer, name, f"not connected in {_CONNECT_TIMEOUT_S:.0f} s")
            elif peer.silent_for(now) > patience:
                self._leave_soon(peer, name, "nothing was heard of it any more")


class _Callbacks:
    """What a `Viewer` tells `Peers`; apart, so that the methods are not public on `Peers`."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers

    def joined(self, peer: Viewer) -> None:
        logger.info("viewer %s joined %.0f ms after its offer", peer.name, peer.age_ms())
        handler = self._peers._handler
        if peer.known:
            handler.on_return(peer.name, peer.can_speak)
        else:
            peer.known = True
            handler.on_join(peer.name, peer.can_speak)
            self._peers._on_change()

    def event(self, peer: Viewer, event: PageEvent) -> None:
        if isinstance(event, Ping):
            peer.send(encode_event(Pong(t=event.t)))
        elif isinstance(event, Bye):
            self._peers._leave_soon(peer, peer.name, "said goodbye", goodbye=True)
        else:
            self._peers._handler.on_event(peer.name, event)

    def audio(self, peer: Viewer, pcm: NDArray[np.int16]) -> None:
        self._peers._handler.on_audio(peer.name, pcm)

    def lost(self, peer: Viewer, reason: str) -> None:
        self._peers._leave_soon(peer, peer.name, reason)
