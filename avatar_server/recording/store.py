"""What was recorded: found, given out and deleted by the gateway."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from avatar_server.config import RecordingSettings
from avatar_server.recording import files
from avatar_server.recording.files import About

State = Literal["recording", "complete", "cut-off"]


class RecordingInUse(Exception):
    """It is still being written."""


@dataclass(frozen=True, slots=True)
class Recording:
    """A recording; `cut-off`: its process was killed, and it lacks its last second or two."""

    about: About
    state: State
    bytes: int
    ended: float
    """Unix time at which it was last written."""
    folder: Path

    @property
    def id(self) -> str:
        """Its name, which sorts by time."""
        return self.about.id

    def file(self, name: str) -> Path | None:
        """One of its files; none where there is none."""
        path = self.folder / name
        return path if path.is_file() else None


@dataclass(frozen=True, slots=True)
class Deletion:
    """A recording that was deleted, and why; or was to be, and why not."""

    id: str
    why: str
    failure: str = ""


class RecordingStore:
    """The folder of all recordings. Every call reads the disk: call it off the event loop."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def all(self) -> list[Recording]:
        """All recordings, oldest first."""
        try:
            names = sorted(path.name for path in self.folder.iterdir() if path.is_dir())
        except OSError:
            return []
        found = [self.get(name) for name in names]
        return [recording for recording in found if recording is not None]

    def get(self, name: str) -> Recording | None:
        """The recording of that name, if there is one."""
        folder = self.folder / name
        if not files.is_name(name) or folder.is_symlink() or not folder.is_dir():
            return None
        claimed = files.is_claimed(folder)
        about = files.read_about(folder)
        state: State = "recording" if claimed else "complete"
        if about is None or (about.ended is None and not claimed):
            state = "cut-off"
        stats = [path.stat() for path in folder.iterdir() if path.is_file()]
        session = name.split("-")[1]
        return Recording(
            about or About(id=name, session=session, avatar="", title="", began=""),
            state,
            sum(stat.st_size for stat in stats),
            max((stat.st_mtime for stat in stats), default=folder.stat().st_mtime),
            folder,
        )

    def delete(self, name: str) -> bool:
        """Delete a recording; false where there is none.

        Raises `RecordingInUse` or `OSError`.
        """
        recording = self.get(name)
        if recording is None:
            return False
        if recording.state == "recording":
            raise RecordingInUse(name)
        shutil.rmtree(recording.folder)
        return True

    def sweep(self, settings: RecordingSettings, now: float | None = None) -> list[Deletion]:
        """Delete what is kept too long, then the oldest while all take too much.

        `now` is Unix time. What could not be deleted has a `failure`, and stays for the next time.
        """
        now = time.time() if now is None else now
        deletions = []
        for recording, why in too_many(self.all(), settings, now):
            failure = ""
            try:
                shutil.rmtree(recording.folder)
            except OSError as error:
                failure = f"{error.strerror} ({error.filename})"
            deletions.append(Deletion(recording.id, why, failure))
        return deletions


def too_many(
    recordings: Sequence[Recording], settings: RecordingSettings, now: float
) -> list[tuple[Recording, str]]:
    """Which of `recordings` (oldest first) are not to be kept at Unix time `now`, and why.

    One that is being written is never among them, but its size counts.
    """
    going: list[tuple[Recording, str]] = []
    total = sum(recording.bytes for recording in recordings)
    days, most = settings.keep_days, settings.keep_gb
    for recording in recordings:
        if recording.state == "recording":
            continue
        if days is not None and now - recording.ended > days * 86_400:
            going.append((recording, f"older than recording.keep_days ({days:g})"))
            total -= recording.bytes
    left = {recording.id for recording, _ in going}
    for recording in recordings:
        if most is None or total <= most * 1e9:
            break
        if recording.state != "recording" and recording.id not in left:
            going.append((recording, f"all together took more than recording.keep_gb ({most:g})"))
            total -= recording.bytes
    return going
