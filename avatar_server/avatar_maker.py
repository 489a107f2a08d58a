"""Makes an avatar of a photograph and puts it among the user's own."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import yaml

from avatar_server.avatars import NAME_PATTERN, load_avatar
from avatar_server.inference.tts.build import PIPER_VOICE
from avatar_server.models import ModelStore
from avatar_server.models.progress import Progress
from avatar_server.paths import assets_dir, data_dir

MODEL = "face-mesh"
PREVIEW_PICTURE, PREVIEW_FILM = "preview.png", "preview.mp4"

STATEMENT = (
    "The maker of this avatar confirmed to have the right to use the picture, and the consent of "
    "the person it shows to being animated and given a voice."
)

_KOKORO_VOICE = re.compile(r"[a-z][fm]_[a-z]+")


@dataclass(frozen=True, kw_only=True)
class Order:
    """What to make. `persona` and `facts` are texts; empty ones are written for it."""

    photo: Path
    name: str
    voice: str
    title: str = ""
    persona: str = ""
    facts: str = ""
    language: str = "en"
    license: str | None = None
    mark: str = "AI-generated"
    force: bool = False


class NotMade(Exception):
    """An order that cannot be carried out as it was given; the message says what to change."""


def check_order(order: Order) -> None:
    """What can be said before looking at the picture. Raises `NotMade`."""
    if not NAME_PATTERN.fullmatch(order.name):
        raise NotMade(
            f"--name {order.name!r}: use lower-case letters, digits and hyphens, up to 64."
        )
    if order.voice != PIPER_VOICE and not _KOKORO_VOICE.fullmatch(order.voice):
        raise NotMade(
            f"There is no voice {order.voice!r}. There are {PIPER_VOICE} and Kokoro's, like "
            "af_heart, am_michael, bf_emma or bm_george."
        )
    shipped = (assets_dir() / "avatars" / order.name).is_dir()
    if (shipped or _home(order.name).exists()) and not order.force:
        raise NotMade(
            f"There is an avatar {order.name} already. Choose another --name, or replace it with "
            "--force."
        )


def make_avatar(
    order: Order,
    *,
    tell: Callable[[str], None],
    progress: Progress | None = None,
    store: ModelStore | None = None,
) -> Path:
    """Make the avatar; the folder it is in.

    `tell` is given what could be better about the picture. The consent that the avatar carries
    must have been asked for. Raises `NotMade`, `ModelError`, and `PhotoError` for a picture that
    will not do.
    """
    check_order(order)
    # OpenCV, the renderers and Pillow are for this command only.
    from renderers.portrait import PortraitRenderer, preview
    from renderers.portrait.checks import measure, remarks, the_face
    from renderers.portrait.compose import compose
    from renderers.portrait.landmarks import FaceFinder
    from renderers.portrait.photo import read_photo
    from renderers.portrait.rig import PortraitSpec, save_portrait

    photo = read_photo(order.photo)
    models = (store or ModelStore()).path(MODEL, progress)
    face = the_face(photo, FaceFinder(models).find(photo))
    for remark in remarks(measure(photo, face)):
        tell(remark)
    scene = compose(photo, face, models)
    root = data_dir()
    try:
        root.mkdir(parents=True, exist_ok=True)
        # Beside the avatars, not among them: a server that starts meanwhile must not find half.
        with tempfile.TemporaryDirectory(prefix=".making-", dir=root) as scratch:
            folder = Path(scratch) / order.name
            folder.mkdir()
            spec = PortraitSpec(mark=order.mark)
            save_portrait(folder, spec, scene.picture, scene.points, scene.person)
            _write_texts(folder, order)
            renderer = PortraitRenderer(folder)
            try:
                (folder / PREVIEW_PICTURE).write_bytes(preview.strip(renderer))
                (folder / PREVIEW_FILM).write_bytes(preview.film(renderer))
            finally:
                renderer.close()
            load_avatar(folder)
            return _put_in_place(folder, Path(scratch) / "before")
    except OSError as error:
        raise NotMade(f"Cannot write to {root}: {error.strerror or error}.") from error


def _home(name: str) -> Path:
    return data_dir() / "avatars" / name


def _put_in_place(folder: Path, before: Path) -> Path:
    home = _home(folder.name)
    home.parent.mkdir(parents=True, exist_ok=True)
    if home.is_dir() and not home.is_symlink():
        os.rename(home, before)
        try:
            os.rename(folder, home)
        except OSError:
            os.rename(before, home)
            raise
        shutil.rmtree(before, ignore_errors=True)
    else:
        os.rename(folder, home)
    return home


def _write_texts(folder: Path, order: Order) -> None:
    title = order.title or order.name.replace("-", " ").title()
    values: dict[str, Any] = {
        "title": title,
        "description": "Made of a photograph.",
        "renderer": "portrait",
        "language": order.language,
        "voice": {
            "name": order.voice,
            "fallbacks": [] if order.voice == PIPER_VOICE else [PIPER_VOICE],
        },
        "greeting": f"Hello, I'm {title}. What would you like to talk about?",
        "suggestions": ["Who are you?", "What can I ask you?"],
    }
    if order.license:
        values["license"] = order.license
    values["consent"] = {"statement": STATEMENT, "confirmed_on": date.today()}
    text = yaml.safe_dump(values, sort_keys=False, allow_unicode=True)
    (folder / "avatar.yaml").write_text(text, encoding="utf-8")
    (folder / "persona.md").write_text(order.persona or _persona(title), encoding="utf-8")
    (folder / "facts.md").write_text(order.facts or _facts(title), encoding="utf-8")


def _persona(title: str) -> str:
    return f"""You are {title}. You are talking with someone by voice and video.

Speak as people speak: one to three short sentences, plain words, no lists, no headings, no emoji.
Answer the question first, then add one useful thing if there is one. Use contractions.

You are a computer program with the face of a photograph, and you say so when you are asked.
If you do not know something, say that you do not know. Do not invent names, numbers or links.
You cannot see the person, open web pages, or remember earlier visits.
"""


def _facts(title: str) -> str:
    return f"""I'm {title}, a computer program. My face is a photograph that moves, and my voice is
made by a computer.

You can ask me anything. I answer in a few sentences, and I say so when I don't know.
"""
