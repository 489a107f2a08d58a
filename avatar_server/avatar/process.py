"""The avatar process: one running session, started by the gateway.

`python -m avatar_server.avatar.process` with a `Bootstrap` line on standard input.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import resource
import signal
import sys
import time
from pathlib import Path
from typing import Any

import zmq
import zmq.asyncio

from avatar_server.avatar.conversation import Conversation
from avatar_server.avatar.face import Face, load_renderer
from avatar_server.avatar.fanout import Fanout
from avatar_server.avatar.inference_client import InferenceClient
from avatar_server.avatar.loop_errors import handle_loop_error
from avatar_server.avatar.media import MediaEngine
from avatar_server.avatar.peers import OfferError, Peers
from avatar_server.avatar.playout import Playout
from avatar_server.avatar.remote_faces import connect_faces, missed_faces
from avatar_server.avatar.thrift import Thrift
from avatar_server.avatar.thumbnail import thumbnail_jpeg
from avatar_server.avatars import AvatarError, AvatarSpec
from avatar_server.clock import MonotonicClock
from avatar_server.observe.logging import setup_logging
from avatar_server.processes import Bootstrap, read_bootstrap, when_parent_ends
from avatar_server.protocol import events, messages
from avatar_server.recording.part import Subject
from avatar_server.recording.session import SessionRecording
from renderers.motion import Animator

log = logging.getLogger(__name__)

STATUS_INTERVAL_S = 1.0
PICTURE_TIMEOUT_S = 1.0
"""The gateway takes three missed reports for a hang."""

THRIFT_INTERVAL_S = 0.1
"""An avatar that begins to speak while its rate was halved is this late to get it back."""

GATEWAY_QUEUE = 1_000
"""Messages kept for a gateway that does not read; then the oldest state is stale anyway."""


class AvatarProcess:
    """Wires one session's parts together and speaks with the gateway."""

    def __init__(self, bootstrap: Bootstrap) -> None:
        self._bootstrap = bootstrap
        self._settings = bootstrap.load_settings()
        self._ended = asyncio.Event()
        self._changed = asyncio.Event()
        self._reason = "the session ended"
        self._requests: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Serve the session until the gateway stops it or is gone."""
        settings, session = self._settings, self._bootstrap.session
        spec = self._as_told(self._bootstrap.spec)
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(handle_loop_error)
        clock = MonotonicClock()
        context = zmq.asyncio.Context()
        self._gateway = context.socket(zmq.DEALER)
        self._gateway.setsockopt(zmq.IDENTITY, session.encode())
        self._gateway.setsockopt(zmq.LINGER, 200)
        self._gateway.setsockopt(zmq.SNDHWM, GATEWAY_QUEUE)
        self._gateway.connect(self._bootstrap.gateway)

        video = settings.media.video
        renderer = await loop.run_in_executor(None, load_renderer, spec, video.width, video.height)
        animator = Animator(seed=spec.seed)
        playout = Playout(mouth=animator)
        inference = self._inference = InferenceClient(
            context, self._bootstrap.inference, session, spec, clock
        )
        self._renderer = renderer
        connect_faces(renderer, inference, session, spec, settings, clock)
        conversation = self._conversation = Conversation(
            settings,
            spec,
            session,
            inference,
            playout,
            animator,
            clock,
            emit=self._emit,
            trace=self._trace,
        )
        fanout = Fanout(loop)
        face = Face(playout, animator, renderer, lambda: conversation.attitude)
        recording = self._recording = self._begin_recording(spec, fanout)
        source = recording.source(face) if recording else face
        self._engine = MediaEngine(settings.media, source, clock, fanout)
        if recording:
            recording.begin(self._engine)
        self._thrift = Thrift(settings.media.video, self._engine, conversation)
        self._peers = Peers(
            settings.media,
            settings.sessions.max_viewers,
            self._engine,
            fanout,
            recording.handler(conversation) if recording else conversation,
            clock,
            self._changed.set,
        )
        # What is loaded now lives as long as the process: the collector need not walk it again.
        gc.collect()
        gc.freeze()

        def parent_ended() -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended before
                loop.call_soon_threadsafe(self._end, "the server ended")

        when_parent_ends(parent_ended)
        loop.add_signal_handler(signal.SIGTERM, self._end, "the server ended")
        self._engine.start()
        tasks = [
            asyncio.create_task(inference.run(), name="inference"),
            asyncio.create_task(conversation.run(), name="conversation"),
            asyncio.create_task(self._read_gateway(), name="gateway"),
            asyncio.create_task(self._report(), name="status"),
            asyncio.create_task(self._save(), name="thrift"),
        ]
        await self._tell(messages.AvatarReady(session=session, pid=os.getpid()))
        ended = asyncio.create_task(self._ended.wait())
        try:
            done, _ = await asyncio.wait([ended, *tasks], return_when=asyncio.FIRST_COMPLETED)
            for task in done - {ended}:
                # A part that stops by itself is a defect: die loudly and be restarted.
                task.result()
                raise RuntimeError(f"{task.get_name()} ended unasked")
        finally:
            for task in [ended, *tasks, *self._requests]:
                task.cancel()
            await asyncio.gather(ended, *tasks, *self._requests, return_exceptions=True)
            if recording:
                await recording.close()
            await self._peers.close(self._reason)
            await conversation.close()
            self._engine.close()
            renderer.close()
            await inference.close()
            self._gateway.close()
            context.term()

    def _begin_recording(self, spec: AvatarSpec, fanout: Fanout) -> SessionRecording | None:
        if not self._bootstrap.record:
            return None
        settings = self._settings.recording
        subject = Subject(
            session=self._bootstrap.session,
            avatar=spec.name,
            title=spec.title,
            viewer_sound=settings.viewer_sound,
            viewer_text=settings.viewer_text,
        )
        return SessionRecording(
            settings, subject, self._settings.media.video.fps, fanout, self._emit
        )

    def _as_told(self, spec: dict[str, Any]) -> AvatarSpec:
        """The avatar that the server checked, as it is in this conversation."""
        avatar = AvatarSpec.model_validate(spec)
        return avatar.when_recorded() if self._bootstrap.record else avatar

    def _end(self, reason: str) -> None:
        self._reason = reason
        self._ended.set()

    # --- the gateway ------------------------------------------------------------------------

    async def _tell(self, message: messages.Message) -> None:
        with contextlib.suppress(zmq.Again):
            await self._gateway.send(messages.encode(message), zmq.DONTWAIT)

    async def _read_gateway(self) -> None:
        while True:
            data = await self._gateway.recv()
            try:
                message = messages.decode(data)
            except messages.ProtocolError as error:
                log.warning("dropped a message of the gateway: %s", error)
                continue
            if isinstance(message, messages.Offer):
                # Negotiation takes a while; others must not wait for it.
                task = asyncio.create_task(self._answer(message))
                self._requests.add(task)
                task.add_done_callback(self._requests.discard)
            elif isinstance(message, messages.AddCandidate):
                await self._add_candidate(message)
            elif isinstance(message, messages.SetOverload):
                self._thrift.set_level(message.level, message.reason)
            elif isinstance(message, messages.Leave):
                await self._peers.leave(message.viewer, "left", goodbye=True)
            elif isinstance(message, messages.TakePicture):
                task = asyncio.create_task(self._take_picture(message.request))
                self._requests.add(task)
                task.add_done_callback(self._requests.discard)
            elif isinstance(message, messages.RenewAvatar):
                self._inference.renew(self._as_told(message.spec))
            elif isinstance(message, messages.TellEnding):
                self._conversation.announce_ending(message.seconds_left)
            elif isinstance(message, messages.StopAvatar):
                if message.final:
                    self._peers.send(events.Notice(code="stopped", message=message.reason))
                self._end(message.reason)
            else:
                log.warning("the gateway sent an unexpected %s", type(message).__name__)

    async def _answer(self, offer: messages.Offer) -> None:
        reply: messages.Message
        try:
            sdp = await self._peers.offer(offer.viewer, offer.sdp, offer.can_speak)
            reply = messages.Answer(request=offer.request, viewer=offer.viewer, sdp=sdp)
        except OfferError as error:
            reply = messages.Problem(
                request=offer.request,
                status=error.status,
                title=error.title,
                detail=error.detail,
            )
        except Exception:
            log.exception("answering viewer %s failed", offer.viewer)
            reply = messages.Problem(
                request=offer.request,
                status=500,
                title="The avatar could not answer",
                detail="Joining failed inside the avatar process. Try again.",
            )
        await self._tell(reply)

    async def _add_candidate(self, message: messages.AddCandidate) -> None:
        try:
            await self._peers.add_candidate(
                message.viewer, message.candidate, message.sdp_mid, message.sdp_m_line_index
            )
        except OfferError as error:
            # It waits for no answer: the connection is made by its other candidates, or not.
            log.warning("viewer %s: %s", message.viewer, error)

    async def _take_picture(self, request: str) -> None:
        waiting = self._engine.next_frame()
        jpeg = b""
        if waiting is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PICTURE_TIMEOUT_S):
                    frame = await asyncio.wrap_future(waiting)
                    loop = asyncio.get_running_loop()
                    jpeg = await loop.run_in_executor(None, thumbnail_jpeg, frame)
        await self._tell(messages.Picture(request=request, jpeg=jpeg))

    async def _report(self) -> None:
        while True:
            if self._engine.failed:
                raise RuntimeError("a media thread has ended")
            stats = self._engine.stats()
            usage = resource.getrusage(resource.RUSAGE_SELF)
            layers = self._peers.layers()
            viewers = self._peers.viewers()
            await self._tell(
                messages.AvatarStatus(
                    session=self._bootstrap.session,
                    state=self._conversation.state,
                    viewers=len(viewers),
                    viewer_ids=viewers,
                    missed_faces=missed_faces(self._renderer),
                    low_viewers=sum(layer == "low" for layer in layers.values()),
                    abandoned=self._peers.abandoned,
                    speaker=self._conversation.speaker,
                    fps=stats.fps,
                    frames=stats.frames,
                    late_frames=stats.late_frames,
                    render_ms=stats.render_ms,
                    encode_ms=stats.encode_ms,
                    bitrate_bps=stats.bitrate_bps,
                    cpu_s=usage.ru_utime + usage.ru_stime,
                    rss_bytes=_rss_bytes(usage),
                    recording=self._recording.status() if self._recording else None,
                )
            )
            for viewer, layer in layers.items():
                self._peers.send(
                    events.Stats(
                        fps=stats.fps,
                        bitrate_bps=stats.bitrate_bps,
                        render_ms=stats.render_ms,
                        encode_ms=stats.encode_ms,
                        viewers=len(viewers),
                        overload=self._thrift.level,
                        overload_text=self._thrift.text,
                        layer=layer,
                    ),
                    viewer,
                )
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), STATUS_INTERVAL_S)
            self._changed.clear()

    async def _save(self) -> None:
        while True:
            self._thrift.tick()
            await asyncio.sleep(THRIFT_INTERVAL_S)

    # --- the conversation -------------------------------------------------------------------

    def _emit(self, event: events.ServerEvent, viewer: str | None) -> None:
        if self._recording:
            self._recording.event(event)
        self._peers.send(event, viewer)
        if isinstance(event, events.State):
            # The gateway ends nobody in mid-turn, and must know at once when one begins.
            self._changed.set()

    def _trace(self, trace: messages.TurnTrace) -> None:
        if self._recording:
            self._recording.turn(trace)
        task = asyncio.ensure_future(self._tell(trace))
        self._requests.add(task)
        task.add_done_callback(self._requests.discard)


def _rss_bytes(usage: resource.struct_rusage) -> int:
    with contextlib.suppress(OSError, ValueError, IndexError):
        resident_pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        return resident_pages * os.sysconf("SC_PAGE_SIZE")
    peak = usage.ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def main() -> None:
    """Entry of the process."""
    # The terminal's Ctrl-C is the parent's to handle; it tells us in its own way.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    bootstrap = read_bootstrap()
    settings = bootstrap.load_settings()
    setup_logging(settings.observe, "avatar", session=bootstrap.session)
    # Threads hand the interpreter lock over in 1 ms instead of 5: frames do not wait for it.
    sys.setswitchinterval(0.001)
    started = time.monotonic()
    try:
        asyncio.run(AvatarProcess(bootstrap).run())
    except AvatarError as error:
        raise SystemExit(str(error)) from error
    log.info("ended after %.0f s", time.monotonic() - started)


if __name__ == "__main__":
    main()
