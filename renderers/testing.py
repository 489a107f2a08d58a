"""What every renderer must do, as checks that its own tests can run.

    from renderers.testing import check_conformance
    def test_it_keeps_the_contract(): check_conformance(lambda: MyRenderer(folder))

Each check raises `AssertionError` with what was expected.
"""

from __future__ import annotations

import gc
import math
import tracemalloc
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from renderers.contract import VISEMES, I420Frame, Pose, Rect, Renderer

MakeRenderer = Callable[[], Renderer]

Picture = NDArray[np.uint8]

UNSEEN = 6
"""Levels of luma or chroma by which a picture may depend on those drawn before it."""


def varied_poses(count: int, seed: int = 1) -> list[Pose]:
    """Poses of a face that sways, blinks and talks, at 30 frames a second; the same every time."""
    rng = np.random.default_rng(seed)
    visemes = np.zeros(len(VISEMES), np.float32)
    target = visemes.copy()
    poses = []
    for index in range(count):
        time_s = index / 30
        if index % 3 == 0:
            target = np.zeros_like(visemes)
            target[rng.integers(len(VISEMES))] = 1.0
        visemes = visemes + (target - visemes) * np.float32(0.45)
        blink = max(0.0, 1.0 - abs(time_s % 3.0 - 0.4) / 0.12)
        poses.append(
            Pose(
                visemes=visemes.copy(),
                jaw=0.2 + 0.2 * math.sin(time_s * 9),
                blink_left=blink,
                blink_right=blink,
                squint=0.2 + 0.2 * math.sin(time_s * 0.6),
                gaze_x=0.5 * round(math.sin(time_s * 1.1)),
                gaze_y=0.3 * round(math.cos(time_s * 0.7)),
                brow_left=0.4 * math.sin(time_s * 1.3),
                brow_right=0.4 * math.sin(time_s * 1.5),
                brow_inner=0.3 * math.sin(time_s * 0.8),
                yaw=7.0 * math.sin(time_s * 0.9),
                pitch=3.0 * math.sin(time_s * 1.3),
                roll=3.0 * math.sin(time_s * 0.7),
                breath=0.5 + 0.5 * math.sin(time_s * 1.6),
                sway_x=0.5 * math.sin(time_s * 0.5),
                smile=0.3 + 0.2 * math.sin(time_s * 0.4),
            )
        )
    return poses


def extreme_poses() -> list[Pose]:
    """Every field at and beyond its limits, alone and together."""
    limits: dict[str, Any] = {
        **dict.fromkeys(("blink_left", "blink_right", "squint", "jaw", "breath"), (0.0, 1.0, 1.7)),
        **dict.fromkeys(("smile", "frown"), (0.0, 1.0, 1.7)),
        **dict.fromkeys(("gaze_x", "gaze_y", "sway_x"), (-1.0, 1.0, 1.8)),
        **dict.fromkeys(("brow_left", "brow_right", "brow_inner"), (-1.0, 1.0, 1.8)),
        **dict.fromkeys(("yaw",), (-12.0, 12.0, 30.0)),
        **dict.fromkeys(("pitch", "roll"), (-8.0, 8.0, 30.0)),
    }
    alone = [Pose(**{name: value}) for name, values in limits.items() for value in values]
    together = [
        Pose(
            visemes=np.ones(len(VISEMES), np.float32),
            **{name: values[which] for name, values in limits.items()},
        )
        for which in range(3)
    ]
    return alone + together


def check_conformance(make: MakeRenderer) -> None:
    """Run every check below on renderers that `make` builds."""
    check_fills_whole_frame(make)
    check_determinism(make)
    check_dirty_rectangle(make)
    check_extremes(make)
    check_bounded_memory(make)


def check_fills_whole_frame(make: MakeRenderer) -> None:
    """Whatever a frame held before, the same pose gives the same picture in it."""
    renderer = make()
    size = renderer.size
    for pose in (Pose(), Pose(yaw=5.0, smile=1.0)):
        pictures = []
        for rubbish in (0, 255, 77):
            frame = I420Frame.empty(*size)
            frame.data[:] = rubbish
            renderer.draw(pose, frame)
            pictures.append(frame.data)
        assert np.array_equal(pictures[0], pictures[1]), "part of the frame was not filled"
        assert np.array_equal(pictures[1], pictures[2]), "part of a repeated pose was not filled"
    renderer.close()


def check_determinism(make: MakeRenderer) -> None:
    """Two renderers draw the same pictures of the same poses; another order of the poses may
    change a picture by what cannot be seen: `UNSEEN` levels."""
    poses = varied_poses(12)
    first, second = make(), make()
    once = [_draw(first, pose) for pose in poses]
    again = [_draw(second, pose) for pose in poses]
    for index, (one, other) in enumerate(zip(once, again, strict=True)):
        assert np.array_equal(one, other), f"pose {index} was drawn differently"
    backwards = [_draw(second, pose) for pose in reversed(poses)]
    for index, (one, other) in enumerate(zip(once, reversed(backwards), strict=True)):
        off = int(np.abs(one.astype(np.int16) - other.astype(np.int16)).max())
        assert off <= UNSEEN, f"pose {index} depends on those before by {off} levels"
    first.close()
    second.close()


def check_dirty_rectangle(make: MakeRenderer) -> None:
    """Outside the reported rectangle nothing differs from the picture before."""
    renderer = make()
    width, height = renderer.size
    before: Picture | None = None
    poses = varied_poses(10)
    for pose in [*poses, poses[-1]]:
        frame = I420Frame.empty(width, height)
        rect = renderer.draw(pose, frame)
        if before is None:
            assert rect == Rect(0, 0, width, height), "the first picture is all new"
        else:
            outside = _outside(frame, rect) & (frame.data != before)
            assert not outside.any(), f"changed outside of the reported {rect}"
        before = frame.data
    assert rect.empty, "an unchanged pose must report an empty rectangle"
    renderer.close()


def check_extremes(make: MakeRenderer) -> None:
    """Poses at and beyond the limits are drawn."""
    renderer = make()
    frame = I420Frame.empty(*renderer.size)
    for pose in extreme_poses():
        renderer.draw(pose, frame)
    renderer.close()


def check_bounded_memory(make: MakeRenderer, *, frames: int = 100) -> None:
    """Once its caches are warm, drawing on takes no more memory."""
    renderer = make()
    frame = I420Frame.empty(*renderer.size)
    _draw_all(renderer, varied_poses(2 * frames, seed=2), frame)
    gc.collect()
    tracemalloc.start()
    try:
        _draw_all(renderer, varied_poses(frames // 2, seed=3), frame)
        gc.collect()
        first, _ = tracemalloc.get_traced_memory()
        _draw_all(renderer, varied_poses(frames, seed=4), frame)
        gc.collect()
        second, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    limit = 32 * 2**20
    assert second - first < limit, f"memory grew by {(second - first) / 2**20:.1f} MiB"
    renderer.close()


def _draw_all(renderer: Renderer, poses: Iterable[Pose], frame: I420Frame) -> None:
    for pose in poses:
        renderer.draw(pose, frame)


def _draw(renderer: Renderer, pose: Pose) -> Picture:
    frame = I420Frame.empty(*renderer.size)
    renderer.draw(pose, frame)
    return frame.data


def _outside(frame: I420Frame, rect: Rect) -> NDArray[np.bool_]:
    mask = I420Frame(np.ones(frame.data.shape, np.uint8), frame.width, frame.height)
    mask.y[rect.y : rect.y + rect.height, rect.x : rect.x + rect.width] = 0
    rows = slice(rect.y // 2, (rect.y + rect.height + 1) // 2)
    columns = slice(rect.x // 2, (rect.x + rect.width + 1) // 2)
    mask.u[rows, columns] = 0
    mask.v[rows, columns] = 0
    return mask.data.astype(bool)
