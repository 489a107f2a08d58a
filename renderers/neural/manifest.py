"""`neural.yaml`: a picture or clip, where the face is in it, and the network that moves it."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

NAME = "neural.yaml"


class NeuralError(ValueError):
    """An avatar folder or a network that cannot be used; the message says what to change."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class FaceBox(_Part):
    """The face from forehead to chin, in pixels of the picture as it is in its file."""

    x: float = Field(ge=0)
    y: float = Field(ge=0)
    width: float = Field(gt=0)
    height: float = Field(gt=0)


class Manifest(_Part):
    """What `neural.yaml` says; paths are relative to the folder, or absolute."""

    network: Path
    """An ONNX file."""
    picture: Path | None = None
    """A photograph,"""
    clip: Path | None = None
    """or a film, or a folder of pictures that are taken in the order of their names."""
    clip_fps: float = Field(default=25.0, gt=0, le=60)
    """Of a folder of pictures; a film knows its own."""
    loop: Literal["back-and-forth", "restart"] = "back-and-forth"
    """How a clip goes on at its end."""
    face: FaceBox | list[FaceBox]
    """Where the face is: once, or for each picture of a clip."""
    channels: Literal["bgr", "rgb"] = "bgr"
    """Order of colours that the network was trained with."""
    feather: float = Field(default=0.12, ge=0, le=0.4)
    """How softly the mouth's surroundings go over into the picture, as a share of the face."""
    lead_ms: float = Field(default=40.0, ge=0, le=120)
    """How far the mouth is ahead of the sound."""

    @model_validator(mode="after")
    def _one_source(self) -> Manifest:
        if (self.picture is None) == (self.clip is None):
            raise ValueError("give either 'picture' or 'clip'")
        if self.picture is not None and isinstance(self.face, list) and len(self.face) != 1:
            raise ValueError("a picture has one face box, not a list")
        return self


def load_manifest(folder: Path) -> Manifest:
    """The manifest in `folder`, with absolute paths; raises `NeuralError`."""
    path = folder / NAME
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
        manifest = Manifest.model_validate(values)
    except OSError as error:
        raise NeuralError(f"{path}: cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise NeuralError(f"{path}: {error}") from error
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(map(str, item['loc'])) or 'the file'}: {item['msg']}"
            for item in error.errors()
        )
        raise NeuralError(f"{path}: {problems}") from error
    found = {
        name: folder / value
        for name in ("network", "picture", "clip")
        if (value := getattr(manifest, name)) is not None
    }
    for name, value in found.items():
        if not value.exists():
            raise NeuralError(f"{path}: {name}: there is no {value}")
    return manifest.model_copy(update=found)
