"""Four pixels at a time show what one at a time would."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from renderers.contract import Rect
from renderers.warp import Planes
from renderers.warp.quads import CELL_PX, QuadSampler

CELLS = (8, 12)
WIDTH, HEIGHT = CELLS[1] * CELL_PX, CELLS[0] * CELL_PX


def _planes(seed: int) -> Planes:
    rng = np.random.default_rng(seed)
    noise = [rng.integers(16, 235, (HEIGHT >> h, WIDTH >> h), np.uint8) for h in (0, 1, 1)]
    return Planes(*(cv2.GaussianBlur(plane, (0, 0), 1.5) for plane in noise))


def _position(dx: float, dy: float, stretch: float = 0.0) -> np.ndarray:
    rows, columns = CELLS[0] + 2, CELLS[1] + 2
    x = np.arange(columns) * CELL_PX - CELL_PX + (CELL_PX - 1) / 2
    y = np.arange(rows) * CELL_PX - CELL_PX + (CELL_PX - 1) / 2
    position = np.array(np.meshgrid(x, y), np.float32)
    middle = np.array([WIDTH / 2, HEIGHT / 2], np.float32)[:, None, None]
    shift = np.array([dx, dy], np.float32)[:, None, None]
    return position + shift + stretch * (position - middle)


def _sampler(face: Planes) -> tuple[QuadSampler, Planes]:
    target = Planes(*(np.zeros_like(plane) for plane in face))
    return QuadSampler(face, target, (CELLS[0] + 2, CELLS[1] + 2), CELLS[0]), target


@pytest.mark.parametrize(("dx", "dy"), [(0.0, 0.0), (2.5, -1.25), (-3.0, 4.0), (0.5, 0.25)])
def test_a_shift_is_that_of_each_pixel(dx: float, dy: float) -> None:
    face = _planes(1)
    sampler, target = _sampler(face)
    sampler.aim(_position(dx, dy))
    sampler.sample(0, CELLS[0], 0, CELLS[1])
    for plane, drawn, scale in zip(face, target, (1.0, 0.5, 0.5), strict=True):
        matrix = np.array([[1, 0, dx * scale], [0, 1, dy * scale]])
        size = (plane.shape[1], plane.shape[0])
        flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
        expected = cv2.warpAffine(plane, matrix, size, flags=flags, borderMode=cv2.BORDER_REPLICATE)
        inner = np.s_[4:-4, 4:-4]
        assert np.abs(drawn[inner].astype(int) - expected[inner]).max() <= 2


def test_only_the_cells_asked_for_are_filled() -> None:
    sampler, target = _sampler(_planes(2))
    sampler.aim(_position(1.5, 0.5))
    sampler.sample(2, 5, 3, 7)
    for plane, cell in zip(target, (8, 4, 4), strict=True):
        filled = np.zeros(plane.shape, np.bool_)
        filled[2 * cell : 5 * cell, 3 * cell : 7 * cell] = True
        assert (plane[filled] >= 14).all()
        assert not plane[~filled].any()


def test_in_a_gentle_stretch_squares_are_hardly_off_and_pixels_are_exact() -> None:
    ramp = np.broadcast_to(np.linspace(20, 230, WIDTH, dtype=np.float32), (HEIGHT, WIDTH))
    face = Planes(np.rint(ramp).astype(np.uint8), *_planes(3)[1:])
    sampler, target = _sampler(face)
    position = _position(0.0, 0.0, stretch=-0.15)
    sampler.aim(position)
    sampler.sample(0, CELLS[0], 0, CELLS[1])
    x = np.arange(WIDTH)
    expected = np.interp(x + -0.15 * (x - WIDTH / 2), x, face.y[0].astype(float))
    inner = np.s_[8:-8, 8:-8]
    assert np.abs(target.y - expected)[inner].max() <= 1.5
    sampler.sample_luma(0, CELLS[0], 0, CELLS[1])
    assert np.abs(target.y - expected)[inner].max() <= 1.01


def test_a_patch_is_sampled_as_if_it_had_always_been_there() -> None:
    before, after = _planes(4), _planes(5)
    patched = Planes(*(plane.copy() for plane in before))
    cut = Rect(10, 6, 40, 20)
    for plane, new, half in zip(patched, after, (0, 1, 1), strict=True):
        part = np.s_[6 >> half : 26 >> half, 10 >> half : 50 >> half]
        plane[part] = new[part]
    halves = np.s_[3:13, 5:25]
    patch = Planes(after.y[6:26, 10:50], after.u[halves], after.v[halves])
    sampler, target = _sampler(before)
    changed = sampler.lay(cut.x, cut.y, patch)
    expected_sampler, expected = _sampler(patched)
    for each in (sampler, expected_sampler):
        each.aim(_position(1.25, -0.75))
        each.sample(0, CELLS[0], 0, CELLS[1])
    assert changed == cut
    for one, other in zip(target, expected, strict=True):
        assert np.abs(one.astype(int) - other).max() <= 1


def test_laying_what_lies_there_changes_nothing_and_a_part_changes_that_part() -> None:
    face = _planes(6)
    sampler, _ = _sampler(face)
    same = Planes(face.y[8:24, 16:40].copy(), face.u[4:12, 8:20].copy(), face.v[4:12, 8:20].copy())
    assert sampler.lay(16, 8, same).empty
    same.y[4:6, 10:13] ^= 128
    assert sampler.lay(16, 8, same) == Rect(26, 12, 4, 2)


@pytest.mark.parametrize("corner", [(0, 0), (WIDTH - 16, HEIGHT - 16)])
def test_patches_at_the_border_are_laid(corner: tuple[int, int]) -> None:
    sampler, target = _sampler(_planes(7))
    white = Planes(*(np.full((16 >> h, 16 >> h), 235, np.uint8) for h in (0, 1, 1)))
    sampler.lay(*corner, white)
    sampler.aim(_position(0.0, 0.0))
    sampler.sample(0, CELLS[0], 0, CELLS[1])
    x, y = corner
    assert (target.y[y : y + 16, x : x + 16] == 235).all()
    assert (target.v[y // 2 : y // 2 + 8, x // 2 : x // 2 + 8] == 235).all()
