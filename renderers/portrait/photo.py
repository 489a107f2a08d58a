"""Reads a photograph that somebody else made: nothing is decoded before its size is known."""

from __future__ import annotations

import io
import warnings
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageCms, ImageOps

MAX_BYTES = 64 * 2**20
MAX_PIXELS = 60_000_000
"""Some 180 MB decoded. Cameras of today make 12 to 50 million."""
WORKING_PX = 2_400
"""Longer side of what is worked on: a 720p or 1080p face needs no more."""

FORMATS = ("JPEG", "PNG", "WEBP")


class PhotoError(ValueError):
    """A photograph that cannot become an avatar; the message says why and what to do."""


def read_photo(path: Path) -> NDArray[np.uint8]:
    """The picture in `path`, upright (EXIF orientation), sRGB: shape (height, width, 3).

    JPEG, PNG and WebP; the first frame of an animation. At most `WORKING_PX` on its longer side.
    Nothing besides the pixels (place, time, camera) is kept. Raises `PhotoError`.
    """
    try:
        size = path.stat().st_size
        if path.is_dir():
            raise PhotoError(f"{path} is a folder: name a JPEG, PNG or WebP picture.")
        if size > MAX_BYTES:
            raise PhotoError(
                f"{path} has {size / 2**20:,.0f} MiB, and {MAX_BYTES >> 20} are the limit: "
                "save it smaller."
            )
        data = path.read_bytes()
    except OSError as error:
        raise PhotoError(f"Cannot read {path}: {error.strerror}.") from error
    return decode_photo(data, str(path))


def decode_photo(data: bytes, name: str = "The file") -> NDArray[np.uint8]:
    """As `read_photo`, from the file's bytes; `name` is what messages call it."""
    with warnings.catch_warnings():
        # Its own bound on pixels only warns; ours is below it.
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        try:
            opened = Image.open(io.BytesIO(data), formats=FORMATS)
        except Image.DecompressionBombError as error:
            raise PhotoError(_too_large(name)) from error
        except (OSError, ValueError, SyntaxError) as error:
            raise PhotoError(f"{name} is not a JPEG, PNG or WebP picture.") from error
        with opened:
            if opened.width * opened.height > MAX_PIXELS:
                raise PhotoError(_too_large(name, opened.size))
            try:
                return _upright(opened)
            except (OSError, ValueError, SyntaxError, MemoryError, EOFError) as error:
                raise PhotoError(
                    f"{name} is damaged or incomplete and cannot be decoded: {error}."
                ) from error


def _upright(opened: Image.Image) -> NDArray[np.uint8]:
    # A JPEG can be decoded at a half, a quarter, an eighth of its size, in that much less time.
    opened.draft("RGB", (WORKING_PX, WORKING_PX))
    picture = ImageOps.exif_transpose(opened)
    picture = _srgb(picture)
    if picture.mode in ("RGBA", "LA", "PA") or "transparency" in picture.info:
        layer = picture.convert("RGBA")
        picture = Image.new("RGBA", layer.size, (128, 128, 128, 255))
        picture.alpha_composite(layer)
    picture = _eight_bits(picture).convert("RGB")
    picture.thumbnail((WORKING_PX, WORKING_PX), Image.Resampling.LANCZOS)
    return np.array(picture, np.uint8)


def _eight_bits(picture: Image.Image) -> Image.Image:
    if not picture.mode.startswith("I"):
        return picture
    # 16-bit grey: conversion would clip it, not scale it.
    levels = np.asarray(picture, np.float32) / 257.0
    return Image.fromarray(np.clip(levels, 0, 255).astype(np.uint8))


def _srgb(picture: Image.Image) -> Image.Image:
    """Colours as a screen shows them, where the picture states a profile that can be used."""
    profile = picture.info.get("icc_profile")
    if not profile or picture.mode not in ("RGB", "RGBA", "CMYK"):
        return picture
    try:
        source = ImageCms.ImageCmsProfile(io.BytesIO(profile))
        mode = "RGBA" if picture.mode == "RGBA" else "RGB"
        found = ImageCms.profileToProfile(
            picture, source, ImageCms.createProfile("sRGB"), outputMode=mode
        )
    except (ImageCms.PyCMSError, OSError, ValueError):
        return picture
    return picture if found is None else found


def _too_large(name: str, size: tuple[int, int] | None = None) -> str:
    of = f" ({size[0]}x{size[1]})" if size else ""
    return (
        f"{name} has too many pixels{of}: the limit is {MAX_PIXELS / 1e6:.0f} million. "
        "Save it smaller."
    )
