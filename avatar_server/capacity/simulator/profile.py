"""Profiles: what the stages of a turn cost on a host, each number with where it comes from."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from avatar_server.paths import configs_dir


class ProfileError(ValueError):
    """A profile that cannot be used; the message says why."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    source: str = Field(min_length=3)
    """Where the numbers come from: published, or how they were measured."""


class DeviceCost(_Part):
    """Hardware that stages share. Steps that run at once share its capacity equally."""

    capacity: float = Field(gt=0)
    """Steps that run at full speed at once: cores, or 1 for a GPU."""
    places: int = Field(ge=1)
    """Steps that the scheduler lets run at once."""


class StageCostOf(_Part):
    """What a step costs: `fixed_ms` + `per_unit_ms` * size, of the device alone."""

    device: str
    fixed_ms: float = Field(ge=0)
    per_unit_ms: float = Field(default=0, ge=0)
    """Of a second of speech (stt), of a character (tts_first), of a second of sound (tts_next)."""
    batch: int = Field(default=1, ge=1)
    """Jobs that may share a step."""
    spread: float = Field(default=0.15, ge=0, lt=2)
    """Standard deviation of the logarithm of what a step takes."""


class LlmCost(_Part):
    """A language model that batches by itself, a step at a time (continuous batching)."""

    device: str
    read_ms_per_token: float = Field(ge=0)
    """Of a prompt that no cache holds."""
    read_tokens: int = Field(ge=1)
    """Of prompts read in one step."""
    step_ms: float = Field(ge=0)
    """A step that decodes a token of one sequence."""
    step_ms_per_sequence: float = Field(default=0, ge=0)
    """More for each further sequence."""
    sequences: int = Field(default=32, ge=1)
    """Sequences at once."""


class FrameCost(_Part):
    """Drawing and encoding, `fps` times a second for each session."""

    fps: float = Field(default=30, gt=0)
    draw_device: Literal["own", "gpu"] = "own"
    """`own`: in the session's process, on the CPU, before all inference; `gpu`: in a batch."""
    draw_ms: float = Field(ge=0)
    """One speaking face, or the first of a batch."""
    draw_ms_per_face: float = Field(default=0, ge=0)
    """Each further face of a batch."""
    encode_ms: float = Field(ge=0)
    """One frame of a speaking face, on the CPU."""
    idle_ms: float = Field(ge=0)
    """Drawing and encoding a frame at rest, on the CPU."""
    session_cores: float = Field(default=0.06, ge=0)
    """Packets, encryption, listening: what a session takes all the time."""


class TurnCourse(_Part):
    """What ends a turn, and what lies between the server and the ear."""

    notice_ms: float = 40
    """From a sample of the viewer's until voice activity of it is known: a frame of 32 ms, and the
    way through the server."""
    pause_ms: float = 200
    end_ms: float = 300
    max_pause_ms: float = 1_200
    playout_ms: float = 60
    """From a piece of sound to the viewer's ear, and from their mouth to the server."""
    gateway_cores: float = 0.05


class Profile(BaseModel):
    """A host and its models. Sizes and units are those of the cost model (see the design, 5)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    title: str
    budget_ms: float = Field(gt=0)
    devices: dict[str, DeviceCost]
    turn: TurnCourse
    stt: StageCostOf
    endpoint: StageCostOf
    retrieve: StageCostOf
    tts_first: StageCostOf
    tts_next: StageCostOf
    llm: LlmCost
    frames: FrameCost
    piece_s: float = Field(default=0.3, gt=0)
    """Sound in one piece of speech."""
    other_cores: float = Field(default=0, ge=0)
    """CPU taken by others, such as a load test on the same machine, for each session."""

    @model_validator(mode="after")
    def _known_devices(self) -> Profile:
        used = {s.device for s in (self.stt, self.endpoint, self.retrieve, self.tts_first)}
        for device in sorted(used | {self.tts_next.device, self.llm.device, "cpu"}):
            if device not in self.devices and device != "remote":
                raise ValueError(f"device {device!r} is used and not described in devices")
        if self.tts_first.device != self.tts_next.device:
            raise ValueError("tts_first and tts_next must be on one device")
        if self.frames.draw_device == "gpu" and "gpu" not in self.devices:
            raise ValueError("frames.draw_device is 'gpu' and there is no device gpu")
        return self


def load_profile(source: Path | str) -> Profile:
    """A profile by the name of a shipped one ("cpu2", "h100", …), or a file.

    Raises `ProfileError`.
    """
    path = Path(source).expanduser()
    if not path.is_file():
        folder = configs_dir() / "profiles"
        path = folder / f"{source}.yaml"
        if not path.is_file():
            names = ", ".join(sorted(p.stem for p in folder.glob("*.yaml")))
            raise ProfileError(f"no profile {str(source)!r}: give a file, or one of {names}")
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ProfileError(f"cannot read {path}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ProfileError(f"{path} is not YAML: {error}") from error
    return parse_profile(values, str(path))


def parse_profile(values: Any, name: str) -> Profile:
    """`values` as a profile; `name` is for the message of `ProfileError`."""
    if not isinstance(values, dict):
        raise ProfileError(f"{name} must be a mapping, found {type(values).__name__}")
    try:
        return Profile(**values)
    except (ValidationError, TypeError) as error:
        if not isinstance(error, ValidationError):
            raise ProfileError(f"{name}: {error}") from error
        lines = [f"{name} is no profile:"]
        for item in error.errors():
            key = ".".join(str(part) for part in item["loc"]) or "(all)"
            lines.append(f"  {key}: {item['msg']}")
        raise ProfileError("\n".join(lines)) from error
