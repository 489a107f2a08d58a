"""`rig.yaml`: where the parts of a drawn face are, and how far they move."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from renderers.backdrop import Backdrop

Point = tuple[float, float]
Colour = Annotated[str, Field(pattern=r"^#[0-9a-fA-F]{6}$")]


class RigError(ValueError):
    """A rig or picture that cannot be used; the message says what to change."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Box(_Part):
    """A rectangle in picture pixels; everything even, so that chroma lines up."""

    x: int = Field(multiple_of=2)
    y: int = Field(multiple_of=2)
    width: int = Field(multiple_of=2, gt=0)
    height: int = Field(multiple_of=2, gt=0)


class Head(_Part):
    """The head as a smooth bulge: `centre` and `radius` in pixels, `depth` of its front in pixels
    before the axis it turns about, `axis_depth` of its outline before that axis. `still` is the
    height at which the neck no longer follows the head. `light` is how much the light on it changes
    as it turns: 0 not at all, 1 as by one lamp in the dark."""

    centre: Point
    radius: Point
    depth: float = 130.0
    axis_depth: float = 36.0
    nose: Point
    nose_radius: Point = (44.0, 70.0)
    nose_depth: float = 34.0
    pivot: Point
    top: float
    chin: float
    still: float
    half_width: float
    light: float = Field(default=0.6, ge=0.0, le=1.0)


class Mouth(_Part):
    """The resting mouth: `centre` is the middle of the line between the lips. `fold` is how deep
    (0..1) a full smile folds the cheeks beside it."""

    box: Box
    centre: Point
    half_width: float = 54.0
    upper_thickness: float = 13.0
    lower_thickness: float = 17.0
    bow: float = 3.0
    rest_smile: float = 0.25
    jaw_px: float = 26.0
    fold: float = Field(default=0.48, ge=0.0, le=1.0)
    upper_lip: Colour
    lower_lip: Colour
    highlight: Colour
    line: Colour
    skin_shade: Colour
    tongue: Colour = "#c4655f"


class Eye(_Part):
    """One eye: corners, and how far its lids are from the line between them when open."""

    box: Box
    inner: Point
    outer: Point
    upper: float = 17.0
    lower: float = 9.0
    crease: float = 9.0
    iris_radius: float = 15.0


class Eyes(_Part):
    """Both eyes (as the viewer sees them) and what they share."""

    left: Eye
    right: Eye
    gaze_px: Point = (9.0, 6.0)
    lid: Colour
    lid_shade: Colour
    lid_light: Colour
    crease: Colour
    lash: Colour
    white: Colour = "#f3ece6"
    white_corner: Colour = "#d6968c"
    light: Point = (-5.0, -6.0)


class Brows(_Part):
    """Centres of the brows and how far they move, in pixels."""

    left: Point
    right: Point
    radius: Point = (58.0, 34.0)
    lift_px: float = 12.0


class Body(_Part):
    """How far breath and sway move the shoulders, in pixels."""

    shoulders: float
    breath_px: float = 4.0
    sway_px: float = 10.0


class Rig(_Part):
    """Everything in `rig.yaml`, in pixels of a picture of `picture` size.

    `background` stands in for the art's group of that name, if it has one.
    """

    picture: tuple[int, int] = (1280, 720)
    art: str = "character.svg"
    blurred: dict[str, Annotated[int, Field(ge=1, le=16)]] = {}
    background: Backdrop | None = None
    iris_box: tuple[float, float, float, float]
    region: Box
    head: Head
    mouth: Mouth
    eyes: Eyes
    brows: Brows
    body: Body
    sharpen: float = Field(default=0.35, ge=0.0, le=2.0)


def load_rig(folder: Path) -> Rig:
    """The rig in `folder`; raises `RigError`."""
    path = folder / "rig.yaml"
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
        return Rig.model_validate(values)
    except OSError as error:
        raise RigError(f"cannot read {path}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError, ValidationError) as error:
        raise RigError(f"{path}: {error}") from error


def rgb(colour: str) -> tuple[float, float, float]:
    """Red, green and blue, 0..255, of `#rrggbb`."""
    return tuple(float(int(colour[i : i + 2], 16)) for i in (1, 3, 5))  # type: ignore[return-value]
