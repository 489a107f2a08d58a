"""What stands behind a face: a colour, a gradient, or a picture, sharp or out of focus."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import cv2
import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, model_validator

from renderers.warp.arrays import Array

_Colour = Annotated[str, Field(pattern=r"^#[0-9a-fA-F]{6}$")]

_SMALLEST_PX = 16
"""A picture with a shorter side than this is taken for a mistake."""


class BackdropError(ValueError):
    """A picture that cannot be used; the message says what to change."""


class Backdrop(BaseModel):
    """One of `colour`, `gradient` and `picture`.

    `gradient` is two colours or more, evenly spaced along the direction `angle` (degrees: 0 is
    from left to right, 90 from top to bottom). `picture` is a JPEG, PNG or WebP file in the
    avatar's folder; it fills the frame, its middle shown, and `blur` puts it out of focus
    (standard deviation of the blur in pixels of the frame).
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    colour: _Colour | None = None
    gradient: list[_Colour] | None = Field(default=None, min_length=2)
    picture: str | None = Field(default=None, min_length=1)
    angle: float = 90.0
    blur: float = Field(default=0.0, ge=0.0, le=200.0)

    @model_validator(mode="after")
    def _one_kind(self) -> Backdrop:
        kinds = [k for k in ("colour", "gradient", "picture") if getattr(self, k) is not None]
        if len(kinds) != 1:
            said = " and ".join(kinds) or "none of them"
            raise ValueError(f"give one of colour, gradient and picture; it has {said}")
        for name, kind in (("angle", "gradient"), ("blur", "picture")):
            if name in self.model_fields_set and kinds[0] != kind:
                raise ValueError(f"{name} goes with {kind}, not with {kinds[0]}")
        return self

    def paint(self, folder: Path, size: tuple[int, int]) -> Array:
        """RGB of shape (height, width, 3), float32, 0..255, for `size` (width, height).

        Raises `BackdropError`.
        """
        if self.picture is not None:
            return _blurred(_covering(_read(folder, self.picture), size), self.blur)
        colours = [self.colour] if self.colour is not None else self.gradient or []
        return _gradient([_rgb(colour) for colour in colours], self.angle, size)


def _rgb(colour: str) -> tuple[int, ...]:
    return tuple(int(colour[i : i + 2], 16) for i in (1, 3, 5))


def _gradient(colours: list[tuple[int, ...]], angle: float, size: tuple[int, int]) -> Array:
    width, height = size
    dx, dy = math.cos(math.radians(angle)), math.sin(math.radians(angle))
    x = (np.arange(width, dtype=np.float32) + 0.5 - width / 2)[None, :]
    y = (np.arange(height, dtype=np.float32) + 0.5 - height / 2)[:, None]
    # As in CSS: the line is just so long that the corners have the first and last colour.
    reach = (abs(width * dx) + abs(height * dy)) / 2
    along = (x * np.float32(dx) + y * np.float32(dy)) / np.float32(reach) * 0.5 + 0.5
    stops = np.linspace(0, 1, len(colours))
    planes = [np.interp(along, stops, values) for values in zip(*colours, strict=True)]
    return np.stack(planes, axis=-1).astype(np.float32)


def _read(folder: Path, name: str) -> NDArray[np.uint8]:
    path = (folder / name).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise BackdropError(f"background picture {name!r}: it must lie in the folder {folder}")
    try:
        data = path.read_bytes()
    except OSError as error:
        raise BackdropError(f"background picture {path}: {error.strerror}") from error
    try:
        picture = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR) if data else None
    except cv2.error:
        picture = None
    if picture is None:
        raise BackdropError(f"background picture {path}: not a JPEG, PNG or WebP picture")
    height, width = picture.shape[:2]
    if min(width, height) < _SMALLEST_PX:
        raise BackdropError(f"background picture {path}: {width}x{height} is too small")
    return np.asarray(picture[..., ::-1], np.uint8)


def _covering(picture: NDArray[np.uint8], size: tuple[int, int]) -> Array:
    """The largest middle part with the sides' ratio of `size`, at that size."""
    height, width = picture.shape[:2]
    share = min(width / size[0], height / size[1])
    part = max(1, round(size[0] * share)), max(1, round(size[1] * share))
    left, top = (width - part[0]) // 2, (height - part[1]) // 2
    cut = np.ascontiguousarray(picture[top : top + part[1], left : left + part[0]])
    way = cv2.INTER_AREA if share > 1 else cv2.INTER_CUBIC
    return np.asarray(cv2.resize(cut, size, interpolation=way), np.float32)


def _blurred(picture: Array, sigma_px: float) -> Array:
    if sigma_px <= 0:
        return picture
    # A wide blur is as smooth when made small, and costs a fraction.
    factor = max(1, int(sigma_px // 4))
    height, width = picture.shape[:2]
    small = (max(1, width // factor), max(1, height // factor))
    shrunk = cv2.resize(picture, small, interpolation=cv2.INTER_AREA)
    soft = cv2.GaussianBlur(shrunk, (0, 0), sigma_px / factor, borderType=cv2.BORDER_REPLICATE)
    large = cv2.resize(soft, (width, height), interpolation=cv2.INTER_CUBIC)
    return np.asarray(np.clip(large, 0, 255), np.float32)
