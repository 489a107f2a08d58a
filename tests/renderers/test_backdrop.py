"""What stands behind a face."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from pydantic import ValidationError

from renderers.backdrop import Backdrop, BackdropError

SIZE = (64, 36)


def painted(folder: Path = Path("."), **values: Any) -> Any:
    return Backdrop(**values).paint(folder, SIZE)


def test_a_colour_fills_the_frame() -> None:
    picture = painted(colour="#102030")
    assert picture.shape == (36, 64, 3)
    assert (picture == (0x10, 0x20, 0x30)).all()


def test_a_gradient_runs_along_its_angle_from_its_first_colour_to_its_last() -> None:
    down = painted(gradient=["#000000", "#ffffff"])
    assert (np.diff(down[:, 10, 0]) > 0).all()
    assert np.ptp(down[5]) == 0
    right = painted(gradient=["#ff0000", "#00ff00", "#0000ff"], angle=0)
    assert right[0, 0].argmax() == 0
    assert right[0, 32].argmax() == 1
    assert right[0, -1].argmax() == 2


def test_a_picture_fills_the_frame_with_its_middle(tmp_path: Path) -> None:
    wide = np.zeros((90, 320, 3), np.uint8)
    wide[:, 80:240] = (0, 0, 255)  # Blue, green, red: the 160x90 in the middle.
    cv2.imwrite(str(tmp_path / "wall.png"), wide)
    picture = painted(tmp_path, picture="wall.png")
    assert picture.shape == (36, 64, 3)
    assert (picture[..., 0] > 250).all()
    assert (picture[..., 2] < 5).all()


@pytest.mark.parametrize("sigma_px", [2.0, 12.0])
def test_a_blur_softens_an_edge_by_its_width(tmp_path: Path, sigma_px: float) -> None:
    size = (320, 180)
    edge = np.zeros((180, 320, 3), np.uint8)
    edge[:, 160:] = 255
    cv2.imwrite(str(tmp_path / "edge.png"), edge)
    row = Backdrop(picture="edge.png", blur=sigma_px).paint(tmp_path, size)[90, :, 0]
    # A Gaussian's edge is at 16 % and 84 % one standard deviation to each side.
    low, high = (int(np.argmax(row > 255 * share)) for share in (0.16, 0.84))
    assert (high - low) / 2 == pytest.approx(sigma_px, rel=0.2, abs=1)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "none of them"),
        ({"colour": "#102030", "picture": "a.png"}, "colour and picture"),
        ({"colour": "#102030", "blur": 3}, "blur goes with picture"),
        ({"picture": "a.png", "angle": 3}, "angle goes with gradient"),
        ({"colour": "red"}, "pattern"),
        ({"gradient": ["#102030"]}, "at least 2"),
        ({"picture": "a.png", "blur": -1}, "greater than or equal to 0"),
    ],
)
def test_what_cannot_be_meant_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Backdrop.model_validate(values)


def test_a_picture_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    folder = tmp_path / "mia"
    folder.mkdir()
    (tmp_path / "secret.png").write_bytes(b"")
    (folder / "text.png").write_text("no picture")
    (folder / "empty.png").write_bytes(b"")
    cv2.imwrite(str(folder / "dot.png"), np.zeros((2, 2, 3), np.uint8))
    for name, message in (
        ("none.png", "No such file"),
        ("../secret.png", "must lie in the folder"),
        ("text.png", "not a JPEG, PNG or WebP"),
        ("empty.png", "not a JPEG, PNG or WebP"),
        ("dot.png", "2x2 is too small"),
    ):
        with pytest.raises(BackdropError, match=message):
            painted(folder, picture=name)
