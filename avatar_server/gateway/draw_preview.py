"""Draws one avatar's pictures; started with the avatar's folder and the folder to write into."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from pathlib import Path

from avatar_server.processes import when_parent_ends

LOWEST_PRIORITY = 19
WIDTH_PX, HEIGHT_PX = 1280, 720


def main(arguments: list[str] | None = None) -> int:
    """Write `picture`, then `preview`, each whole or not at all. The exit code."""
    with contextlib.suppress(OSError):
        os.nice(LOWEST_PRIORITY)
    # Imported at the lowest priority: loading them is a good part of the work.
    from avatar_server.avatar.face import load_renderer
    from avatar_server.avatars import AvatarError, load_avatar
    from renderers import preview

    avatar_folder, out = (Path(text) for text in arguments or sys.argv[1:])
    try:
        renderer = load_renderer(load_avatar(avatar_folder), WIDTH_PX, HEIGHT_PX)
    except (AvatarError, ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    try:
        _write(out / "picture", lambda: preview.still(renderer))
        _write(out / "preview", lambda: preview.animation(renderer))
    finally:
        renderer.close()
    return 0


def _write(path: Path, draw: Callable[[], bytes]) -> None:
    partial = path.with_suffix(".partial")
    partial.write_bytes(draw())
    partial.replace(path)


if __name__ == "__main__":
    when_parent_ends(lambda: os._exit(1))
    sys.exit(main())
