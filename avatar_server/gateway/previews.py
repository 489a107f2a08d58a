"""Pictures of the avatars for the page: drawn once in the background, kept on disk.

Drawing takes seconds of CPU, so a process of its own at the lowest priority does it. The result is
kept in the user's cache under a hash of the avatar's folder: a changed avatar is drawn again.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import shutil
import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path

import avatar_server
from avatar_server.avatars import AvatarSpec
from avatar_server.gateway.children import Child
from avatar_server.paths import cache_dir

DRAW_TIMEOUT_S = 300.0

log = logging.getLogger(__name__)


class Kind(StrEnum):
    PICTURE = "picture"
    PREVIEW = "preview"


def media_type(data: bytes) -> str:
    """The type of a picture or film, by its first bytes; `ValueError` for any other file."""
    if data[4:8] == b"ftyp":
        return "video/mp4"
    if data.startswith(b"\x1aE\xdf\xa3"):
        return "video/webm"
    if data.startswith(b"\x89PNG"):
        return "image/png"
    if data.startswith(b"\xff\xd8"):
        return "image/jpeg"
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    if data.startswith(b"GIF8"):
        return "image/gif"
    raise ValueError("not a PNG, JPEG, WebP or GIF picture, nor an MP4 or WebM film")


def folder_hash(folder: Path) -> str:
    """Changes when any file of an avatar's folder, or the product's version, does."""
    digest = hashlib.sha256(avatar_server.__version__.encode())
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            digest.update(f"{path.relative_to(folder).as_posix()}\0".encode())
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:24]


class Previews:
    """Draws what is missing, one avatar at a time; `start` first, `stop` at the end."""

    command: Sequence[str] = (sys.executable, "-m", "avatar_server.gateway.draw_preview")

    def __init__(self, avatars: Mapping[str, AvatarSpec], folder: Path | None = None) -> None:
        self._avatars = avatars
        self._folder = folder or cache_dir() / "previews"
        self._paths: dict[str, Path] = {}
        self._task: asyncio.Task[None] | None = None
        self._child: Child | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._draw_all(), name="previews")

    async def renew(self, avatars: Mapping[str, AvatarSpec]) -> None:
        """Show these from now on; what is drawn already, and has not changed, is kept."""
        self._avatars = avatars
        if self._task is not None:
            await self.stop()
            self.start()

    async def stop(self) -> None:
        """Give up what is being drawn."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        if self._child is not None:
            await self._child.kill()
            self._child = None

    def get(self, name: str, kind: Kind) -> Path | None:
        """The picture's file; None until it is drawn."""
        folder = self._paths.get(name)
        if folder is None:
            return None
        path = folder / kind.value
        return path if path.is_file() else None

    async def _draw_all(self) -> None:
        for avatar in self._avatars.values():
            try:
                await self._draw(avatar)
            except OSError as error:
                log.warning("no pictures of avatar %s: %s", avatar.name, error)

    async def _draw(self, avatar: AvatarSpec) -> None:
        digest = await asyncio.to_thread(folder_hash, avatar.folder)
        folder = self._folder / f"{avatar.name}-{digest}"
        self._paths[avatar.name] = folder
        if all((folder / kind.value).is_file() for kind in Kind):
            return
        folder.mkdir(parents=True, exist_ok=True)
        command = [*self.command, str(avatar.folder), str(folder)]
        self._child = child = await Child.start(command, "preview")
        try:
            code = await asyncio.wait_for(child.wait(), DRAW_TIMEOUT_S)
        except TimeoutError:
            await child.kill()
            log.warning(
                "drawing avatar %s took longer than %g s and was given up",
                avatar.name,
                DRAW_TIMEOUT_S,
            )
            return
        await child.reap()
        self._child = None
        if code:
            log.warning("avatar %s could not be drawn (exit code %d)", avatar.name, code)
            return
        await asyncio.to_thread(self._forget_others, avatar.name, folder)

    def _forget_others(self, name: str, current: Path) -> None:
        """Delete the pictures of earlier versions of an avatar."""
        for folder in self._folder.glob(f"{name}-*"):
            # A longer name may begin with this one: what follows must be just the hash.
            if folder != current and len(folder.name) == len(current.name):
                shutil.rmtree(folder, ignore_errors=True)
