"""The files of a recording: one folder each, which nobody but the server's user can read."""

from __future__ import annotations

import fcntl
import os
import re
import time
from pathlib import Path
from typing import IO

import msgspec

MOVIE, CAPTIONS, TURNS, ABOUT = "talk.mp4", "captions.vtt", "turns.jsonl", "about.json"
FILES = (MOVIE, CAPTIONS, TURNS, ABOUT)

_NAME = re.compile(r"[0-9]{8}T[0-9]{6}Z-[A-Za-z0-9_]{1,40}-[0-9]{1,4}")
_MOST_PARTS = 10_000


class About(msgspec.Struct, kw_only=True):
    """What is known of a recording. Times are UTC, ISO 8601; the file is rewritten at the end."""

    id: str
    session: str
    avatar: str
    title: str
    began: str
    ended: str | None = None
    """None: it is still written, or its process was killed."""
    duration_s: float = 0.0
    width: int = 0
    height: int = 0
    viewers: int = 0
    """How many different ones there were."""
    viewer_sound: bool = True
    viewer_text: bool = True
    dropped: dict[str, int] = {}
    """What could not be written in time: pictures, blocks of sound, and so on."""
    stopped_because: str = ""
    """Why it ended before the talk did."""


def is_name(name: str) -> bool:
    """Whether `name` may be that of a recording: it is safe as a file name and in a URL."""
    return _NAME.fullmatch(name) is not None


def utc(seconds: float) -> str:
    """Unix time as ISO 8601."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def make_folder(parent: Path, session: str, now: float) -> Path:
    """A new folder for a recording of `session` that begins at Unix time `now`."""
    parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
    safe = re.sub(r"[^A-Za-z0-9_]", "_", session)[:40] or "_"
    for number in range(1, _MOST_PARTS):
        folder = parent / f"{stamp}-{safe}-{number}"
        try:
            folder.mkdir(mode=0o700)
        except FileExistsError:
            continue
        return folder
    raise FileExistsError(f"{parent} holds too many recordings of this second")


def open_private(path: Path) -> IO[bytes]:
    """A new file, unbuffered, that only its owner can read."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    return open(handle, "w+b", buffering=0)


def claim(file: IO[bytes]) -> None:
    """Mark a movie as being written, for as long as this process has it open."""
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def is_claimed(folder: Path) -> bool:
    """Whether a process is writing this recording."""
    try:
        with (folder / MOVIE).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def write_about(folder: Path, about: About) -> None:
    """Replace what is said of the recording, whole."""
    part = folder / f"{ABOUT}.part"
    handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.write(handle, msgspec.json.format(msgspec.json.encode(about)) + b"\n")
    finally:
        os.close(handle)
    part.replace(folder / ABOUT)


def read_about(folder: Path) -> About | None:
    """What is said of a recording; none where that cannot be read."""
    try:
        return msgspec.json.decode((folder / ABOUT).read_bytes(), type=About)
    except (OSError, msgspec.DecodeError):
        return None
