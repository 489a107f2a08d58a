"""A portrait's folder: `portrait.yaml`, the picture, the mesh, and where the person is.

portrait.yaml   what `PortraitSpec` holds
picture.png     the framed photograph, 16:9
mesh.npy        float32 (468, 3): MediaPipe's points in pixels of picture.png
person.png      grey: where a person is
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import cv2
import numpy as np
import yaml
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from renderers.portrait.landmarks import POINTS
from renderers.warp.arrays import Array

SPEC_FILE, PICTURE_FILE = "portrait.yaml", "picture.png"
MESH_FILE, PERSON_FILE = "mesh.npy", "person.png"


class PortraitError(ValueError):
    """A portrait's folder that cannot be used; the message says what to change."""


class PortraitSpec(BaseModel):
    """`portrait.yaml`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    mark: str = Field(default="AI-generated", max_length=60)
    """Written into a corner of the picture; empty for none."""
    movement: float = Field(default=1.0, ge=0.0, le=1.5)
    """How far the head moves, by what a photograph is thought to carry."""
    opening: float = Field(default=1.0, ge=0.3, le=1.3)
    """How far the mouth opens, likewise."""


class Portrait(NamedTuple):
    """`picture` RGB float32 (height, width, 3), 0..255; `points` (468, 3) in its pixels; `person`
    float32 (height, width), 0..1."""

    spec: PortraitSpec
    picture: Array
    points: Array
    person: Array


def load_portrait(folder: Path, size: tuple[int, int]) -> Portrait:
    """The portrait in `folder`, brought to `size` (width, height). Raises `PortraitError`."""
    try:
        values = yaml.safe_load((folder / SPEC_FILE).read_text(encoding="utf-8")) or {}
        spec = PortraitSpec.model_validate(values)
        points = np.load(folder / MESH_FILE, allow_pickle=False)
        picture = _read(folder / PICTURE_FILE, cv2.IMREAD_COLOR)
        person = _read(folder / PERSON_FILE, cv2.IMREAD_GRAYSCALE)
    except OSError as error:
        raise PortraitError(f"cannot read {error.filename}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError, ValidationError, ValueError, EOFError) as error:
        if isinstance(error, PortraitError):
            raise
        raise PortraitError(f"{folder}: {error}") from error
    if points.shape != (POINTS, 3) or not np.isfinite(points).all():
        raise PortraitError(f"{folder / MESH_FILE} is not a mesh of {POINTS} points")
    height, width = picture.shape[:2]
    if person.shape != (height, width):
        raise PortraitError(f"{PERSON_FILE} and {PICTURE_FILE} in {folder} differ in size")
    if abs(width * size[1] - height * size[0]) > max(width, height):
        raise PortraitError(
            f"{folder}: the picture is {width}x{height} and cannot be drawn at "
            f"{size[0]}x{size[1]}; set a video size of the same shape"
        )
    rgb: Array = picture[..., ::-1]
    where: Array = person
    if (width, height) != size:
        how = cv2.INTER_AREA if size[0] < width else cv2.INTER_CUBIC
        rgb = cv2.resize(np.ascontiguousarray(rgb), size, interpolation=how)
        where = cv2.resize(person, size, interpolation=cv2.INTER_AREA)
    return Portrait(
        spec,
        np.ascontiguousarray(rgb, np.float32),
        points.astype(np.float32) * np.float32(size[0] / width),
        where.astype(np.float32) / 255.0,
    )


def save_portrait(
    folder: Path,
    spec: PortraitSpec,
    picture: NDArray[np.uint8],
    points: Array,
    person: NDArray[np.uint8],
) -> None:
    """Write what `load_portrait` reads; `folder` is there. Raises `OSError`."""
    text = yaml.safe_dump(spec.model_dump(), sort_keys=False, allow_unicode=True)
    (folder / SPEC_FILE).write_text(text, encoding="utf-8")
    (folder / PICTURE_FILE).write_bytes(png(picture))
    (folder / PERSON_FILE).write_bytes(png(person))
    np.save(folder / MESH_FILE, points.astype(np.float32), allow_pickle=False)


def png(picture: NDArray[np.uint8]) -> bytes:
    """A PNG of RGB or grey pixels."""
    ok, data = cv2.imencode(".png", picture[..., ::-1] if picture.ndim == 3 else picture)
    if not ok:
        raise OSError("OpenCV could not write a PNG picture")
    return bytes(data)


def _read(path: Path, flags: int) -> NDArray[np.uint8]:
    picture = cv2.imdecode(np.frombuffer(path.read_bytes(), np.uint8), flags)
    if picture is None:
        raise PortraitError(f"{path} is not a picture")
    return np.asarray(picture, np.uint8)
