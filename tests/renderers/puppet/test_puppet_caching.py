from __future__ import annotations

from renderers.contract import Pose, Viseme
from renderers.puppet.cache import PatchCache
from renderers.puppet.visemes import mouth_key, shape_of
from renderers.warp import Patch, Planes


def _patch() -> Patch:
    import numpy as np

    empty = np.zeros((2, 2), np.uint8)
    return Patch(0, 0, Planes(empty, empty[:1, :1], empty[:1, :1]))


def test_the_cache_keeps_what_was_used_last() -> None:
    cache, drawn = PatchCache(2), []
    for key in (1, 2, 1, 3, 1, 2):
        cache.get(key, lambda key=key: (drawn.append(key), _patch())[1])  # type: ignore[misc]
    assert drawn == [1, 2, 3, 2]
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
