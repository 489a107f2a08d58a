"""Settings of the network path that media takes: UDP ports, public addresses, STUN and TURN."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator, BeforeValidator, SecretStr, model_validator

from avatar_server.config.base import Section

_ICE_URL = re.compile(
    r"(?P<scheme>stuns?|turns?):(?P<host>\[[0-9A-Fa-f:.]+\]|[^\s?:/@\[\]]+)"
    r"(:(?P<port>\d{1,5}))?(\?transport=(?P<transport>udp|tcp))?"
)
"""RFC 7064 and RFC 7065; both have no `//` and no user name."""


class IceAddress(NamedTuple):
    """A STUN or TURN server's address, taken apart."""

    scheme: str
    """stun, stuns, turn or turns."""
    host: str
    """Without the brackets of IPv6."""
    port: int | None
    transport: str | None
    """udp or tcp, where it is said."""


def parse_ice_url(text: str) -> IceAddress | None:
    """`stun:host:port` or `turn:host:port?transport=udp`; None where it is neither."""
    match = _ICE_URL.fullmatch(text)
    if match is None:
        return None
    port = int(match["port"]) if match["port"] else None
    if port is not None and not 1 <= port <= 65_535:
        return None
    return IceAddress(match["scheme"], match["host"].strip("[]"), port, match["transport"])


class PublicAddress(NamedTuple):
    """An address to advertise, and the local one behind it where that was said."""

    public: str
    local: str | None


def parse_ports(text: str) -> range:
    """`50000-50100` (both inclusive) or one port. Raises `ValueError` in words."""
    match = re.fullmatch(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?", text)
    if not match:
        raise ValueError(f"{text!r} is no range of ports: write it like 50000-50100")
    first, last = int(match[1]), int(match[2] or match[1])
    if not 1 <= first <= 65_535 or not 1 <= last <= 65_535:
        raise ValueError(f"{text!r}: ports are 1 to 65535")
    if first > last:
        raise ValueError(f"{text!r}: the first port is above the last; write {last}-{first}")
    return range(first, last + 1)


def parse_public_addresses(text: str) -> list[PublicAddress]:
    """`PUBLIC` or `PUBLIC/LOCAL`, separated by commas. Raises `ValueError` in words."""
    found = []
    for item in filter(None, re.split(r"[\s,]+", text)):
        public, slash, local = item.partition("/")
        for address in (public, local) if slash else (public,):
            try:
                parsed = ipaddress.ip_address(address)
            except ValueError:
                raise ValueError(
                    f"{item!r} is no IP address: write 203.0.113.7, or 203.0.113.7/10.0.0.7 "
                    "with the local address behind it; host names are not resolved"
                ) from None
            if parsed.is_unspecified or parsed.is_multicast:
                raise ValueError(f"{item!r}: nobody can be reached at {address}")
        if slash and (":" in public) != (":" in local):
            raise ValueError(f"{item!r} mixes IPv4 and IPv6")
        found.append(PublicAddress(public, local or None))
    return found


def _ports(value: Any) -> Any:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _checked_ports(value: str | None) -> str | None:
    if value is not None:
        parse_ports(value)
    return value


def _joined(value: Any) -> Any:
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return ", ".join(value)
    return value


def _checked_addresses(value: str) -> str:
    parse_public_addresses(value)
    return value


PortRange = Annotated[str | None, BeforeValidator(_ports), AfterValidator(_checked_ports)]
AddressList = Annotated[str, BeforeValidator(_joined), AfterValidator(_checked_addresses)]


class IceServer(Section):
    """A STUN or TURN server, handed to the page and used by the server."""

    urls: list[str]
    """`stun:host:port` or `turn:host:port?transport=udp`."""
    username: str | None = None
    """For TURN with a fixed account; without it `media.turn_secret` makes one for each viewer."""
    credential: SecretStr | None = None
    """For TURN with a fixed account; every viewer is given it."""

    @property
    def is_turn(self) -> bool:
        """Whether it relays, for which it wants an account."""
        return any(url.startswith("turn") for url in self.urls)

    @model_validator(mode="after")
    def _usable(self) -> IceServer:
        if not self.urls:
            raise ValueError("urls is empty: name the server, like stun:stun.example.org:3478")
        for url in self.urls:
            address = parse_ice_url(url)
            if address is None:
                raise ValueError(
                    f"{url!r} is no STUN or TURN address: write it like "
                    "stun:stun.example.org:3478 or turn:turn.example.org:3478?transport=udp"
                )
            if address.transport and address.scheme.startswith("stun"):
                raise ValueError(f"{url!r}: ?transport= is for turn: only")
        if (self.username is None) != (self.credential is None):
            raise ValueError("give username and credential both, or neither")
        return self


def check_accounts(servers: Sequence[IceServer], secret: SecretStr | None) -> None:
    """Raises `ValueError` where a TURN server has no account and no secret makes one."""
    for server in servers:
        if server.is_turn and server.username is None and secret is None:
            raise ValueError(
                f"ice_servers: {server.urls[0]} needs username and credential, or the secret that "
                "it shares with this server in turn_secret "
                "(AVATAR_SERVER_MEDIA__TURN_SECRET in the environment)"
            )
