"""The STUN and TURN servers as WebRTC wants them, with accounts that end by themselves.

A TURN server that shares a secret with us (coturn: `use-auth-secret`) takes the user name
`<end of validity>:<name>` with the password base64(HMAC-SHA1(secret, user name)), and needs to be
told of nobody beforehand (draft-uberti-behave-turn-rest-00, section 2.2).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
from typing import Any

from avatar_server.config import MediaSettings


def turn_account(secret: str, lifetime_s: int, name: str, now: float) -> tuple[str, str]:
    """User name and password that a TURN server takes until `now` (Unix time) + `lifetime_s`."""
    username = f"{int(now) + lifetime_s}:{name}"
    digest = hmac.new(secret.encode(), username.encode(), hashlib.sha1).digest()
    return username, base64.b64encode(digest).decode()


def ice_servers(media: MediaSettings, name: str, now: float | None = None) -> list[dict[str, Any]]:
    """`RTCIceServer` dictionaries for one viewer, whose `name` the TURN server may log.

    They hold secrets: for the viewer and the connection only, never for a log.
    """
    views: list[dict[str, Any]] = []
    for server in media.ice_servers:
        view: dict[str, Any] = {"urls": list(server.urls)}
        if server.username is not None and server.credential is not None:
            view["username"] = server.username
            view["credential"] = server.credential.get_secret_value()
        elif server.is_turn and media.turn_secret is not None:
            view["username"], view["credential"] = turn_account(
                media.turn_secret.get_secret_value(),
                media.turn_lifetime_s,
                name,
                time.time() if now is None else now,
            )
        views.append(view)
    return views
