from __future__ import annotations

import numpy as np
import pytest

from renderers.contract import I420Frame, Rect
from renderers.warp import FieldGrid, Patch, Planes, WarpStage

REGION = Rect(32, 16, 128, 96)


def _plate() -> np.ndarray:
    ramp = np.linspace(0, 255, 192, dtype=np.float32)
    column = np.linspace(0, 255, 128, dtype=np.float32)[:, None]
    return np.stack(np.broadcast_arrays(ramp, column, 60.0), -1).astype(np.float32)


def _stage() -> tuple[FieldGrid, WarpStage]:
    grid = FieldGrid(REGION)
    right = grid.field(10.0, 0.0)
    down = grid.field(0.0, 10.0)
    return grid, WarpStage(_plate(), grid, np.stack([down]), np.stack([right]))


def _draw(stage: WarpStage, local: float, head: float) -> I420Frame:
    frame = I420Frame.empty(192, 128)
    stage.draw(np.array([local], np.float32), np.array([head], np.float32), frame)
    return frame


def test_no_weight_leaves_every_pixel_as_it_was() -> None:
    _, stage = _stage()
    frame = _draw(stage, 0.0, 0.0)
    still = np.clip(np.rint(_plate() @ [0.18259, 0.61423, 0.06201] + 16), 0, 255)
    assert np.abs(frame.y.astype(int) - still).max() <= 1


def test_a_field_moves_the_middle_by_its_pixels() -> None:
    _, stage = _stage()
    rest, moved = _draw(stage, 0.0, 0.0).y.astype(int), _draw(stage, 0.0, 1.0).y.astype(int)
    middle = np.s_[60:68, 92:100]
    shifted = rest[60:68, 82:90]
    assert np.abs(moved[middle] - shifted).max() <= 1
    lower = _draw(stage, 1.0, 0.0).y.astype(int)
    assert np.abs(lower[middle] - rest[50:58, 92:100]).max() <= 2


def test_luma_and_chroma_move_together() -> None:
    plate = np.full((128, 192, 3), 40.0, np.float32)
    plate[56:72, 88:104] = (250.0, 120.0, 20.0)
    grid = FieldGrid(REGION)
    stage = WarpStage(plate, grid, np.stack([grid.field(0, 0)]), np.stack([grid.field(8.0, 0.0)]))
    frame = _draw(stage, 0.0, 1.0)
    luma = np.flatnonzero(frame.y[64] > 80).mean()
    chroma = np.flatnonzero(frame.v[32] > 150).mean() * 2 + 0.5
    assert luma == pytest.approx(95.5 + 8.0, abs=0.6)
    assert chroma == pytest.approx(luma, abs=0.6)


def test_the_border_of_the_region_stays() -> None:
    _, stage = _stage()
    rest, moved = _draw(stage, 0.0, 0.0), _draw(stage, 1.0, 1.0)
    x, y, width, height = REGION
    for edge in (np.s_[y, :], np.s_[y + height - 1, :], np.s_[:, x], np.s_[:, x + width - 1]):
        assert np.array_equal(rest.y[edge], moved.y[edge])


def test_a_patch_shows_where_it_is_laid_and_moves_with_the_face() -> None:
    _, stage = _stage()
    white = Planes(
        np.full((8, 8), 235, np.uint8),
        np.full((4, 4), 128, np.uint8),
        np.full((4, 4), 128, np.uint8),
    )
    stage.lay(Patch(92, 60, white))
    assert (_draw(stage, 0.0, 0.0).y[60:68, 92:100] == 235).all()
    assert (_draw(stage, 0.0, 1.0).y[61:67, 103:109] > 225).all()


@pytest.mark.parametrize("region", [Rect(0, 0, 100, 96), Rect(1, 0, 128, 96), Rect(0, 0, 128, 90)])
def test_regions_that_do_not_fit_the_grid_are_refused(region: Rect) -> None:
    with pytest.raises(ValueError, match=r"multiples|even"):
        FieldGrid(region)


def test_a_region_beyond_the_plate_is_refused() -> None:
    grid = FieldGrid(Rect(96, 16, 128, 96))
    none = np.stack([grid.field(0.0, 0.0)])
    with pytest.raises(ValueError, match="leaves the plate"):
        WarpStage(_plate(), grid, none, none)


def test_light_is_added_by_the_weights_of_the_head_and_taken_back() -> None:
    plate = np.full((160, 160, 3), 120.0, np.float32)
    grid = FieldGrid(Rect(0, 0, 160, 160))
    # A head that shifts by 4 px in the middle, where the light on it falls by 20 levels.
    head = grid.field(4.0, 0.0)[None]
    light = (-20.0 * grid.window)[None].astype(np.float32)
    stage = WarpStage(plate, grid, np.zeros_like(head), head, light)
    none, frame = np.zeros(1, np.float32), I420Frame.empty(160, 160)
    shown = []
    for weight in (0.0, 1.0, 0.5, 0.0):
        stage.draw(none, np.array([weight], np.float32), frame)
        shown.append(int(frame.y[80, 80]))
        assert frame.y[0, 0] == frame.y[159, 159]
    assert shown[0] - shown[1] == 20
    assert shown[0] - shown[2] == 10
    assert shown[3] == shown[0]
