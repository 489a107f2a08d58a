from __future__ import annotations

from pathlib import Path

import pytest

from renderers.puppet import PuppetRenderer, RigError
from renderers.puppet.art import Art
from renderers.puppet.rig import load_rig

SVG = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 8 8">{}</svg>'


def test_a_missing_rig_is_named(tmp_path: Path) -> None:
    with pytest.raises(RigError, match=r"rig\.yaml"):
        PuppetRenderer(tmp_path)


def test_a_misspelt_key_is_named(tmp_path: Path) -> None:
    (tmp_path / "rig.yaml").write_text("regoin: {}\n")
    with pytest.raises(RigError, match="regoin"):
        load_rig(tmp_path)


def test_a_missing_group_lists_those_there_are(tmp_path: Path) -> None:
    path = tmp_path / "a.svg"
    path.write_text(SVG.format('<g id="face"/><g id="hair"/>'))
    with pytest.raises(RigError, match="face, hair"):
        Art(path).feature("iris", (0, 0, 8, 8), (8, 8))


def test_broken_svg_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "a.svg"
    path.write_text("<svg><g></svg>")
    with pytest.raises(RigError, match="well-formed"):
        Art(path)


def test_features_are_left_out_of_the_plate_and_premultiplied(tmp_path: Path) -> None:
    path = tmp_path / "a.svg"
    path.write_text(
        SVG.format(
            '<g id="back"><rect width="8" height="8" fill="#ff0000"/></g>'
            '<g id="iris" display="none"><rect width="8" height="8" fill="#00ff00" '
            'fill-opacity="0.5"/></g>'
        )
    )
    art = Art(path)
    assert art.all_but(("iris",), (8, 8), {})[4, 4].tolist() == [255, 0, 0, 1]
    red, green, blue, alpha = art.feature("iris", (0, 0, 8, 8), (8, 8))[4, 4]
    assert (red, blue) == (0, 0)
    assert alpha == pytest.approx(0.5, abs=0.01)
    assert green == pytest.approx(127.5, abs=1)
