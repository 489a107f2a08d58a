"""Faces that the inference process draws for this session (`renderers.neural.FaceSource`)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from avatar_server.avatar.inference_client import InferenceClient
from avatar_server.avatars import AvatarSpec
from avatar_server.clock import Clock
from avatar_server.config import Settings
from avatar_server.protocol.face_ring import FaceReader
from avatar_server.protocol.messages import (
    DrawFace,
    FacesOpened,
    FacesRefused,
    Message,
    OpenFaces,
)
from renderers import Renderer
from renderers.neural import Drawn, NeuralRenderer

log = logging.getLogger(__name__)


class RemoteFaces:
    """Asks by message, and takes what is drawn from shared memory.

    `ask`, `take` and `close` are called on the video thread, the rest on the event loop.
    """

    def __init__(
        self,
        session: str,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        send: Callable[[Message], bool],
        ahead: int,
    ) -> None:
        self.ahead = ahead
        self._session, self._loop, self._clock, self._send = session, loop, clock, send
        self._ring = FaceReader()
        self._open = False

    @property
    def ring(self) -> str:
        """The path of the memory that faces are to be put in."""
        return self._ring.path

    def ask(self, number: int, index: int, mel: NDArray[np.float32], left_s: float) -> None:
        """See `FaceSource.ask`."""
        if not self._open:
            return
        due, data = self._clock.now() + left_s, mel.astype("<f4").tobytes()
        # The loop may have ended before this thread.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._post, number, index, data, due)

    def take(self, number: int) -> Drawn | None:
        """See `FaceSource.take`."""
        found = self._ring.take(number)
        return None if found is None else Drawn(found.number, found.face)

    def close(self) -> None:
        """See `FaceSource.close`."""
        self._open = False
        self._ring.close()

    def heard(self, message: FacesOpened | FacesRefused | None) -> None:
        """What inference says of the session's faces; None where it has gone."""
        self._open = isinstance(message, FacesOpened)
        if isinstance(message, FacesOpened):
            self._ring.opened()
            log.info("faces of %d pixels are drawn on %s", message.size, message.device)
        elif isinstance(message, FacesRefused):
            log.error("the mouth does not move: %s", message.message)

    def _post(self, number: int, index: int, mel: bytes, due: float) -> None:
        left_s = due - self._clock.now()
        if left_s > 0:
            self._send(
                DrawFace(session=self._session, number=number, index=index, mel=mel, left_s=left_s)
            )


def connect_faces(
    renderer: Renderer,
    inference: InferenceClient,
    session: str,
    spec: AvatarSpec,
    settings: Settings,
    clock: Clock,
) -> None:
    """Have inference draw the faces of a renderer that needs that; others are left as they are."""
    if not isinstance(renderer, NeuralRenderer):
        return
    loop = asyncio.get_running_loop()
    ahead = settings.faces.ahead_frames
    faces = RemoteFaces(session, loop, clock, inference.post, ahead)
    width, height = renderer.size
    fps = settings.media.video.fps
    renderer.faces_from(faces, fps)
    inference.draw_faces(
        OpenFaces(
            session=session,
            folder=str(spec.folder.absolute()),
            width=width,
            height=height,
            fps=fps,
            ring=faces.ring,
            pid=os.getpid(),
        ),
        faces.heard,
    )


def missed_faces(renderer: Renderer) -> int:
    """Frames of this session whose face was not drawn in time."""
    return renderer.missed if isinstance(renderer, NeuralRenderer) else 0
