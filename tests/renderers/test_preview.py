from __future__ import annotations

import io
from pathlib import Path

import av
import cv2
import numpy as np

from renderers.preview import animation, main, still
from renderers.puppet import PuppetRenderer


def test_a_still_is_a_small_picture(renderer: PuppetRenderer) -> None:
    picture = cv2.imdecode(np.frombuffer(still(renderer), np.uint8), cv2.IMREAD_COLOR)
    assert picture is not None
    assert picture.shape == (360, 640, 3)
    assert picture.std() > 10


def test_the_loop_is_short_small_and_moves(renderer: PuppetRenderer) -> None:
    data = animation(renderer, seconds=2.0, fps=10)
    assert len(data) < 400_000
    with av.open(io.BytesIO(data)) as container:
        frames = [frame.to_ndarray(format="gray") for frame in container.decode(video=0)]
    assert len(frames) == 20
    assert frames[0].shape == (360, 640)
    middle = np.abs(frames[10].astype(np.int16) - frames[0].astype(np.int16)).mean()
    ends = np.abs(frames[-1].astype(np.int16) - frames[0].astype(np.int16)).mean()
    assert middle > 1.0
    assert ends < middle


def test_the_command_refuses_a_folder_without_a_rig(tmp_path: Path, capsys: object) -> None:
    assert main([str(tmp_path), "--out", str(tmp_path)]) == 2
