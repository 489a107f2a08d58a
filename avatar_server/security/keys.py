"""API keys of operators: made once, kept as hashes, compared in constant time.

A key is `avs_<id>_<secret>`: the id finds the entry, the secret (256 bits) proves it. Since the
secret is random and long, one round of a keyed hash is enough to keep it: there is nothing to guess
that a slow password hash would protect.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import re
import secrets
import time
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path

import filelock
import msgspec

from avatar_server.paths import data_dir

PREFIX = "avs"
_KEY = re.compile(rf"{PREFIX}_([0-9a-f]{{12}})_([A-Za-z0-9_-]{{43}})")
_NAME = re.compile(r"[\w .@-]{1,64}")
_LOCK_TIMEOUT_S = 10.0


class Scope(StrEnum):
    """What a key may be used for."""

    READ = "read"
    """See sessions, turns, metrics and the state of the server."""
    OPERATE = "operate"
    """Also launch and end sessions, make join links, and drain."""
    ADMIN = "admin"
    """Also everything else that an operator can do, now and later."""

    def covers(self, other: Scope) -> bool:
        """Whether this scope includes `other`."""
        order = list(Scope)
        return order.index(self) >= order.index(other)


class ApiKeyError(ValueError):
    """A key that cannot be made, found or stored; the message is a sentence."""


class ApiKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key as it is kept. The secret itself is nowhere."""

    id: str
    name: str
    scope: Scope
    created: float
    """Unix time, seconds."""
    salt: str
    digest: str
    """Hexadecimal BLAKE2b of the secret, keyed with the salt."""


class KeyStore:
    """The keys of a file, read anew when it changes, so that a revoked key is refused at once."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or data_dir() / "api-keys.json"
        self._stamp: tuple[int, int] | None = None
        self._keys: dict[str, ApiKey] = {}

    def entries(self) -> list[ApiKey]:
        """All keys, oldest first. Raises `ApiKeyError` where the file cannot be read."""
        self._refresh()
        return list(self._keys.values())

    def create(self, name: str, scope: Scope, now: float | None = None) -> tuple[ApiKey, str]:
        """A new key and its text, which is shown this once. Raises `ApiKeyError`."""
        if not _NAME.fullmatch(name):
            raise ApiKeyError(
                "A key's name has 1 to 64 letters, digits, spaces or any of . @ - _, "
                "so that the audit log can name who did what."
            )
        secret = secrets.token_urlsafe(32)
        salt = secrets.token_hex(16)
        key = ApiKey(
            id=secrets.token_hex(6),
            name=name,
            scope=scope,
            created=time.time() if now is None else now,
            salt=salt,
            digest=_digest(secret, salt),
        )
        with self._changing():
            if any(other.name == name for other in self._keys.values()):
                raise ApiKeyError(f"There is a key {name!r} already. Revoke it first, or rename.")
            self._keys[key.id] = key
        return key, f"{PREFIX}_{key.id}_{secret}"

    def revoke(self, name_or_id: str) -> ApiKey:
        """Remove a key. Raises `ApiKeyError` where there is none."""
        with self._changing():
            for key in self._keys.values():
                if name_or_id in (key.id, key.name):
                    del self._keys[key.id]
                    return key
            names = ", ".join(key.name for key in self._keys.values()) or "none"
            raise ApiKeyError(f"There is no key {name_or_id!r}. There are: {names}.")

    def verify(self, text: str) -> ApiKey | None:
        """The key whose text this is. An unknown id takes as long as a wrong secret."""
        self._refresh()
        match = _KEY.fullmatch(text)
        key = self._keys.get(match[1]) if match else None
        secret = match[2] if match else "-" * 43
        salt, digest = (key.salt, key.digest) if key else ("00" * 16, "00" * 32)
        right = hmac.compare_digest(_digest(secret, salt), digest)
        return key if right and key is not None else None

    def _refresh(self) -> None:
        try:
            status = self.path.stat()
            stamp = (status.st_mtime_ns, status.st_size)
            if stamp == self._stamp:
                return
            keys = msgspec.json.decode(self.path.read_bytes(), type=list[ApiKey])
        except FileNotFoundError:
            self._stamp, self._keys = None, {}
            return
        except (OSError, msgspec.DecodeError) as error:
            raise ApiKeyError(
                f"The API keys in {self.path} cannot be read: {error}. Mend the file, or move it "
                "away and make new keys with 'avatar-server keys create'."
            ) from error
        self._stamp, self._keys = stamp, {key.id: key for key in keys}

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        """The keys, alone among processes; written when the block ends without an error."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with filelock.FileLock(f"{self.path}.lock").acquire(timeout=_LOCK_TIMEOUT_S):
                self._stamp = None
                self._refresh()
                yield
                content = msgspec.json.format(msgspec.json.encode(list(self._keys.values())))
                scratch = self.path.with_suffix(".new")
                handle = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
                with os.fdopen(handle, "wb") as file:
                    file.write(content + b"\n")
                os.replace(scratch, self.path)
                self._stamp = None
        except OSError as error:
            raise ApiKeyError(
                f"The API keys cannot be stored in {self.path}: {error.strerror or error}. "
                "Set AVATAR_SERVER_DATA to a folder that this user may write to."
            ) from error


def _digest(secret: str, salt: str) -> str:
    return hashlib.blake2b(secret.encode(), key=bytes.fromhex(salt), digest_size=32).hexdigest()
