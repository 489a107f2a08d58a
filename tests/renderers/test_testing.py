"""The checks that every renderer can run find what they are for."""

from __future__ import annotations

import random
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from renderers import I420Frame, Pose, Rect
from renderers.testing import (
    MakeRenderer,
    check_close,
    check_conformance,
    check_cutout,
    check_determinism,
    check_dirty_rectangle,
    check_fills_whole_frame,
    check_independence,
    check_size,
)
from renderers.testing import check_allocation as check_memory

GUIDE = Path(__file__).parents[2] / "docs" / "renderers.md"


def from_the_guide() -> Any:
    """The class that the guide shows."""
    (code,) = (
        block
        for block in re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.S)
        if "class Blinker" in block
    )
    names: dict[str, Any] = {}
    exec(code, names)
    return names["Blinker"]


Blinker: Any = from_the_guide()


def make(kind: Any) -> MakeRenderer:
    return lambda: kind(Path("."), width=320, height=180)


def test_the_renderer_of_the_guide_keeps_the_contract() -> None:
    cost = check_conformance(make(Blinker))
    assert 0 < cost.p50_ms <= cost.p95_ms


class TakesAnySize(Blinker):
    def draw(self, pose: Pose, frame: I420Frame) -> Rect:
        frame.data[:] = 90
        return Rect(0, 0, *self._size)


class LeavesACorner(Blinker):
    def draw(self, pose: Pose, frame: I420Frame) -> Rect:
        corner = frame.y[:8, :8].copy()
        rect: Rect = super().draw(pose, frame)
        frame.y[:8, :8] = corner
        return rect


class Flickers(Blinker):
    def draw(self, pose: Pose, frame: I420Frame) -> Rect:
        super().draw(pose, frame)
        frame.y[0, 0] = random.randrange(256)
        return Rect(0, 0, *self._size)


class SharesABuffer(Blinker):
    drawn = 0

    def draw(self, pose: Pose, frame: I420Frame) -> Rect:
        rect: Rect = super().draw(pose, frame)
        SharesABuffer.drawn += 1
        frame.y[0, 0] = SharesABuffer.drawn % 199
        return rect


class ReportsTooLittle(Blinker):
    def draw(self, pose: Pose, frame: I420Frame) -> Rect:
        rect: Rect = super().draw(pose, frame)
        first, self._started = not getattr(self, "_started", False), True
        return rect if first or rect.empty else Rect(0, 0, 16, 16)


class NeverRests(Blinker):
    def draw(self, pose: Pose, frame: I420Frame) -> Rect:
        super().draw(pose, frame)
        return Rect(0, 0, *self._size)


class Hoards(Blinker):
    def draw(self, pose: Pose, frame: I420Frame) -> Rect:
        self._kept = [*getattr(self, "_kept", []), frame.data.copy()]
        rect: Rect = super().draw(pose, frame)
        return rect


class TakesAFrame(Blinker):
    def draw(self, pose: Pose, frame: I420Frame) -> Rect:
        rect: Rect = super().draw(pose, frame)
        frame.data[:] = frame.data + np.uint8(0)
        return rect


class LeavesAThread(Blinker):
    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        threading.Thread(target=threading.Event().wait, args=(5,), daemon=True).start()


class LeavesAFile(Blinker):
    kept: ClassVar[list[Any]] = []

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.kept.append(GUIDE.open(encoding="utf-8"))


@pytest.mark.parametrize(
    ("kind", "check", "message"),
    [
        (TakesAnySize, check_size, "another size must be refused"),
        (LeavesACorner, check_fills_whole_frame, "not filled"),
        (Flickers, check_determinism, "drawn differently"),
        (SharesABuffer, check_independence, "renderer . of 4"),
        (ReportsTooLittle, check_dirty_rectangle, "outside of the reported"),
        (NeverRests, check_dirty_rectangle, "unchanged pose must report"),
        (Hoards, check_memory, "bytes more"),
        (TakesAFrame, check_memory, "a frame took"),
        (LeavesAThread, check_close, "threads left"),
        (LeavesAFile, check_close, "files left"),
    ],
)
def test_a_fault_is_found(kind: Any, check: Callable[[MakeRenderer], None], message: str) -> None:
    try:
        with pytest.raises(AssertionError, match=message):
            check(make(kind))
    finally:
        for file in LeavesAFile.kept:
            file.close()


class CutOut(Blinker):
    """A disc that moves with the head."""

    def draw_rgba(self, pose: Pose) -> Any:
        width, height = self._size
        y, x = np.mgrid[:height, :width]
        disc = np.hypot(x - width / 2 - 4 * pose.yaw, y - height / 2) < 50
        picture = np.full((height, width, 4), 90, np.uint8)
        picture[..., 3] = 255 * disc
        return picture


class StaysWhereItIs(CutOut):
    def draw_rgba(self, pose: Pose) -> Any:
        return super().draw_rgba(Pose())


class IsNowhereClear(CutOut):
    def draw_rgba(self, pose: Pose) -> Any:
        picture = super().draw_rgba(pose)
        picture[..., 3] = 255
        return picture


def test_what_is_wrong_with_a_cutout_is_found() -> None:
    for kind, message in ((StaysWhereItIs, "stays where it is"), (IsNowhereClear, "is clear")):
        with pytest.raises(AssertionError, match=message):
            check_cutout(lambda kind=kind: make(kind)())  # type: ignore[misc, arg-type, return-value]
    check_cutout(lambda: make(CutOut)())  # type: ignore[arg-type, return-value]
