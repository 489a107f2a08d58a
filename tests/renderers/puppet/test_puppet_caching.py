from __future__ import annotations

from renderers.contract import Pose, Viseme
from renderers.puppet.cache import PatchCache
from renderers.puppet.visemes import mouth_key, shape_of
from renderers.warp import Patch, Planes


def _patch() -> Patch:
    import numpy as np

    empty = np.zeros((2, 2), np.uint8)
    return Patch(0, 0, Planes(empty, empty[:1, :1], empty[:1, :1]))


def _asked(cache: PatchCache, keys: list[tuple[int, ...]]) -> tuple[list[object], list[object]]:
    """What was answered, and what had to be drawn for it."""
    drawn: list[object] = []

    def draw(key: tuple[int, ...]) -> Patch:
        drawn.append(key)
        return _patch()

    return [cache.get(key, draw)[0] for key in keys], drawn


def test_the_cache_keeps_what_was_used_last() -> None:
    cache = PatchCache(2, (0.5,))
    answers, drawn = _asked(cache, [(1,), (2,), (1,), (3,), (1,), (2,)])
    assert answers == [(1,), (2,), (1,), (3,), (1,), (2,)]
    assert drawn == [(1,), (2,), (3,), (2,)]
    assert len(cache) == 2


def test_the_nearest_drawing_within_the_tolerance_is_taken() -> None:
    cache = PatchCache(8, (2.0, 1.0))
    answers, drawn = _asked(cache, [(10, 5), (14, 5), (13, 5), (11, 6), (11, 7)])
    assert answers == [(10, 5), (14, 5), (14, 5), (10, 5), (11, 7)]
    assert drawn == [(10, 5), (14, 5), (11, 7)]


def test_a_drawing_of_zero_stands_only_for_zero() -> None:
    cache = PatchCache(8, (1.0, 1.0), zero_is_apart=(0,))
    answers, _ = _asked(cache, [(0, 3), (1, 3), (0, 4), (2, 3)])
    assert answers == [(0, 3), (1, 3), (0, 3), (1, 3)]


def test_a_cleared_cache_draws_again() -> None:
    cache = PatchCache(8, (1.0,))
    _asked(cache, [(1,), (5,)])
    cache.clear()
    assert len(cache) == 0
    assert _asked(cache, [(5,)])[1] == [(5,)]


def test_what_was_drawn_ahead_is_never_dropped() -> None:
    cache = PatchCache(1, (0.5,), ahead=[((7,), _patch())])
    _, drawn = _asked(cache, [(7,), (1,), (2,), (7,), (3,), (7,)])
    assert drawn == [(1,), (2,), (3,)]
    assert len(cache) == 2


def test_nearly_equal_mouths_share_a_drawing() -> None:
    one, other = Pose(), Pose()
    one.visemes[Viseme.AA], other.visemes[Viseme.AA] = 0.5, 0.502
    assert mouth_key(one) == mouth_key(other)


def test_weights_that_sum_to_more_than_one_are_scaled() -> None:
    one, other = Pose(), Pose()
    one.visemes[Viseme.AA] = 1.0
    other.visemes[:] = 0.0
    other.visemes[Viseme.AA] = 1.0
    other.visemes[Viseme.SIL] = 1.0
    assert shape_of(mouth_key(other)).gap < 0.6 * shape_of(mouth_key(one)).gap
