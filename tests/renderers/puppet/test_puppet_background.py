"""A puppet before another background, and before none."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from renderers.contract import Pose
from renderers.preview import draw_rgb
from renderers.puppet import PuppetRenderer, RigError
from renderers.testing import check_cutout

VOX = Path(__file__).parents[3] / "assets" / "avatars" / "vox"
"""The one that is drawn quickest."""


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("art")


def before(folder: Path, background: dict[str, Any]) -> Path:
    shutil.copytree(VOX, folder)
    rig = yaml.safe_load((folder / "rig.yaml").read_text(encoding="utf-8"))
    rig["background"] = background
    (folder / "rig.yaml").write_text(yaml.safe_dump(rig), encoding="utf-8")
    return folder


def test_the_drawn_background_gives_way_to_the_rigs(tmp_path: Path, kept: Path) -> None:
    folder = before(tmp_path / "vox", {"colour": "#204060"})
    picture = draw_rgb(PuppetRenderer(folder, cache=kept), Pose())
    drawn = draw_rgb(PuppetRenderer(VOX, cache=kept), Pose())
    assert np.abs(picture[100, 100].astype(int) - (0x20, 0x40, 0x60)).max() <= 2
    face = np.s_[200:260, 600:680]
    assert np.abs(picture[face].astype(int) - drawn[face]).max() <= 2


def test_a_background_that_cannot_be_used_names_the_rig(tmp_path: Path, kept: Path) -> None:
    with pytest.raises(RigError, match=r"rig\.yaml.*wall\.jpg: No such file"):
        PuppetRenderer(before(tmp_path / "a", {"picture": "wall.jpg"}), cache=kept)
    with pytest.raises(RigError, match="give one of colour, gradient and picture"):
        PuppetRenderer(before(tmp_path / "b", {"blur": 3}), cache=kept)


def test_a_puppet_without_background_keeps_the_contract_for_it(kept: Path) -> None:
    check_cutout(lambda: PuppetRenderer(VOX, cache=kept, transparent=True))


def test_edges_laid_over_a_colour_have_nothing_of_another_background(
    tmp_path: Path, kept: Path
) -> None:
    """The face cut out and laid over a colour is the face drawn before that colour."""
    folder = before(tmp_path / "vox", {"colour": "#30c040"})
    expected = draw_rgb(PuppetRenderer(folder, cache=kept), Pose(yaw=5.0)).astype(np.float32)
    rgba = PuppetRenderer(VOX, cache=kept, transparent=True).draw_rgba(Pose(yaw=5.0))
    alpha = rgba[..., 3:].astype(np.float32) / 255
    over = rgba[..., :3] * alpha + np.array([0x30, 0xC0, 0x40]) * (1 - alpha)
    off = np.abs(over - expected).max(axis=-1)
    # Colour has half the resolution, so a thin line may be off beside a saturated background.
    assert np.percentile(off, 99) <= 4
    assert off.mean() < 1


def test_who_was_built_with_a_background_cannot_be_cut_out(kept: Path) -> None:
    with pytest.raises(ValueError, match="transparent=True"):
        PuppetRenderer(VOX, cache=kept).draw_rgba(Pose())
