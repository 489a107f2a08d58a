"""Avatar folders: who the avatars are, apart from how they are drawn.

assets/avatars/<name>/
    avatar.yaml    what `AvatarSpec` holds; `routes:` in `avatar_server.avatar_routes`
    persona.md     who it is, told to the language model
    facts.md       what it knows: passages separated by blank lines
    recorded.md    what it knows besides, or instead, where the conversation is recorded
    …              the renderer's own files (rig, pictures)
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import date
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from avatar_server.avatar_routes import RouteSpec, check_unique
from avatar_server.paths import assets_dir, data_dir

NAME_PATTERN = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")


class AvatarError(ValueError):
    """An avatar folder that cannot be used; the message says why."""


class VoiceSpec(BaseModel):
    """Which voice speaks, and what to use where it cannot be had."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    fallbacks: list[str] = []
    speed: float = Field(default=1.0, ge=0.5, le=2.0)
    pitch: dict[str, Annotated[float, Field(ge=0.7, le=1.5)]] = {}
    """How many times as high a voice speaks for this avatar than it was recorded, by the voice's
    name: so that one voice can stand in for several."""


class Consent(BaseModel):
    """Who said that the avatar may look like somebody, and when."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    statement: str = Field(min_length=1)
    confirmed_on: date


class AvatarSpec(BaseModel):
    """What `avatar.yaml` says, with persona and facts read from beside it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    title: str
    description: str = ""
    renderer: str = "puppet"
    language: str = "en"
    voice: VoiceSpec
    greeting: str = ""
    suggestions: list[str] = []
    acknowledgements: list[Annotated[str, Field(min_length=1, max_length=60)]] = []
    """Short remarks that cover the wait for a late answer; without any, the language's own."""
    seed: int = 1
    license: str | None = None
    """Of drawing and texts, as an SPDX identifier; None where avatar.yaml does not state one."""
    consent: Consent | None = None
    """Of avatars made of a photograph: that its maker has the right to use it."""
    options: dict[str, Any] = {}
    folder: Path
    persona: str = ""
    facts: list[str] = []
    recorded_facts: list[str] = []
    routes: list[RouteSpec] = []

    def as_json(self) -> dict[str, Any]:
        """All of it, for another process; `AvatarSpec.model_validate` reads it."""
        return self.model_dump(mode="json", exclude_unset=True)

    def when_recorded(self) -> AvatarSpec:
        """This avatar in a conversation that is recorded.

        A passage of `recorded.md` takes the place of the one in `facts.md` that begins with the
        same question.
        """
        replaced = {_question(passage) for passage in self.recorded_facts}
        kept = [passage for passage in self.facts if _question(passage) not in replaced]
        return self.model_copy(update={"facts": [*kept, *self.recorded_facts]})

    @field_validator("routes")
    @classmethod
    def _routes_differ(cls, routes: list[RouteSpec]) -> list[RouteSpec]:
        check_unique(routes)
        return routes


def load_avatar(folder: Path) -> AvatarSpec:
    """The avatar in `folder`; raises `AvatarError`."""
    name = folder.name
    if not NAME_PATTERN.fullmatch(name):
        raise AvatarError(f"avatar name {name!r}: use lower-case letters, digits and hyphens")
    try:
        values = yaml.safe_load((folder / "avatar.yaml").read_text(encoding="utf-8")) or {}
        persona = _text(folder / "persona.md")
        facts = _text(folder / "facts.md")
        recorded_facts = _text(folder / "recorded.md")
    except OSError as error:
        raise AvatarError(
            f"avatar {name}: cannot read {error.filename}: {error.strerror}"
        ) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise AvatarError(f"avatar {name}: {error}") from error
    if not isinstance(values, dict):
        raise AvatarError(f"avatar {name}: avatar.yaml must be a mapping")
    try:
        return AvatarSpec(
            **{**values, "name": name, "folder": folder},
            persona=persona,
            facts=split_facts(facts),
            recorded_facts=split_facts(recorded_facts),
        )
    except (ValidationError, TypeError) as error:
        raise AvatarError(f"avatar {name}: {error}") from error


def find_avatars(extra: Iterable[Path] = ()) -> dict[str, AvatarSpec]:
    """All avatars by name: shipped, then the user's own, then `extra`; later ones win.

    A broken folder raises `AvatarError`, so that a mistake is seen at start and not by a viewer.
    """
    found: dict[str, AvatarSpec] = {}
    for root in (assets_dir() / "avatars", data_dir() / "avatars", *extra):
        if not root.is_dir():
            continue
        for folder in sorted(root.iterdir()):
            if (folder / "avatar.yaml").is_file():
                found[folder.name] = load_avatar(folder)
    return found


def split_facts(text: str) -> list[str]:
    """Passages of a facts file: blocks between blank lines, without Markdown headings."""
    blocks = re.split(r"\n\s*\n", text.replace("\r\n", "\n"))
    passages = []
    for block in blocks:
        lines = [line.strip() for line in block.splitlines() if not line.startswith("#")]
        if passage := " ".join(line for line in lines if line):
            passages.append(passage)
    return passages


def _question(passage: str) -> str:
    return passage.partition("?")[0].strip().casefold()


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""
