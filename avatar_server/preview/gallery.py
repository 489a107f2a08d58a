"""Pictures of all avatars for the documentation, and the page that shows them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from avatar_server.avatar.face import load_renderer
from avatar_server.avatars import AvatarSpec
from avatar_server.config import VideoSettings
from avatar_server.preview.performance import performance
from avatar_server.preview.strip import close_up
from renderers import I420Frame, Pose, Renderer, Viseme
from renderers.motion import EMOTIONS

Picture = NDArray[Any]

PAGE = "README.md"
MAX_BYTES = 60_000
"""Of a picture: a documentation is fetched over slow lines, too."""

_FACE_PX, _CELL_PX, _CAPTION_PX = 216, 96, 16
_SHOW_S = 2.5
"""By then an emotion has come up in full; of what follows, the frame with the widest eyes."""
_FPS = 30
_SPOKEN = (Viseme.PP, Viseme.FF, Viseme.AA, Viseme.E, Viseme.OH, Viseme.OU)
_HEAD = """# The avatars

Made by `avatar-server avatar gallery --out docs/gallery`; do not edit. Each: the face at rest, its
emotions, and its mouth at six sounds.
"""


def draw_gallery(
    avatars: Mapping[str, AvatarSpec],
    out: Path,
    video: VideoSettings,
    *,
    progress: Callable[[str], None] = lambda line: None,
) -> list[Path]:
    """Write pictures of `avatars` and a page with them into `out`; the files written.

    Raises `AvatarError`, and `OSError` where `out` cannot be written.
    """
    out.mkdir(parents=True, exist_ok=True)
    written = []
    for name, spec in avatars.items():
        progress(f"{name}: {spec.title}")
        renderer = load_renderer(spec, video.width, video.height)
        try:
            pictures = {
                f"{name}.png": _face(renderer, spec, "neutral", _FACE_PX),
                f"{name}-emotions.png": _row(
                    [(mood, _face(renderer, spec, mood, _CELL_PX)) for mood in EMOTIONS]
                ),
                f"{name}-sounds.png": _row(
                    [(v.name, _draw(renderer, _said(v), _CELL_PX)) for v in _SPOKEN]
                ),
            }
        finally:
            renderer.close()
        for file, picture in pictures.items():
            (out / file).write_bytes(_png(picture))
            written.append(out / file)
    (out / PAGE).write_text(_page(avatars), encoding="utf-8")
    return [*written, out / PAGE]


def _face(renderer: Renderer, spec: AvatarSpec, emotion: str, side: int) -> Picture:
    """The face as it is a while after the emotion came up, with its eyes open."""
    best: Pose | None = None
    for at, pose in performance(
        None, seconds=_SHOW_S + 1.0, fps=_FPS, seed=spec.seed, emotion=emotion
    ):
        if at >= _SHOW_S and (best is None or pose.blink_left < best.blink_left - 0.05):
            best = copy.deepcopy(pose)
    return _draw(renderer, best or Pose(), side)


def _said(viseme: Viseme) -> Pose:
    pose = Pose(smile=0.1)
    pose.visemes[viseme] = 1.0
    return pose


def _draw(renderer: Renderer, pose: Pose, side: int) -> Picture:
    frame = I420Frame.empty(*renderer.size)
    renderer.draw(pose, frame)
    return close_up(frame, side)


def _row(cells: Sequence[tuple[str, Picture]]) -> Picture:
    captioned = []
    for label, picture in cells:
        below = np.full((_CAPTION_PX, picture.shape[1], 3), 24, np.uint8)
        font = cv2.FONT_HERSHEY_SIMPLEX
        (width, _), _ = cv2.getTextSize(label, font, 0.36, 1)
        left = max(2, (below.shape[1] - width) // 2)
        cv2.putText(below, label, (left, 11), font, 0.36, (235, 235, 235), 1, cv2.LINE_AA)
        captioned.append(np.vstack([picture, below]))
    return np.hstack(captioned)


def _png(picture: Picture) -> bytes:
    """As PNG of at most `MAX_BYTES`: made smaller until it fits."""
    while True:
        bgr = np.ascontiguousarray(picture[..., ::-1])
        ok, data = cv2.imencode(".png", bgr, [cv2.IMWRITE_PNG_COMPRESSION, 9])
        if not ok:
            raise RuntimeError("OpenCV could not write a PNG picture")
        if len(data) <= MAX_BYTES or picture.shape[1] < _CELL_PX:
            return bytes(data)
        picture = np.asarray(
            cv2.resize(picture, None, fx=0.92, fy=0.92, interpolation=cv2.INTER_AREA)
        )


def _page(avatars: Mapping[str, AvatarSpec]) -> str:
    parts = [_HEAD]
    for name, spec in avatars.items():
        about = [f"Renderer `{spec.renderer}`", f"voice `{spec.voice.name}`"]
        about.append(f"licence {spec.license or 'not stated'}")
        parts.append(
            f"## {spec.title} (`{name}`)\n\n{spec.description} {', '.join(about)}.\n\n"
            f"![{spec.title}]({name}.png)\n\n"
            f"![{spec.title}: {', '.join(EMOTIONS)}]({name}-emotions.png)\n\n"
            f"![{spec.title} at the sounds {', '.join(v.name for v in _SPOKEN)}]"
            f"({name}-sounds.png)\n"
        )
    return "\n".join(parts)
