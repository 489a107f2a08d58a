"""`avatar-server avatar preview` and `avatar-server avatar gallery`."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import cv2
import numpy as np
import typer
from rich.console import Console
from rich.progress import track

from avatar_server.avatars import AvatarError
from avatar_server.command_line import (
    FAILED,
    WRONG_USE,
    ConfigOption,
    SetOption,
    avatars_or_exit,
    settings_or_exit,
    stop_with,
)

IDLE_S = 8.0
_KINDS = (".mp4", ".png")


def avatar_preview(
    name: Annotated[str, typer.Argument(help="Which avatar; see `avatar list`.")],
    out: Annotated[
        Path,
        typer.Option("--out", "-o", help="A film (.mp4) or a strip of stills (.png)."),
    ],
    say: Annotated[str | None, typer.Option(help="What it says; default: it idles.")] = None,
    emotion: Annotated[
        str | None, typer.Option(help="How it looks; default: what its words ask for.")
    ] = None,
    seconds: Annotated[
        float, typer.Option(min=1, max=120, help="How long it idles, without --say.")
    ] = IDLE_S,
    config: ConfigOption = "cpu",
    sets: SetOption = None,
) -> None:
    """Draw an avatar as a session would: a film with its voice, or stills of the sounds."""
    from renderers.motion import EMOTIONS

    settings = settings_or_exit(config, sets, {})
    found = avatars_or_exit(settings)
    if name not in found:
        raise stop_with(_no_avatar(name, found), WRONG_USE)
    if emotion is not None and emotion not in EMOTIONS:
        raise stop_with(
            f"There is no emotion {emotion!r}. There are: {', '.join(EMOTIONS)}.", WRONG_USE
        )
    if say is not None and not say.strip():
        raise stop_with("--say is empty: give some words, or leave it out.", WRONG_USE)
    _check_writable(out)
    from avatar_server.avatar.face import load_renderer
    from avatar_server.inference.tts import TtsError
    from avatar_server.models import ModelError
    from avatar_server.preview.film import write_film
    from avatar_server.preview.performance import LEAD_S, TAIL_S, performance
    from avatar_server.preview.strip import draw_strip, moments_of, sounds
    from avatar_server.preview.voice import speak
    from renderers import SoundDriven
    from renderers.neural import NeuralRenderer

    spec, video = found[name], settings.media.video
    console = Console(stderr=True, highlight=False)
    try:
        speech = None
        if say is not None:
            with console.status(f"{spec.title} speaks"):
                speech = speak(say.strip(), spec, settings.tts, console, lead_s=LEAD_S)
        with console.status(f"Loading {spec.title}"):
            renderer = load_renderer(spec, video.width, video.height)
        if speech is not None:
            seconds = speech.seconds + TAIL_S
        moments = track(
            performance(speech, seconds=seconds, fps=video.fps, seed=spec.seed, emotion=emotion),
            "Drawing",
            total=round(seconds * video.fps),
            console=console,
        )
        try:
            if speech is not None and isinstance(renderer, SoundDriven):
                renderer.hear(speech.sound)
            if speech is not None and isinstance(renderer, NeuralRenderer):
                renderer.faces_here(
                    device=settings.faces.device, threads=settings.faces.threads, fps=video.fps
                )
            if out.suffix.lower() == ".mp4":
                write_film(out, renderer, moments, speech.pcm if speech else None, fps=video.fps)
            else:
                captions = sounds(speech) if speech is not None else moments_of(seconds)
                strip = draw_strip(renderer, moments, captions)
                _write_png(out, strip)
        finally:
            renderer.close()
    except (AvatarError, TtsError, ModelError, ValueError) as error:
        raise stop_with(str(error), FAILED) from error
    except OSError as error:
        raise stop_with(f"{out} cannot be written: {error.strerror or error}.", FAILED) from error
    print(out)


def avatar_gallery(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the pictures.")],
    names: Annotated[list[str] | None, typer.Argument(help="Avatars; default: all.")] = None,
    config: ConfigOption = "cpu",
    sets: SetOption = None,
) -> None:
    """Draw small pictures of avatars, and a page that shows them."""
    settings = settings_or_exit(config, sets, {})
    found = avatars_or_exit(settings)
    if unknown := [name for name in names or [] if name not in found]:
        raise stop_with(_no_avatar(unknown[0], found), WRONG_USE)
    if out.exists() and not out.is_dir():
        raise stop_with(f"{out} is a file: name a folder.", WRONG_USE)
    from avatar_server.preview.gallery import draw_gallery

    console = Console(stderr=True, highlight=False)
    try:
        wanted = {name: found[name] for name in names or found}
        written = draw_gallery(wanted, out, settings.media.video, progress=console.print)
    except (AvatarError, ValueError) as error:
        raise stop_with(str(error), FAILED) from error
    except OSError as error:
        raise stop_with(f"{out} cannot be written: {error.strerror or error}.", FAILED) from error
    for path in written:
        print(path)


def _no_avatar(name: str, found: Iterable[str]) -> str:
    return f"There is no avatar {name!r}. There are: {', '.join(found)}."


def _check_writable(out: Path) -> None:
    """Exit code 2 where the file could not be written after minutes of drawing."""
    if out.suffix.lower() not in _KINDS:
        raise stop_with(
            f"{out}: a preview is a film (.mp4) or a strip of stills (.png), "
            f"not {out.suffix or 'without an extension'}.",
            WRONG_USE,
        )
    if out.is_dir():
        raise stop_with(f"{out} is a folder: name a file.", WRONG_USE)
    if not out.parent.is_dir():
        raise stop_with(f"{out} cannot be written: there is no folder {out.parent}.", WRONG_USE)
    if not os.access(out if out.exists() else out.parent, os.W_OK):
        raise stop_with(f"{out} cannot be written: you have no right to.", WRONG_USE)


def _write_png(out: Path, picture: np.ndarray) -> None:
    ok, data = cv2.imencode(".png", np.ascontiguousarray(picture[..., ::-1]))
    if not ok:
        raise OSError(f"OpenCV could not make a PNG picture of {picture.shape}")
    out.write_bytes(bytes(data))
