"""What was drawn once is not drawn again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from renderers.puppet import art as art_module
from renderers.puppet.art import Art

SVG = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 64 36" width="64" height="36">
<g id="ground"><rect width="64" height="36" fill="#204060"/></g>
<g id="dot"><circle cx="32" cy="18" r="9" fill="#f0c040" fill-opacity="0.5"/></g></svg>"""
BOX = (20.0, 6.0, 24.0, 24.0)


@pytest.fixture
def svg(tmp_path: Path) -> Path:
    path = tmp_path / "picture.svg"
    path.write_text(SVG)
    return path


def refuse(**_: object) -> bytes:
    raise AssertionError("drawn again")


def test_a_second_load_reads_what_the_first_drew(
    svg: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Art(svg, tmp_path / "kept").feature("dot", BOX, (48, 48))
    monkeypatch.setattr(art_module.resvg_py, "svg_to_bytes", refuse)
    second = Art(svg, tmp_path / "kept").feature("dot", BOX, (48, 48))
    np.testing.assert_array_equal(first, second)


def test_a_changed_picture_is_drawn_anew(svg: Path, tmp_path: Path) -> None:
    first = Art(svg, tmp_path / "kept").feature("dot", BOX, (48, 48))
    svg.write_text(SVG.replace("#f0c040", "#40c0f0"))
    second = Art(svg, tmp_path / "kept").feature("dot", BOX, (48, 48))
    assert np.abs(first - second).max() > 20


@pytest.mark.parametrize("rubbish", [b"", b"not a picture", None])
def test_a_damaged_or_unwritable_cache_costs_only_time(
    svg: Path, tmp_path: Path, rubbish: bytes | None
) -> None:
    plain = Art(svg).feature("dot", BOX, (48, 48))
    kept = tmp_path / "kept"
    if rubbish is None:
        kept.write_text("a file, where the folder should be")
    else:
        Art(svg, kept).feature("dot", BOX, (48, 48))
        for file in kept.iterdir():
            file.write_bytes(rubbish)
    np.testing.assert_array_equal(plain, Art(svg, kept).feature("dot", BOX, (48, 48)))
