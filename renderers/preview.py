"""Stills and short loops of a face, for pages and for looking at one's work.

`python -m renderers.preview AVATAR_FOLDER --out DIR` writes a still, a loop, a strip of visemes,
a sheet of expressions, and a still without background.
"""

from __future__ import annotations

import argparse
import io
import math
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np
from numpy.typing import NDArray

from renderers.contract import (
    VISEMES,
    CutoutRenderer,
    I420Frame,
    Pose,
    Rect,
    Renderer,
    Viseme,
)
from renderers.testing import drawing_cost, varied_poses
from renderers.warp import i420_to_rgb

Picture = NDArray[Any]

PREVIEW_SIZE = (640, 360)


def still(renderer: Renderer, pose: Pose | None = None) -> bytes:
    """A JPEG picture of 640x360 of `pose`, by default a slight smile."""
    frame = I420Frame.empty(*renderer.size)
    renderer.draw(pose or Pose(smile=0.35), frame)
    small = cv2.resize(i420_to_rgb(frame), PREVIEW_SIZE, interpolation=cv2.INTER_AREA)
    ok, data = cv2.imencode(".jpg", small[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, 90])
    if not ok:
        raise RuntimeError("OpenCV could not write a JPEG picture")
    return bytes(data)


def cutout(renderer: CutoutRenderer, pose: Pose | None = None) -> bytes:
    """A PNG picture with alpha, of the renderer's size, of `pose`, by default a slight smile."""
    rgba = renderer.draw_rgba(pose or Pose(smile=0.35))
    ok, data = cv2.imencode(".png", cv2.cvtColor(rgba, cv2.COLOR_RGBA2BGRA))
    if not ok:
        raise RuntimeError("OpenCV could not write a PNG picture")
    return bytes(data)


def animation(
    renderer: Renderer,
    *,
    seconds: float = 4.0,
    fps: int = 20,
    poses: Iterable[Pose] | None = None,
) -> bytes:
    """An MP4 (H.264) of 640x360 of `poses`; by default a loop of `seconds`: breathing, swaying, one
    blink; its ends meet.

    Some 100-250 kB: the quality is set so that a loop of 4 s stays under 400 kB.
    """
    out = io.BytesIO()
    frame = I420Frame.empty(*renderer.size)
    count = max(1, round(seconds * fps))
    with av.open(out, "w", format="mp4") as container:
        stream: Any = container.add_stream("libx264", rate=fps)
        stream.width, stream.height = PREVIEW_SIZE
        stream.pix_fmt = "yuv420p"
        stream.options = {"crf": "27", "preset": "medium", "threads": "1"}
        stream.codec_context.color_range = 1
        stream.codec_context.colorspace = 1
        for pose in poses if poses is not None else _loop(count, fps):
            renderer.draw(pose, frame)
            full = av.VideoFrame.from_numpy_buffer(frame.data, "yuv420p")
            container.mux(stream.encode(full.reformat(*PREVIEW_SIZE)))
        container.mux(stream.encode())
    return out.getvalue()


def _loop(count: int, fps: int) -> Iterator[Pose]:
    blink_at, blink_s = 0.55, 0.3
    for index in range(count):
        phase = 2 * math.pi * index / count
        since = (index / count - blink_at) * count / fps / blink_s
        blink = math.sin(math.pi * since) ** 2 if 0 <= since <= 1 else 0.0
        yield Pose(
            yaw=5.0 * math.sin(phase),
            pitch=1.6 * math.sin(2 * phase + 0.6),
            roll=2.2 * math.sin(phase + 0.9),
            sway_x=0.4 * math.sin(phase),
            breath=0.5 - 0.5 * math.cos(phase),
            gaze_x=-0.25 * math.sin(phase),
            smile=0.45 + 0.2 * math.sin(phase - 1.0),
            brow_left=0.15 + 0.15 * math.sin(phase),
            brow_right=0.15 + 0.15 * math.sin(phase),
            blink_left=blink,
            blink_right=blink,
            time_s=index / fps,
        )


def viseme_pose(viseme: Viseme) -> Pose:
    """A resting face that says `viseme`."""
    pose = Pose()
    pose.visemes[viseme] = 1.0
    return pose


def draw_rgb(renderer: Renderer, pose: Pose) -> Picture:
    """One picture, RGB of the renderer's size."""
    frame = I420Frame.empty(*renderer.size)
    renderer.draw(pose, frame)
    return i420_to_rgb(frame)


def viseme_strip(renderer: Renderer, box: Rect) -> Picture:
    """The 15 visemes in three rows, each the pixels in `box`, labelled."""
    return _sheet(
        [(v.name.lower(), viseme_pose(v)) for v in VISEMES],
        lambda pose: _crop(draw_rgb(renderer, pose), box),
        columns=5,
    )


def expression_sheet(renderer: Renderer) -> Picture:
    """Turns, tilts and expressions, each at half size."""
    width, height = renderer.size
    poses: list[tuple[str, Pose]] = [
        ("rest", Pose()),
        ("smile", Pose(smile=1.0, squint=0.2)),
        ("frown", Pose(frown=1.0, brow_inner=0.5)),
        ("yaw -12", Pose(yaw=-12.0)),
        ("yaw 12", Pose(yaw=12.0)),
        ("roll 8", Pose(roll=8.0)),
        ("pitch 8", Pose(pitch=8.0)),
        ("pitch -8", Pose(pitch=-8.0)),
        ("thinking", Pose(gaze_x=0.7, gaze_y=0.6, brow_left=0.5, roll=3.0, yaw=4.0)),
        ("blink", Pose(blink_left=1.0, blink_right=1.0)),
        ("wink", Pose(blink_left=1.0, smile=0.8)),
        ("surprise", Pose(brow_left=1.0, brow_right=1.0, jaw=0.5)),
    ]
    box = Rect(width // 5, 0, width * 3 // 5, height)
    return _sheet(
        poses,
        lambda pose: cv2.resize(
            _crop(draw_rgb(renderer, pose), box), None, fx=0.5, fy=0.5, interpolation=cv2.INTER_AREA
        ),
        columns=4,
    )


def _sheet(
    poses: list[tuple[str, Pose]], picture: Callable[[Pose], Picture], *, columns: int
) -> Picture:
    cells = []
    for label, pose in poses:
        cell = np.ascontiguousarray(picture(pose))
        cv2.putText(cell, label, (8, 24), cv2.FONT_HERSHEY_SIMPLEX, 0.6, (255, 255, 255), 1)
        cells.append(cell)
    while len(cells) % columns:
        cells.append(np.zeros_like(cells[0]))
    rows = [np.hstack(cells[i : i + columns]) for i in range(0, len(cells), columns)]
    return np.vstack(rows)


def _crop(picture: Picture, box: Rect) -> Picture:
    return picture[box.y : box.y + box.height, box.x : box.x + box.width]


def main(arguments: list[str] | None = None) -> int:
    """Write previews of the avatar in a folder; the exit code."""
    from renderers.puppet import PuppetRenderer, RigError

    parser = argparse.ArgumentParser(prog="python -m renderers.preview", description=__doc__)
    parser.add_argument("folder", type=Path, help="an avatar's folder")
    parser.add_argument("--out", type=Path, default=Path("."), help="where the pictures go")
    parser.add_argument(
        "--time",
        action="store_true",
        help="also print what a frame costs while swaying and talking",
    )
    options = parser.parse_args(arguments)
    try:
        renderer = PuppetRenderer(options.folder)
    except RigError as error:
        print(error, file=sys.stderr)
        return 2
    options.out.mkdir(parents=True, exist_ok=True)
    pictures = {
        "front.png": draw_rgb(renderer, Pose(smile=0.35)),
        "visemes.png": viseme_strip(renderer, renderer.mouth_box),
        "expressions.png": expression_sheet(renderer),
    }
    for name, picture in pictures.items():
        cv2.imwrite(str(options.out / name), np.ascontiguousarray(picture[..., ::-1]))
    clear = PuppetRenderer(options.folder, transparent=True)
    (options.out / "cutout.png").write_bytes(cutout(clear))
    clear.close()
    (options.out / "still.jpg").write_bytes(still(renderer))
    (options.out / "loop.mp4").write_bytes(animation(renderer))
    if options.time:
        median_ms, p95_ms = drawing_cost(renderer, varied_poses(300))
        print(f"CPU per frame: median {median_ms:.2f} ms, p95 {p95_ms:.2f} ms")
    renderer.close()
    for name in (*pictures, "cutout.png", "still.jpg", "loop.mp4"):
        print(options.out / name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
