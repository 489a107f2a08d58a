"""What the browser benchmark says where it cannot run, and the time it draws."""

from __future__ import annotations

import sys
from pathlib import Path

import av
import numpy as np
import pytest
from aiortc.codecs.h264 import h264_depayload
from typer.testing import CliRunner

from avatar_server import cli
from avatar_server.avatar.encoder import H264Encoder
from avatar_server.bench.stamp import BITS, CELL_PX, check, stamp
from avatar_server.config import VideoSettings
from renderers.contract import I420Frame


def test_a_missing_browser_is_told_with_what_to_install() -> None:
    result = CliRunner().invoke(cli.app, ["bench", "browser", "--browser", "/no/such/browser"])
    assert result.exit_code == 2
    assert "there is no /no/such/browser here: install Chromium" in result.output


def test_missing_playwright_is_told_with_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in [name for name in sys.modules if name.startswith("playwright")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "playwright", None)
    browser = tmp_path / "chromium"
    browser.write_text("#!/bin/sh\n")
    browser.chmod(0o755)
    result = CliRunner().invoke(cli.app, ["bench", "browser", "--browser", str(browser)])
    assert result.exit_code == 2
    assert "pip install 'avatar-server[test]'" in result.output


def test_a_path_that_does_not_exist_is_told() -> None:
    result = CliRunner().invoke(cli.app, ["bench", "browser", "--path", "theirs"])
    assert result.exit_code == 2
    assert "choose of ours, stock-vp8, stock-h264" in result.output


def read(luma: np.ndarray) -> int | None:
    row = luma[CELL_PX // 2, CELL_PX // 2 : BITS * CELL_PX : CELL_PX] > 128
    word = int("".join("1" if bit else "0" for bit in row), 2)
    ms = word >> 8
    return ms if check(ms) == word & 0xFF else None


@pytest.mark.parametrize("at", [0.0, 12_345.678, 1_764_590_000.123])
def test_the_time_drawn_into_a_picture_is_read_from_the_decoded_one(at: float) -> None:
    frame = I420Frame.empty(640, 360)
    frame.data[:] = np.random.default_rng(1).integers(16, 235, frame.data.shape, np.uint8)
    assert read(frame.y) is None
    stamp(frame.y, at)
    encoded = H264Encoder(VideoSettings(width=640, height=360, crf=40)).encode(frame, 0, True)
    decoder = av.CodecContext.create("h264", "r")
    decoder.thread_count = 1
    stream = b"".join(map(h264_depayload, encoded.payloads))
    pictures = decoder.decode(av.Packet(stream)) + decoder.decode(None)
    assert read(pictures[0].to_ndarray()) == int(at * 1e3) & 0xFFFFFF


def test_the_time_is_drawn_into_rgb_as_well() -> None:
    pixels = np.zeros((64, 640, 3), np.uint8)
    stamp(pixels, 99.5)
    assert read(pixels[:, :, 1]) == 99_500
    assert not pixels[CELL_PX:].any()
