from __future__ import annotations

import av
import numpy as np
import pytest

from renderers.contract import I420Frame
from renderers.warp import i420_to_rgb, rgb_to_i420, rgb_to_ycc, ycc_to_i420


def _frame(rgb: np.ndarray) -> I420Frame:
    frame = I420Frame.empty(rgb.shape[1], rgb.shape[0])
    for view, plane in zip((frame.y, frame.u, frame.v), rgb_to_i420(rgb), strict=True):
        view[:] = plane
    return frame


@pytest.mark.parametrize(
    ("rgb", "yuv"),
    [
        # Rec. ITU-R BT.709-6: black 16, white 235; red by the coefficients of section 3.
        ((0, 0, 0), (16, 128, 128)),
        ((255, 255, 255), (235, 128, 128)),
        ((255, 0, 0), (63, 102, 240)),
        ((0, 0, 255), (32, 240, 118)),
    ],
)
def test_colours_follow_bt709(rgb: tuple[int, int, int], yuv: tuple[int, int, int]) -> None:
    planes = rgb_to_i420(np.full((4, 4, 3), rgb, np.float32))
    assert tuple(int(plane[0, 0]) for plane in planes) == yuv


def test_smooth_pictures_survive_the_round_trip() -> None:
    ramp = np.linspace(20, 230, 64, dtype=np.float32)
    rgb = np.stack(np.broadcast_arrays(ramp[None, :], ramp[:, None], 128.0), -1).astype(np.float32)
    back = i420_to_rgb(_frame(rgb)).astype(np.float32)
    assert np.abs(back - rgb).max() < 6


def test_a_decoder_sees_the_same_colours() -> None:
    rgb = np.full((16, 16, 3), (200, 90, 40), np.float32)
    frame = av.VideoFrame.from_ndarray(_frame(rgb).data, "yuv420p")
    seen = frame.to_ndarray(format="rgb24", src_colorspace="ITU709")
    assert np.abs(seen.astype(np.int16) - rgb.astype(np.int16)).max() <= 4


def test_painting_in_colour_differences_gives_the_same_planes() -> None:
    rgb = np.random.default_rng(1).uniform(0, 255, (8, 12, 3)).astype(np.float32)
    for one, other in zip(rgb_to_i420(rgb), ycc_to_i420(rgb_to_ycc(rgb)), strict=True):
        assert np.abs(one.astype(int) - other.astype(int)).max() <= 1


def test_odd_sides_are_refused() -> None:
    with pytest.raises(ValueError, match="even sides"):
        rgb_to_i420(np.zeros((3, 4, 3), np.float32))
