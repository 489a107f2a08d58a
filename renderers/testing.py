"""What every renderer must do, as checks that its own tests can run.

    from renderers.testing import check_conformance
    def test_it_keeps_the_contract(): check_conformance(lambda: MyRenderer(folder))

Each check raises `AssertionError` with what was expected. `drawing_cost` measures.
"""

from __future__ import annotations

import contextlib
import copy
import gc
import math
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from renderers.contract import (
    VISEMES,
    Attitude,
    CutoutRenderer,
    I420Frame,
    Pose,
    Rect,
    Renderer,
    VisemeSpan,
)
from renderers.motion import Animator

MakeRenderer = Callable[[], Renderer]

Picture = NDArray[np.uint8]

UNSEEN = 6
"""Levels of luma or chroma by which a picture may depend on those drawn before it,"""

UNSEEN_PX = 0.75
"""and luma pixels by which what it shows may lie elsewhere: a renderer may leave alone what has
hardly moved, and take one drawing of an eye for another."""

RETAINED_BYTES = 64 * 1024
"""What may be left after drawing anew what was drawn before: the interpreter's own bookkeeping."""


class Cost(NamedTuple):
    """CPU time of one `draw` (ms)."""

    p50_ms: float
    p95_ms: float


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
                time_s=time_s,
            )
        )
    return poses


def living_poses(count: int, seed: int = 1, attitude: Attitude = Attitude.IDLE) -> list[Pose]:
    """What an `Animator` makes of an attitude, at 30 frames a second: mostly a head that drifts by
    parts of a pixel. Speaking, it says the visemes in turn."""
    animator = Animator(seed=seed)
    animator.set_attitude(attitude, 0.0)
    if attitude is Attitude.SPEAKING:
        spans = [VisemeSpan(VISEMES[n % 15], n * 0.1, (n + 1) * 0.1) for n in range(count // 3 + 1)]
        animator.add_speech(0.0, spans, np.full(len(spans) * 10, 0.1, np.float32))
    return [copy.deepcopy(animator.pose(index / 30)) for index in range(count)]


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


def check_conformance(make: MakeRenderer) -> Cost:
    """Run every check below on renderers that `make` builds; what `draw` costs."""
    for check in CHECKS:
        check(make)
    renderer = make()
    cost = drawing_cost(renderer, varied_poses(150))
    renderer.close()
    return cost


def drawing_cost(renderer: Renderer, poses: Iterable[Pose]) -> Cost:
    """CPU time on this thread of drawing `poses` one after the other."""
    buffers = [I420Frame.empty(*renderer.size) for _ in range(4)]
    costs = []
    for index, pose in enumerate(poses):
        start = time.thread_time()
        renderer.draw(pose, buffers[index % len(buffers)])
        costs.append((time.thread_time() - start) * 1000)
    return Cost(float(np.median(costs)), float(np.percentile(costs, 95)))


def check_size(make: MakeRenderer) -> None:
    """The size is one that I420 can have, and a frame of another size is refused."""
    renderer = make()
    width, height = renderer.size
    assert min(width, height) > 0, f"a size of {width}x{height}"
    assert width % 4 == height % 4 == 0, f"{width}x{height}: sides must be divisible by 4"
    try:
        renderer.draw(Pose(), I420Frame.empty(width + 4, height))
    except ValueError:
        pass
    else:
        raise AssertionError("a frame of another size must be refused with a ValueError")
    renderer.close()


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
    """Two renderers draw the same pictures of the same poses, of a face that turns as of one that
    hardly moves; another order of the poses may change a picture by what cannot be seen."""
    first, second = make(), make()
    poses = [*varied_poses(12), *living_poses(12), *living_poses(12, 2, Attitude.SPEAKING)]
    once = [_draw(first, pose) for pose in poses]
    again = [_draw(second, pose) for pose in poses]
    for index, (one, other) in enumerate(zip(once, again, strict=True)):
        assert np.array_equal(one, other), f"pose {index} was drawn differently"
    backwards = [_draw(second, pose) for pose in reversed(poses)]
    for index, (one, other) in enumerate(zip(once, reversed(backwards), strict=True)):
        _assert_looks_alike(second.size, one, other, f"pose {index} depends on those before")
    first.close()
    second.close()


def check_holding(make: MakeRenderer) -> None:
    """However long a head drifts so slowly that parts of it can be left as they were drawn, it is
    seen where it should be: as by a renderer that comes to the pose from far away."""
    held, fresh = make(), make()
    away = Pose(yaw=-12.0, pitch=6.0, roll=8.0, sway_x=-1.0, breath=1.0)
    for index, pose in enumerate(living_poses(120)):
        picture = _draw(held, pose)
        if index % 12 == 11:
            _draw(fresh, away)
            expected = _draw(fresh, pose)
            _assert_looks_alike(held.size, expected, picture, f"after {index} frames of drifting")
    held.close()
    fresh.close()


def check_independence(make: MakeRenderer) -> None:
    """Four renderers that draw at once, each on a thread, draw what one draws alone."""
    poses = [*varied_poses(8), *living_poses(8, 3, Attitude.SPEAKING)]
    alone = make()
    expected = [_draw(alone, pose) for pose in poses]
    alone.close()
    renderers = [make() for _ in range(4)]
    with ThreadPoolExecutor(len(renderers)) as threads:
        drawn = threads.map(lambda each: [_draw(each, pose) for pose in poses], renderers)
        for number, pictures in enumerate(drawn):
            for index, (one, other) in enumerate(zip(expected, pictures, strict=True)):
                assert np.array_equal(one, other), f"renderer {number} of 4 drew pose {index} else"
    for renderer in renderers:
        renderer.close()


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


def check_allocation(make: MakeRenderer) -> None:
    """Drawing what was drawn before keeps no memory, and never takes as much as half a frame."""
    renderer = make()
    frame = I420Frame.empty(*renderer.size)
    poses = [*varied_poses(30, seed=5), *living_poses(30, 5, Attitude.SPEAKING)]
    for _ in range(2):
        _draw_all(renderer, poses, frame)
    gc.collect()
    tracemalloc.start()
    try:
        _draw_all(renderer, poses[:5], frame)
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        _draw_all(renderer, poses, frame)
        after, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    retained = after - before
    assert retained <= RETAINED_BYTES, f"{retained} bytes more after {len(poses)} frames"
    taken = peak - before
    assert taken <= frame.data.nbytes // 2, f"a frame took {taken / 2**20:.1f} MiB for itself"
    renderer.close()


def check_close(make: MakeRenderer) -> None:
    """Closing leaves no thread and no open file behind, and closing again does no harm."""
    before = set(threading.enumerate())
    gc.collect()
    files = _open_files()
    renderer = make()
    _draw(renderer, Pose())
    renderer.close()
    renderer.close()
    left = set(threading.enumerate()) - before
    assert not left, f"threads left after closing: {left}"
    opened = _open_files() - files
    assert not opened, f"files left open after closing: {sorted(opened)}"


def _open_files() -> set[str]:
    """The files that this process has open; empty where the system does not tell."""
    found = set()
    for link in Path("/proc/self/fd").glob("*"):
        with contextlib.suppress(OSError):
            found.add(str(link.readlink()))
    return {path for path in found if path.startswith("/") and not path.startswith("/proc")}


def check_cutout(make: Callable[[], CutoutRenderer]) -> None:
    """For a renderer built with `transparent=True`: what is laid over others is the face alone,
    with an alpha that moves with it. Not among `CHECKS`, as it is optional."""
    renderer = make()
    width, height = renderer.size
    rest = renderer.draw_rgba(Pose())
    assert rest.shape == (height, width, 4), f"a picture of shape {rest.shape}"
    assert rest.dtype == np.uint8, f"a picture of {rest.dtype}"
    alpha = rest[..., 3]
    assert (alpha == 255).mean() > 0.02, "nothing of the picture is opaque"
    assert (alpha == 0).mean() > 0.02, "nothing of the picture is clear"
    assert np.array_equal(renderer.draw_rgba(Pose()), rest), "the same pose was drawn differently"
    turned = renderer.draw_rgba(Pose(roll=8.0, yaw=8.0))[..., 3]
    moved = float((cv2.absdiff(alpha, turned) > 127).mean())
    assert moved > 1e-3, "the alpha stays where it is when the head turns"
    renderer.close()


CHECKS: tuple[Callable[[MakeRenderer], None], ...] = (
    check_size,
    check_fills_whole_frame,
    check_determinism,
    check_holding,
    check_independence,
    check_dirty_rectangle,
    check_extremes,
    check_allocation,
    check_bounded_memory,
    check_close,
)
"""All that `check_conformance` runs."""


def _assert_looks_alike(size: tuple[int, int], one: Picture, other: Picture, what: str) -> None:
    """Whether `other` shows what `one` shows within `UNSEEN` levels and `UNSEEN_PX` pixels."""
    frames = (I420Frame(one, *size), I420Frame(other, *size))
    for name, scale in (("y", 1.0), ("u", 0.5), ("v", 0.5)):
        plane, second = (getattr(frame, name) for frame in frames)
        # The slope beside a pixel is at most the range of levels around it; what lies between
        # the pixels of one picture may be at those of the other.
        slope = cv2.max(_ranges(plane), _ranges(second))
        allowed = UNSEEN + UNSEEN_PX * scale * slope.astype(np.float32)
        excess = float((cv2.absdiff(plane, second) - allowed).max())
        assert excess <= 0, f"{what}: {name} is {excess:.0f} levels off by more than can be unseen"


def _ranges(plane: Picture) -> Picture:
    around = np.ones((3, 3), np.uint8)
    return np.asarray(cv2.subtract(cv2.dilate(plane, around), cv2.erode(plane, around)), np.uint8)


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
