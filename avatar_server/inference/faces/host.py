"""Draws the faces of all sessions: what is due in one tick goes through the network as one batch.

A face is there in time or not at all. Nobody waits for one: the avatar shows the one before.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from avatar_server.avatars import AvatarSpec
from avatar_server.clock import Clock
from avatar_server.config import FaceSettings
from avatar_server.inference.faces.networks import Networks
from avatar_server.inference.workers import OverloadedError, Running, Together, Workers
from avatar_server.paths import cache_dir
from avatar_server.protocol.face_ring import FaceWriter
from avatar_server.protocol.messages import (
    DrawFace,
    FacesOpened,
    FacesRefused,
    Message,
    OpenFaces,
)
from renderers.neural import Base, FaceJob, LipSyncNetwork, NeuralError, load_manifest
from renderers.neural.mel import BANDS, WINDOW_COLUMNS

log = logging.getLogger(__name__)

ENGINE = "faces"
TELL_S = 30.0
"""One line in the log in this time says how many faces came too late."""
TRY_S = 1.0
"""A network that is too slow for its frames is tried again so often."""
WATCH_S = 5.0
"""How often avatars are looked for that ended without a word."""
MARGIN_S = 0.002
"""Kept between a step's expected end and the frame that it is for."""


@dataclass(slots=True)
class FaceCounts:
    """Frames since the process started: drawn in time, drawn too late, and not drawn at all since
    there was no time or no room. `steps` are the network's."""

    drawn: int = 0
    late: int = 0
    dropped: int = 0
    steps: int = 0


@dataclass(slots=True, eq=False)
class _Face:
    """One session's."""

    session: str
    pid: int
    fps: float
    network: LipSyncNetwork
    pictures: list[NDArray[np.uint8]]
    ring: FaceWriter


@dataclass(slots=True, eq=False)
class _Wanted:
    face: _Face
    number: int
    job: FaceJob
    due: float


@dataclass(slots=True)
class _Tick:
    """What is gathered until `at`."""

    wanted: list[_Wanted] = field(default_factory=list)
    at: float = math.inf
    timer: asyncio.TimerHandle | None = None


class FaceHost:
    """All methods but the network's steps run on one event loop."""

    def __init__(self, settings: FaceSettings, workers: Workers, clock: Clock) -> None:
        self._workers, self._clock = workers, clock
        self.networks = Networks(settings)
        self.counts = FaceCounts()
        self._faces: dict[str, _Face] = {}
        self._opening: dict[str, asyncio.Task[None]] = {}
        self._tick = _Tick()
        self._tried_at = -math.inf
        self._untold = 0
        self._told_at = -math.inf
        self._tasks: set[asyncio.Task[None]] = set()
        self._watching: asyncio.Task[None] | None = None

    @property
    def sessions(self) -> list[str]:
        """Whose faces are drawn."""
        return list(self._faces)

    async def preload(self, avatars: Iterable[AvatarSpec]) -> None:
        """Load what the avatars need, before the first viewer does; what fails is logged."""
        for spec in avatars:
            if spec.renderer != "neural":
                continue
            try:
                manifest = load_manifest(spec.folder)
                await self.networks.get(manifest)
            except NeuralError as error:
                log.error("avatar %s: its mouth will not move: %s", spec.name, error)

    def begin(self, message: OpenFaces, reply: Callable[[Message], None]) -> None:
        """Take a session in, in place of what it had; `reply` gets `FacesOpened`, or why not."""

        async def open_it() -> None:
            try:
                reply(await self._open(message))
            except NeuralError as error:
                reply(FacesRefused(session=message.session, message=str(error)))

        self.close_session(message.session)
        self._opening[message.session] = asyncio.create_task(
            open_it(), name=f"open-faces-{message.session}"
        )

    async def _open(self, message: OpenFaces) -> FacesOpened:
        loop = asyncio.get_running_loop()
        manifest = await loop.run_in_executor(None, load_manifest, Path(message.folder))
        network = await self.networks.get(manifest)

        def prepare() -> list[NDArray[np.uint8]]:
            base = Base(manifest, (message.width, message.height), cache_dir() / "art")
            return base.faces(network.size)

        pictures = await loop.run_in_executor(None, prepare)
        try:
            ring = FaceWriter(message.ring, network.size)
        except OSError as error:
            raise NeuralError(f"the avatar's memory cannot be opened: {error}") from error
        self._faces[message.session] = _Face(
            message.session, message.pid, max(1.0, message.fps), network, pictures, ring
        )
        if self._watching is None:
            self._watching = asyncio.create_task(self._watch(), name="watch-avatars")
        log.info("faces are drawn on %s", network.device, extra={"session": message.session})
        return FacesOpened(session=message.session, size=network.size, device=network.device)

    def draw(self, message: DrawFace) -> None:
        """Gather a frame into its tick. What nobody can use is dropped."""
        face = self._faces.get(message.session)
        mel = np.frombuffer(message.mel, np.float32) if len(message.mel) % 4 == 0 else None
        if (
            face is None
            or mel is None
            or mel.size != BANDS * WINDOW_COLUMNS
            or not 0 <= message.index < len(face.pictures)
            or not message.number >= 0
            or not math.isfinite(message.left_s)
        ):
            self.counts.dropped += 1
            return
        now = self._clock.now()
        due = now + message.left_s
        job = FaceJob(mel.reshape(BANDS, WINDOW_COLUMNS), face.pictures[message.index])
        self._tick.wanted.append(_Wanted(face, message.number, job, due))
        # The ticks of all sessions are the same here, so that they meet; who cannot wait that
        # long takes along all who are there.
        tick = (math.floor(now * face.fps) + 1) / face.fps
        latest = due - self._expected_s(face, len(self._tick.wanted)) - MARGIN_S
        self._gather_until(min(tick, max(now, latest)), now)

    def close_session(self, session: str) -> None:
        """Draw no more for it, and let go of its memory."""
        if (opening := self._opening.pop(session, None)) is not None:
            opening.cancel()
        if (face := self._faces.pop(session, None)) is not None:
            self._tick.wanted = [w for w in self._tick.wanted if w.face is not face]
            face.ring.close()

    def close(self) -> None:
        """Draw no more."""
        if self._tick.timer is not None:
            self._tick.timer.cancel()
        for session in (*self._faces, *self._opening):
            self.close_session(session)
        for task in (*self._tasks, *([self._watching] if self._watching else [])):
            task.cancel()

    # --- ticks ------------------------------------------------------------------------------

    def _gather_until(self, at: float, now: float) -> None:
        if at >= self._tick.at:
            return
        if self._tick.timer is not None:
            self._tick.timer.cancel()
        self._tick.at = at
        loop = asyncio.get_running_loop()
        self._tick.timer = loop.call_later(max(0.0, at - now), self._start)

    def _start(self) -> None:
        tick, self._tick = self._tick, _Tick()
        together: dict[int, list[_Wanted]] = defaultdict(list)
        for each in tick.wanted:
            together[id(each.face.network)].append(each)
        for wanted in together.values():
            self._start_one(wanted[0].face.network, wanted)

    def _start_one(self, network: LipSyncNetwork, wanted: list[_Wanted]) -> None:
        now = self._clock.now()
        in_time = [
            each for each in wanted if now + self._expected_s(each.face, 1) + MARGIN_S <= each.due
        ]
        if not in_time and now - self._tried_at > TRY_S:
            # Whether it is as slow as that is only known by running it.
            self._tried_at = now
            in_time = [each for each in wanted if each.due > now][-1:]
        self._drop(len(wanted) - len(in_time))
        if not in_time:
            return
        calls = [Together(w.face.session, w, w.due, max(0.0, w.due - now)) for w in in_time]
        try:
            running = self._workers[ENGINE].start_together(
                calls,
                lambda items: self._step(network, items),
                key=network.key,
                stage=_stage(network),
            )
        except OverloadedError:
            self._drop(len(in_time))
            return
        task = asyncio.create_task(self._follow(running), name="faces")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _follow(self, running: Sequence[Running[bool]]) -> None:
        for each in running:
            try:
                await each.only()
            except OverloadedError:
                self._drop(1)
            except Exception as error:
                self._drop(1, f"the network failed: {error}")

    def _step(self, network: LipSyncNetwork, wanted: Sequence[_Wanted]) -> list[bool]:
        """On the engine's thread: draw, and hand over what is in time."""
        results = []
        for first in range(0, len(wanted), network.batch):
            part = wanted[first : first + network.batch]
            faces = network.run([each.job for each in part])
            self.counts.steps += 1
            now = self._clock.now()
            for each, face in zip(part, faces, strict=True):
                in_time = now <= each.due and each.face.ring.write(each.number, face)
                self.counts.drawn += in_time
                self.counts.late += not in_time
                results.append(in_time)
        return results

    def _drop(self, count: int, why: str = "the network had no time for them") -> None:
        self.counts.dropped += count
        self._untold += count
        now = self._clock.now()
        if count and now - self._told_at > TELL_S:
            text = "%d faces were not drawn, and the mouth before was shown: %s"
            log.warning(text, self._untold, why)
            self._told_at, self._untold = now, 0

    def _expected_s(self, face: _Face, count: int) -> float:
        stage = _stage(face.network)
        costs = self._workers.costs
        return costs.expected_s(stage, count) if costs.seen(stage) else 0.0

    # --- avatars that are gone ----------------------------------------------------------------

    async def _watch(self) -> None:
        """Memory without a name is freed when the last process lets go of it: do so."""
        while True:
            await asyncio.sleep(WATCH_S)
            for session, face in list(self._faces.items()):
                with contextlib.suppress(PermissionError):
                    try:
                        os.kill(face.pid, 0)
                    except ProcessLookupError:
                        log.info("the avatar has gone", extra={"session": session})
                        self.close_session(session)


def _stage(network: LipSyncNetwork) -> str:
    """What the cost model calls its steps: networks of other sizes cost otherwise."""
    return f"{ENGINE}.{network.size}"
