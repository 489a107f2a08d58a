"""Join links that were given out, and which of them were revoked: bookkeeping in memory.

They live as long as their sessions, and sessions end with the server.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from avatar_server.security.tokens import Role

MOST_LINKS = 1_000
"""Of one session at a time."""


class LinkError(ValueError):
    """Base of what is refused; the message is a sentence for people."""


class UnknownLink(LinkError):
    """No such link of this session."""


class TooManyLinks(LinkError):
    """The session has as many links as are kept."""


@dataclass(slots=True)
class Link:
    """A link that was given out."""

    id: str
    """The token's `jti`; it lets nobody in."""
    session: str
    role: Role
    expires: float
    """Unix time, seconds."""
    revoked: bool = False
    viewers: set[str] = field(default_factory=set)
    """Who joined by it, as far as they have not left."""


class LinkBook:
    """All links of the sessions that run."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        """`now`: Unix time."""
        self._now = now
        self._links: dict[str, dict[str, Link]] = {}

    def add(self, session: str, role: Role, lifetime_s: float) -> Link:
        """Write down a new link. Raises `TooManyLinks`."""
        known = self._links.setdefault(session, {})
        now = self._now()
        for link in [one for one in known.values() if one.expires < now and not one.viewers]:
            del known[link.id]
        if len(known) >= MOST_LINKS:
            raise TooManyLinks(
                f"This session has {MOST_LINKS} links that are good. Give one out several times, "
                "or with a shorter life."
            )
        link = Link(secrets.token_hex(8), session, role, now + lifetime_s)
        known[link.id] = link
        return link

    def of(self, session: str) -> list[Link]:
        """The session's links, oldest first; those that expired long ago may be missing."""
        return list(self._links.get(session, {}).values())

    def revoke(self, session: str, link: str) -> list[str]:
        """Nobody gets in by it any more. Returns who had. Raises `UnknownLink`."""
        found = self._links.get(session, {}).get(link)
        if found is None:
            raise UnknownLink("There is no such link of this session, or it expired long ago.")
        found.revoked = True
        viewers, found.viewers = sorted(found.viewers), set()
        return viewers

    def is_revoked(self, session: str, link: str) -> bool:
        """Whether it was given out and revoked."""
        found = self._links.get(session, {}).get(link)
        return found is not None and found.revoked

    def joined(self, session: str, link: str, viewer: str) -> None:
        """A viewer came by it."""
        if (found := self._links.get(session, {}).get(link)) is not None:
            found.viewers.add(viewer)

    def keep(self, sessions: Collection[str]) -> None:
        """Forget the links of all other sessions."""
        self._links = {name: links for name, links in self._links.items() if name in sessions}
