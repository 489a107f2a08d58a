"""The operator's small picture."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from avatar_server.avatar.thumbnail import thumbnail_jpeg
from renderers.contract import I420Frame
from renderers.warp.colour import rgb_to_i420


def test_it_shows_what_the_frame_shows_smaller() -> None:
    rgb = np.zeros((720, 1280, 3), np.float32)
    rgb[:, :640] = (204, 26, 26)
    rgb[:, 640:] = (26, 51, 230)
    planes = rgb_to_i420(rgb)
    frame = I420Frame.empty(1280, 720)
    for target, source in zip((frame.y, frame.u, frame.v), planes, strict=True):
        target[:] = source
    picture = cv2.imdecode(np.frombuffer(thumbnail_jpeg(frame), np.uint8), cv2.IMREAD_COLOR)
    assert picture is not None
    assert picture.shape == (180, 320, 3)
    left, right = picture[90, 60, ::-1], picture[90, 260, ::-1]
    assert left == pytest.approx([204, 26, 26], abs=12)
    assert right == pytest.approx([26, 51, 230], abs=12)


def test_a_small_frame_is_not_enlarged() -> None:
    data = thumbnail_jpeg(I420Frame.empty(160, 120))
    picture = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
    assert picture is not None
    assert picture.shape[:2] == (120, 160)
