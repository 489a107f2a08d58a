"""Reading photographs: what is refused, and that all kinds come out upright and in sRGB."""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from renderers.portrait.photo import (
    MAX_BYTES,
    WORKING_PX,
    PhotoError,
    decode_photo,
    read_photo,
)


def picture(width: int = 60, height: int = 40) -> Image.Image:
    """Red at the left, blue at the right."""
    image = Image.new("RGB", (width, height), (200, 30, 30))
    image.paste((30, 30, 200), (width // 2, 0, width, height))
    return image


def encoded(image: Image.Image, kind: str, **options: object) -> bytes:
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
def test_the_three_kinds_are_read(kind: str) -> None:
    rgb = decode_photo(encoded(picture(), kind))
    assert rgb.shape == (40, 60, 3)
    assert rgb[20, 5, 0] > 170 > 60 > rgb[20, 5, 2]
    assert rgb[20, 55, 2] > 170 > 60 > rgb[20, 55, 0]


def test_a_picture_is_turned_as_its_exif_orientation_says() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # To be turned clockwise by a quarter.
    rgb = decode_photo(encoded(picture(), "JPEG", exif=exif))
    assert rgb.shape == (60, 40, 3)
    assert rgb[5, 20, 0] > 170
    assert rgb[55, 20, 2] > 170


@pytest.mark.parametrize("mode", ["L", "P", "RGBA", "LA", "I;16", "1"])
def test_other_kinds_of_pixels_become_rgb(mode: str) -> None:
    if mode == "I;16":
        image = Image.fromarray(np.full((40, 60), 128 * 257, np.uint16))
    else:
        grey = Image.new("RGB", (60, 40), (128, 128, 128))
        image = grey.quantize() if mode == "P" else grey.convert(mode)
    rgb = decode_photo(encoded(image, "PNG"))
    assert rgb.shape == (40, 60, 3)
    assert mode == "1" or np.abs(rgb.astype(int) - 128).max() <= 2


def test_cmyk_becomes_rgb() -> None:
    rgb = decode_photo(encoded(picture().convert("CMYK"), "JPEG"))
    assert rgb[20, 5, 0] > rgb[20, 5, 2] + 80


def test_a_large_picture_is_brought_to_a_working_size() -> None:
    rgb = decode_photo(encoded(picture(5_000, 3_000), "JPEG"))
    assert max(rgb.shape) == WORKING_PX
    assert rgb.shape[0] / rgb.shape[1] == pytest.approx(0.6, abs=0.002)


def bomb(width: int, height: int) -> bytes:
    """A PNG that states a size and has no pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    pixels = zlib.compress(b"\0" * 100)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize("side", [8_000, 100_000])
def test_too_many_pixels_are_refused_by_the_header_alone(
    side: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def decode(*_: object) -> None:
        raise AssertionError("decoded")

    monkeypatch.setattr("renderers.portrait.photo._upright", decode)
    with pytest.raises(PhotoError, match="too many pixels"):
        decode_photo(bomb(side, side))


@pytest.mark.parametrize(
    "data",
    [b"", b"no picture", b"\xff\xd8\xff", b"GIF89a" + bytes(30), bomb(10, 10)[:20]],
    ids=["empty", "text", "a JPEG's first bytes", "another kind", "a PNG's first bytes"],
)
def test_what_is_no_picture_is_said_to_be_none(data: bytes) -> None:
    with pytest.raises(PhotoError, match="is not a JPEG, PNG or WebP picture"):
        decode_photo(data)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
def test_a_picture_that_ends_too_early_is_damaged(kind: str) -> None:
    noise = np.random.default_rng(1).integers(0, 255, (200, 200, 3), np.uint8)
    data = encoded(Image.fromarray(noise), kind)
    with pytest.raises(PhotoError, match=r"damaged or incomplete|is not a JPEG"):
        decode_photo(data[: len(data) // 2])


def test_a_missing_file_and_a_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(PhotoError, match=r"Cannot read .*none\.png: No such file"):
        read_photo(tmp_path / "none.png")
    with pytest.raises(PhotoError, match="is a folder"):
        read_photo(tmp_path)


def test_a_file_too_large_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "large.png"
    with path.open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    with pytest.raises(PhotoError, match="MiB"):
        read_photo(path)
