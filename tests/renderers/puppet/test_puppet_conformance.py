from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from renderers.puppet import PuppetRenderer
from renderers.puppet import renderer as puppet
from renderers.testing import (
    CHECKS,
    MakeRenderer,
    check_allocation,
    check_determinism,
    check_dirty_rectangle,
    check_holding,
    drawing_cost,
    varied_poses,
)
from renderers.warp import fields

AVATARS = Path(__file__).parents[3] / "assets" / "avatars"
FOLDERS = sorted(path.parent for path in AVATARS.glob("*/rig.yaml"))


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("art")


@pytest.fixture(scope="module")
def make(kept: Path) -> MakeRenderer:
    return lambda: PuppetRenderer(FOLDERS[0], cache=kept)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
def test_every_puppet_keeps_the_contract(
    check: Callable[[MakeRenderer], None], folder: Path, kept: Path
) -> None:
    check(lambda: PuppetRenderer(folder, cache=kept))


def test_the_puppet_keeps_the_contract_where_nothing_is_drawn_ahead(
    make: MakeRenderer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(puppet, "drawn_ahead", lambda *_: [])
    for check in (check_determinism, check_dirty_rectangle, check_allocation):
        check(make)


def test_a_head_held_for_too_long_is_noticed(
    make: MakeRenderer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fields, "HOLD_PX", 2.0)
    with pytest.raises(AssertionError, match="drifting"):
        check_holding(make)


def test_a_cost_is_measured(make: MakeRenderer) -> None:
    cost = drawing_cost(make(), varied_poses(20))
    assert 0 < cost.p50_ms <= cost.p95_ms
