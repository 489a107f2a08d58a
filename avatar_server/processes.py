"""How a child process is started, and how it ends with its parent.

The parent writes one line of JSON (`Bootstrap`) to the child's standard input and keeps the pipe
open. End of file there means that the parent is gone: the child exits, so no orphan is left even
after `kill -9` of the parent.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from typing import IO, Any

import msgspec
from pydantic import BaseModel, SecretStr

from avatar_server.config import Settings, settings_from_values


class Bootstrap(msgspec.Struct, kw_only=True):
    """What a child needs to know to start. Addresses are ZeroMQ endpoints."""

    role: str
    settings: dict[str, Any]
    gateway: str = ""
    inference: str = ""
    session: str = ""
    avatar: str = ""
    spec: dict[str, Any] = {}
    """Avatar: the `AvatarSpec` in JSON, as the server checked it."""
    record: bool = False
    """Avatar: record the session."""
    measure: bool = False
    """Inference: measure what the stages cost once the models are loaded."""

    def load_settings(self) -> Settings:
        """The parent's settings, exactly: neither files nor the environment are read again."""
        return settings_from_values(self.settings)


def plain_settings(settings: Settings) -> dict[str, Any]:
    """Settings as JSON values, secrets included: for a child's pipe only, never for a log."""
    plain = _plain(settings)
    assert isinstance(plain, dict)
    return plain


def _plain(value: Any) -> Any:
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    if isinstance(value, BaseModel):
        return {name: _plain(getattr(value, name)) for name in type(value).model_fields}
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return value


def bootstrap_line(bootstrap: Bootstrap) -> bytes:
    """The line that the parent writes to the child's standard input."""
    return msgspec.json.encode(bootstrap) + b"\n"


def read_bootstrap(stream: IO[bytes] | None = None) -> Bootstrap:
    """The parent's line; raises `SystemExit` with a sentence where a person started the child."""
    line = (stream or sys.stdin.buffer).readline()
    try:
        return msgspec.json.decode(line, type=Bootstrap)
    except msgspec.DecodeError as error:
        raise SystemExit(
            f"this process is started by 'avatar-server serve', not by hand ({error})"
        ) from error


def when_parent_ends(call: Callable[[], None], stream: IO[bytes] | None = None) -> None:
    """Run `call` (on a daemon thread) once the parent has closed the pipe or died."""
    descriptor = (stream or sys.stdin.buffer).fileno()

    def wait() -> None:
        # Not through the buffered reader: its lock, held by a thread that waits, aborts the
        # interpreter when it shuts down.
        while os.read(descriptor, 4096):
            pass
        call()

    threading.Thread(target=wait, name="parent-watch", daemon=True).start()
