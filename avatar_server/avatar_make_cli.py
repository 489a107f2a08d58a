"""`avatar-server avatar make`: an avatar of a photograph."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from avatar_server.command_line import FAILED, WRONG_USE, stop_with

_QUESTION = (
    "Do you have the right to use this picture, and does the person it shows agree to being "
    "animated and given a voice?"
)


def avatar_make(
    photo: Annotated[Path, typer.Argument(help="A JPEG, PNG or WebP picture of one face.")],
    name: Annotated[str, typer.Option(help="Lower-case letters, digits and hyphens.")],
    voice: Annotated[str, typer.Option(help="piper-joe, or one of Kokoro's, like af_heart.")],
    title: Annotated[str, typer.Option(help="What viewers read; default: from the name.")] = "",
    persona: Annotated[
        Path | None, typer.Option(help="A text file: who it is, told to the language model.")
    ] = None,
    facts: Annotated[
        Path | None, typer.Option(help="A text file: what it knows, blank lines between facts.")
    ] = None,
    language: Annotated[str, typer.Option(help="What it speaks.")] = "en",
    license_: Annotated[
        str | None, typer.Option("--license", help="Of the picture, as an SPDX identifier.")
    ] = None,
    mark: Annotated[
        bool, typer.Option("--mark/--no-mark", help="Write 'AI-generated' into the picture.")
    ] = True,
    right: Annotated[
        bool,
        typer.Option(
            "--i-have-the-right",
            help="You may use the picture, and the person it shows agrees. Else you are asked.",
        ),
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace an avatar of that name.")] = False,
) -> None:
    """Make an avatar of a photograph. Exit code 1 where the picture will not do."""
    from avatar_server.avatar_maker import (
        PREVIEW_FILM,
        PREVIEW_PICTURE,
        NotMade,
        Order,
        check_order,
        make_avatar,
    )
    from avatar_server.models import ModelError, RichProgress
    from renderers.portrait.photo import PhotoError

    order = Order(
        photo=photo,
        name=name,
        voice=voice,
        title=title,
        persona=_text(persona, "--persona"),
        facts=_text(facts, "--facts"),
        language=language,
        license=license_,
        mark="AI-generated" if mark else "",
        force=force,
    )
    try:
        check_order(order)
        _ask(right)
        with RichProgress() as progress:
            folder = make_avatar(
                order, tell=lambda line: print(line, file=sys.stderr), progress=progress
            )
    except NotMade as error:
        raise stop_with(str(error), WRONG_USE) from error
    except (PhotoError, ModelError) as error:
        raise stop_with(str(error), FAILED) from error
    print(f"{name} is made: {folder}")
    print(f"Look at {folder / PREVIEW_PICTURE} and {folder / PREVIEW_FILM}.")
    print("Who it is and what it knows is in persona.md and facts.md there.")


def _ask(right: bool) -> None:
    """Exit code 2 without the maker's word."""
    if right:
        return
    if not _can_ask():
        raise stop_with(
            "An avatar is made only of a picture that you may use. If you have the right to, and "
            "the person it shows agrees, say so with --i-have-the-right.",
            WRONG_USE,
        )
    if not typer.confirm(_QUESTION):
        raise stop_with("Nothing was made.", WRONG_USE)


def _can_ask() -> bool:
    return sys.stdin.isatty()


def _text(path: Path | None, option: str) -> str:
    if path is None:
        return ""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise stop_with(f"{option}: cannot read {path}: {error.strerror}.", WRONG_USE) from error
    except UnicodeDecodeError as error:
        raise stop_with(f"{option}: {path} is not a UTF-8 text.", WRONG_USE) from error
    if not text.strip():
        raise stop_with(f"{option}: {path} is empty.", WRONG_USE)
    return text
