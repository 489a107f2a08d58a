"""The drawing benchmark, short and without a voice: the figures are there and hang together."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from avatar_server.avatars import find_avatars, load_avatar
from avatar_server.bench.render import Spoken, bench_render, print_table
from avatar_server.cli import app
from avatar_server.config import VideoSettings
from renderers import Viseme, VisemeSpan
from tests.renderers.neural.tiny_network import write_avatar


def _sentence() -> Spoken:
    visemes = [Viseme.PP, Viseme.AA, Viseme.SS, Viseme.OU, Viseme.SIL]
    spans = [VisemeSpan(v, n * 0.12, (n + 1) * 0.12) for n, v in enumerate(visemes)]
    return Spoken(0.6, spans, np.full(60, 0.1, np.float32))


def test_each_avatar_has_figures_for_what_it_does() -> None:
    avatars = dict(list(find_avatars().items())[:2])
    told: list[str] = []
    figures = bench_render(
        avatars, VideoSettings(), seconds=1.0, spoken=[_sentence()] * 2, progress=told.append
    )
    assert set(figures["avatars"]) == set(avatars)
    assert len(told) == len(avatars)
    for costs in figures["avatars"].values():
        assert list(costs) == ["idle_ms", "listening_ms", "speaking_ms"]
        assert all(0 < cost["p50"] <= cost["p95"] for cost in costs.values())
    assert figures["speech_s"] == 1.2
    assert (figures["width"], figures["height"]) == (1280, 720)
    assert figures["reference_ms"]["p50"] > 0
    print_table(figures)


def test_a_face_that_is_drawn_from_sound_is_measured_with_sound(tmp_path: Path) -> None:
    noise = np.random.default_rng(1).standard_normal(28_800) * 4_000
    sentence = _sentence()._replace(pcm=noise.astype(np.int16))
    spec = load_avatar(write_avatar(tmp_path / "tester"))
    figures = bench_render({"tester": spec}, VideoSettings(), seconds=0.5, spoken=[sentence] * 2)
    costs = figures["avatars"]["tester"]
    # Its spectrogram, and a face laid over the picture: several times as much as the picture.
    assert costs["speaking_ms"]["p50"] > 2 * costs["idle_ms"]["p50"]


@pytest.mark.parametrize("names", [["nobody"], ["theo", "nobody"]])
def test_an_unknown_avatar_is_wrong_use(names: list[str]) -> None:
    options = [part for name in names for part in ("--avatar", name)]
    result = CliRunner().invoke(app, ["bench", "render", *options])
    assert result.exit_code == 2
    assert "no avatar 'nobody'. There are: " in result.output
