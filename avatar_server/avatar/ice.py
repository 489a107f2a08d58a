"""Which addresses and ports a viewer's connection uses: the one place that reaches into aioice.

aioice binds every host candidate to a port of the system's choice on each of the machine's
addresses, and offers just those addresses. Here the ports come from `media.udp_ports`, and
`media.public_address` is offered in place of the local addresses. Several avatar processes share
one range: a port that another holds is tried past, so nothing needs to be arranged between them.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
import random
import socket
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from typing import Any

from aioice import ice, stun, turn
from aioice.candidate import Candidate, candidate_foundation, candidate_priority
from aiortc import RTCIceServer, RTCPeerConnection

from avatar_server.config import MediaSettings
from avatar_server.config.network import PublicAddress, parse_ports, parse_public_addresses
from avatar_server.ice_servers import ice_servers

logger = logging.getLogger(__name__)

SUPPORTED_AIOICE = ("0.13",)
"""Minor versions whose candidate gathering has been checked."""

_SERVER_TIMEOUT_S = 2.0
"""For answers of STUN and TURN servers. Every join waits for one that is down; the page waits 15 s
in all, and host candidates mostly do."""


class UnsupportedAioiceError(RuntimeError):
    """The installed aioice is not one this module was checked with."""


class NoFreePortError(OSError):
    """All ports of the range are taken on an address of this machine."""


def require_supported_aioice(version: str | None = None) -> None:
    """Raises `UnsupportedAioiceError` where the installed aioice's private parts may differ."""
    installed = version or metadata.version("aioice")
    if ".".join(installed.split(".")[:2]) not in SUPPORTED_AIOICE:
        raise UnsupportedAioiceError(
            f"aioice {installed} is installed, but this program is checked with "
            f"{', '.join(SUPPORTED_AIOICE)} only: install the versions in constraints.txt"
        )


@dataclass(frozen=True, slots=True)
class HostAddress:
    """A local address to bind, and those under which viewers are told to reach it."""

    local: str
    offered: tuple[str, ...]


def host_addresses(public: Sequence[PublicAddress]) -> list[HostAddress]:
    """What to bind and to offer.

    Without `public`, each of the machine's addresses as it is; loopback only where there is no
    other, for a browser on a machine without a network. A public address whose local one is not
    given may lead to any of them, so that one socket for all of its family stands behind it.
    """
    if not public:
        local = ice.get_host_addresses(use_ipv4=True, use_ipv6=True)
        return [HostAddress(address, (address,)) for address in local or _loopback()]
    behind: dict[str, list[str]] = {}
    for address, local_address in public:
        any_address = "::" if _is_ipv6(address) else "0.0.0.0"
        behind.setdefault(local_address or any_address, []).append(address)
    return [HostAddress(local, tuple(offered)) for local, offered in behind.items()]


def bind_udp(address: str, ports: range | None) -> socket.socket:
    """A UDP socket on `address`, at a free port of `ports` (none: at any the system gives).

    Raises `NoFreePortError` where all are taken, `OSError` where the address cannot be used.
    """
    family = socket.AF_INET6 if _is_ipv6(address) else socket.AF_INET
    # From a random port on: those of viewers who just left are not given out again at once.
    start = 0 if ports is None else random.randrange(len(ports))
    for port in (0,) if ports is None else (*ports[start:], *ports[:start]):
        sock = socket.socket(family, socket.SOCK_DGRAM)
        try:
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, turn.UDP_SOCKET_BUFFER_SIZE)
            sock.setblocking(False)
            sock.bind((address, port))
        except OSError as error:
            sock.close()
            if error.errno == errno.EADDRINUSE and ports is not None:
                continue
            raise
        return sock
    assert ports is not None
    raise NoFreePortError(
        f"all {len(ports)} UDP ports of media.udp_ports ({ports[0]}-{ports[-1]}) are in use"
    )


def gather_as_configured(connection: RTCPeerConnection, settings: MediaSettings) -> None:
    """Let `connection` gather its candidates as `settings` say.

    Call before the local description is set, which may then raise `NoFreePortError`.
    """
    ports = None if settings.udp_ports is None else parse_ports(settings.udp_ports)
    public = parse_public_addresses(settings.public_address)
    for transceiver in connection.getTransceivers():
        agent: Any = transceiver.receiver.transport.transport.iceGatherer._connection
        for name in ("get_component_candidates", "_protocols", "stun_server", "turn_server"):
            if not hasattr(agent, name):
                raise UnsupportedAioiceError(
                    f"this aioice has no {name}: install the versions in constraints.txt"
                )
        agent.get_component_candidates = partial(_gather, agent, ports, public)


def servers_to_use(settings: MediaSettings) -> list[RTCIceServer]:
    """The STUN and TURN servers for the server's own end; aioice asks the first of each kind.

    aiortc reads no addresses with an IPv6 literal: those are for the page alone.
    """
    servers = []
    for view in ice_servers(settings, "avatar-server"):
        if urls := [url for url in view["urls"] if "[" not in url]:
            servers.append(
                RTCIceServer(
                    urls=urls, username=view.get("username"), credential=view.get("credential")
                )
            )
    return servers


async def _gather(
    agent: Any,
    ports: range | None,
    public: Sequence[PublicAddress],
    component: int,
    addresses: list[str],
    timeout: int = 5,
) -> list[Candidate]:
    """In place of `aioice.Connection.get_component_candidates`."""
    candidates: list[Candidate] = []
    protocols: list[ice.StunProtocol] = []
    loop = asyncio.get_running_loop()
    for host in host_addresses(public):
        try:
            sock = bind_udp(host.local, ports)
        except NoFreePortError:
            # Also where another address had one: a viewer would get through or not by chance.
            raise
        except OSError as error:
            logger.warning("media cannot use the address %s: %s", host.local, error.strerror)
            continue
        _, protocol = await loop.create_datagram_endpoint(
            lambda: ice.StunProtocol(agent), sock=sock
        )
        protocols.append(protocol)
        agent._protocols.append(protocol)
        offered = [
            _host_candidate(component, address, sock.getsockname()[1]) for address in host.offered
        ]
        protocol.local_candidate = offered[0]
        candidates += offered
    return candidates + await _ask_servers(agent, component, protocols)


async def _ask_servers(
    agent: Any, component: int, protocols: Sequence[ice.StunProtocol]
) -> list[Candidate]:
    """Candidates from the STUN and the TURN server, as far as these answer in time."""
    work: dict[str, list[Coroutine[Any, Any, Any]]] = {}
    if agent.stun_server:
        work["STUN"] = [
            ice.server_reflexive_candidate(protocol, agent.stun_server)
            for protocol in protocols
            if not _is_ipv6(protocol.local_candidate.host)
        ]
    if agent.turn_server:
        work["TURN"] = [
            ice.relayed_candidate(
                component=component,
                hide_related_address=False,
                protocol_factory=lambda: ice.StunProtocol(agent),
                turn_server=agent.turn_server,
                turn_username=agent.turn_username,
                turn_password=agent.turn_password,
                turn_ssl=agent.turn_ssl,
                turn_transport=agent.turn_transport,
            )
        ]
    kinds = {asyncio.ensure_future(one): kind for kind, many in work.items() for one in many}
    if not kinds:
        return []
    done, late = await asyncio.wait(kinds, timeout=_SERVER_TIMEOUT_S)
    for task in late:
        task.cancel()
        logger.warning("the %s server did not answer in %.0f s", kinds[task], _SERVER_TIMEOUT_S)
    await asyncio.gather(*late, return_exceptions=True)
    found = []
    for task in done:
        error = task.exception()
        if error is not None:
            logger.warning("the %s server gave no address: %s", kinds[task], _why(error))
            continue
        candidate, relay = task.result()
        found.append(candidate)
        if relay is not None:
            agent._protocols.append(relay)
    return found


def _why(error: BaseException) -> str:
    if isinstance(error, stun.TransactionFailed):
        code = error.response.error_code
        return f"error {code}" + (", the account was refused" if code == 401 else "")
    return str(error) or type(error).__name__


def _host_candidate(component: int, address: str, port: int) -> Candidate:
    return Candidate(
        foundation=candidate_foundation("host", "udp", address),
        component=component,
        transport="udp",
        priority=candidate_priority(component, "host"),
        host=address,
        port=port,
        type="host",
    )


def _loopback() -> list[str]:
    found = ["127.0.0.1"]
    try:
        bind_udp("::1", None).close()
    except OSError:
        return found
    return [*found, "::1"]


def _is_ipv6(address: str) -> bool:
    return ipaddress.ip_address(address).version == 6
