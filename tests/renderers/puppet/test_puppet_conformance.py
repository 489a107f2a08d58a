from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from renderers.contract import Renderer
from renderers.puppet import PuppetRenderer
from renderers.testing import (
    check_bounded_memory,
    check_determinism,
    check_dirty_rectangle,
    check_extremes,
    check_fills_whole_frame,
)

FIRST = sorted((Path(__file__).parents[3] / "assets" / "avatars").glob("*/rig.yaml"))[0].parent


def make() -> Renderer:
    return PuppetRenderer(FIRST)


@pytest.mark.parametrize(
    "check",
    [
        check_fills_whole_frame,
        check_determinism,
        check_dirty_rectangle,
        check_extremes,
        check_bounded_memory,
    ],
    ids=lambda check: check.__name__.removeprefix("check_"),
)
def test_the_puppet_keeps_the_contract(
    check: Callable[[Callable[[], Renderer]], None],
) -> None:
    check(make)
