"""Tokens of viewers: signed, expiring, and good for one session and one role.

JSON Web Tokens (RFC 7519) with HMAC-SHA256, made and read by PyJWT. The secret is a setting, or is
made once and kept beside the keys, so that links stay good over a restart.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from enum import StrEnum
from pathlib import Path

import jwt
import msgspec

from avatar_server.paths import data_dir

ALGORITHM = "HS256"
AUDIENCE = "avatar-server:viewer"
LEEWAY_S = 5
"""Clocks of machines that share the secret may differ by this."""


class Role(StrEnum):
    """What a viewer may do in a session."""

    SPEAK = "speak"
    WATCH = "watch"


class TokenError(ValueError):
    """A token that is not accepted; the message is a sentence that tells no secret."""


class ViewerToken(msgspec.Struct, frozen=True, kw_only=True):
    """What a token says."""

    session: str
    role: Role
    id: str
    """By which it can be revoked."""
    expires: float
    """Unix time, seconds."""


class TokenSigner:
    """Makes and reads tokens."""

    def __init__(self, secret: str) -> None:
        if len(secret.encode()) < 32:
            raise TokenError("The secret that signs join links must have 32 bytes or more.")
        self._secret = secret

    def sign(
        self,
        session: str,
        role: Role,
        lifetime_s: float,
        now: float | None = None,
        *,
        link: str | None = None,
    ) -> str:
        """A token for `session`, good for `lifetime_s` from `now` (Unix time) on.

        `link`: its id; by default a new one.
        """
        issued = time.time() if now is None else now
        return jwt.encode(
            {
                "aud": AUDIENCE,
                "sub": session,
                "role": role.value,
                "iat": int(issued),
                "exp": int(issued + lifetime_s),
                "jti": link or secrets.token_hex(8),
            },
            self._secret,
            ALGORITHM,
        )

    def read(self, token: str, now: float | None = None) -> ViewerToken:
        """What the token says. Raises `TokenError`."""
        try:
            # The time is checked here, since PyJWT reads the wall clock itself.
            claims = jwt.decode(
                token,
                self._secret,
                [ALGORITHM],
                audience=AUDIENCE,
                options={
                    "require": ["exp", "sub", "aud", "role"],
                    "verify_exp": False,
                    "verify_iat": False,
                },
            )
            found = ViewerToken(
                session=str(claims["sub"]),
                role=Role(claims["role"]),
                id=str(claims.get("jti", "")),
                expires=float(claims["exp"]),
            )
        except (jwt.InvalidTokenError, ValueError, TypeError) as error:
            raise TokenError("This link is not valid. Ask for a new one.") from error
        if found.expires + LEEWAY_S < (time.time() if now is None else now):
            raise TokenError("This link has expired. Ask for a new one.")
        return found


def signing_secret(configured: str | None, path: Path | None = None) -> str:
    """The configured secret, else the one kept in `path`, made there if it is missing.

    Raises `TokenError` where it can neither be read nor made.
    """
    if configured is not None:
        return configured
    path = path or data_dir() / "token-secret"
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with contextlib.suppress(FileExistsError):
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "w", encoding="ascii") as file:
                file.write(secrets.token_urlsafe(48))
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise TokenError(
            f"The secret that signs join links cannot be kept in {path}: {error}. Set "
            "AVATAR_SERVER_DATA to a folder that this user may write to, or give the secret in "
            "AVATAR_SERVER_SECURITY__TOKEN_SECRET."
        ) from error
