"""The session's face and voice as the media engine sees them: sound to send, frames to draw."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from avatar_server.avatar.playout import Playout
from avatar_server.avatars import AvatarError, AvatarSpec
from avatar_server.paths import cache_dir
from renderers import Attitude, I420Frame, Pose, Renderer, SoundDriven
from renderers.motion import Animator

RENDERERS = "avatar_server.renderers"
"""Entry-point group under which renderers register."""


class Face:
    """What the media engine draws from: one playout, one animator, one renderer.

    `pull_audio` is called on the audio thread, `draw` on the video thread.
    """

    def __init__(
        self,
        playout: Playout,
        animator: Animator,
        renderer: Renderer,
        attitude: Callable[[], Attitude],
    ) -> None:
        self._playout = playout
        self._animator = animator
        self._renderer = renderer
        self._attitude = attitude
        self._pose = Pose()
        if isinstance(renderer, SoundDriven):
            renderer.hear(playout.sound)

    def pull_audio(self, samples: int) -> NDArray[np.int16]:
        """The next `samples` of the session's sound, int16 mono 48 kHz."""
        return self._playout.pull(samples)

    def draw(self, media_time: float, frame: I420Frame) -> bool:
        """Draw the face of `media_time` (s); False where the picture did not change."""
        self._animator.set_attitude(self._attitude(), media_time)
        self._animator.pose(media_time, self._pose)
        return not self._renderer.draw(self._pose, frame).empty


def load_renderer(spec: AvatarSpec, width: int, height: int) -> Renderer:
    """The renderer that `spec` names, for its folder. Raises `AvatarError`.

    It is built with the folder and the keywords `width`, `height` (pixels) and `cache`, a folder
    in which it may keep what takes long to make.
    """
    found = {point.name: point for point in entry_points(group=RENDERERS)}
    point = found.get(spec.renderer)
    if point is None:
        raise AvatarError(
            f"avatar {spec.name}: no renderer {spec.renderer!r}; installed are {sorted(found)}"
        )
    build: Callable[..., Renderer] = point.load()
    options: dict[str, Any] = {"width": width, "height": height, "cache": cache_dir() / "art"}
    folder: Path = spec.folder
    try:
        return build(folder, **options)
    except ValueError as error:
        raise AvatarError(f"avatar {spec.name}: {error}") from error
