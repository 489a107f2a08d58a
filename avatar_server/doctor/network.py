"""Ports, addresses that a browser could open, and STUN and TURN servers."""

from __future__ import annotations

import ipaddress
import socket
import ssl
from collections.abc import Iterator

import ifaddr
from aioice import stun

from avatar_server.config import Settings
from avatar_server.config.network import parse_ice_url, parse_ports
from avatar_server.doctor.check import Check, failed, passed
from avatar_server.gateway.exposure import NotSafe, check_exposure, tls_context
from avatar_server.gateway.guards import bracketed, is_loopback, scheme_of
from avatar_server.gateway.serve import CannotListen, open_port
from avatar_server.security import KeyStore

TRIES = 3
"""Requests to a STUN server, each waiting `TIMEOUT_S`: a datagram may be lost."""
TIMEOUT_S = 1.0


def http_port(settings: Settings) -> Iterator[Check]:
    """Whether the configured port can be listened on."""
    where = f"{settings.http.host}:{settings.http.port}"
    try:
        with open_port(settings.http) as listener:
            yield passed("http port", f"{where} is free (port {listener.getsockname()[1]})")
    except CannotListen as error:
        yield failed("http port", f"{where} cannot be used", str(error))


def udp_ports(settings: Settings) -> Iterator[Check]:
    """Whether ports of the range for media are free."""
    text = settings.media.udp_ports
    if text is None:
        yield passed("udp ports", "any that the system gives; a firewall must let all through")
        return
    ports = parse_ports(text)
    taken = [port for port in ports if not _is_free(port)]
    needed = settings.sessions.max_viewers
    free = len(ports) - len(taken)
    found = f"{text}: {free} of {len(ports)} free"
    if free < needed:
        yield failed(
            "udp ports",
            found,
            f"Widen media.udp_ports: a session of {needed} viewers needs {needed} ports on each "
            "address.",
        )
    else:
        yield passed("udp ports", found)


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


def addresses(settings: Settings) -> Iterator[Check]:
    """What a browser can open, and whether it gets the microphone there."""
    host, port = settings.http.host, settings.http.port
    scheme = scheme_of(settings.http)
    if is_loopback(host):
        yield passed(
            "addresses",
            f"{scheme}://{host}:{port}, from this machine only; others need a wider http.host "
            "with TLS, or a reverse proxy (docs/security.md)",
        )
        return
    everywhere = host in ("0.0.0.0", "::", "")
    shown = _own_addresses() if everywhere else [host]
    found = ", ".join(f"{scheme}://{bracketed(one)}:{port}" for one in shown)
    try:
        check_exposure(settings, KeyStore())
        tls_context(settings.http)
    except NotSafe as error:
        yield failed("addresses", found, str(error))
        return
    if scheme == "http":
        found += "; browsers give the microphone over https only, so a proxy must have TLS"
    yield passed("addresses", found)


def _own_addresses() -> list[str]:
    found = []
    for adapter in ifaddr.get_adapters():
        for one in adapter.ips:
            text = one.ip if isinstance(one.ip, str) else one.ip[0]
            address = ipaddress.ip_address(text)
            if not address.is_loopback and not address.is_link_local:
                found.append(text)
    return found


def ice_servers(settings: Settings) -> Iterator[Check]:
    """Whether each STUN and TURN server answers."""
    urls = [url for server in settings.media.ice_servers for url in server.urls]
    if not urls:
        yield passed("stun and turn", "none configured; viewers must reach this machine directly")
    for url in urls:
        why = unreachable(url)
        if why is None:
            yield passed(f"server {url}", "answers")
        else:
            yield failed(
                f"server {url}",
                why,
                "Check its address and port, that it runs, and that firewalls let this machine "
                "reach it.",
            )


def unreachable(url: str) -> str | None:
    """Why the server of a `stun:` or `turn:` address does not answer; None where it does.

    A binding request (RFC 8489), which TURN servers answer, too, without an account.
    """
    address = parse_ice_url(url)
    if address is None:
        return "not an address of a STUN or TURN server"
    secure, host = address.scheme.endswith("s"), address.host
    port = address.port or (5349 if secure else 3478)
    request = bytes(stun.Message(stun.Method.BINDING, stun.Class.REQUEST))
    try:
        if secure or address.transport == "tcp":
            answer = _ask_stream(host, port, request, secure)
        else:
            answer = _ask_datagrams(host, port, request)
        if answer is None:
            return f"no answer within {TRIES * TIMEOUT_S:.0f} s"
        stun.parse_message(answer)
    except ssl.SSLError as error:
        return f"its certificate or TLS is not accepted: {error.reason or error}"
    except socket.gaierror as error:
        return f"its name is not known: {error.strerror}"
    except OSError as error:
        return error.strerror or str(error)
    except ValueError:
        return "something else answers there"
    return None


def _ask_datagrams(host: str, port: int, request: bytes) -> bytes | None:
    family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as asking:
        asking.settimeout(TIMEOUT_S)
        asking.connect(address)
        for _ in range(TRIES):
            asking.send(request)
            try:
                return asking.recv(2_048)
            except TimeoutError:
                continue
    return None


def _ask_stream(host: str, port: int, request: bytes, secure: bool) -> bytes | None:
    with socket.create_connection((host, port), timeout=TRIES * TIMEOUT_S) as plain:
        stream = plain
        if secure:
            stream = ssl.create_default_context().wrap_socket(plain, server_hostname=host)
        stream.sendall(request)
        try:
            return stream.recv(2_048) or None
        except TimeoutError:
            return None
