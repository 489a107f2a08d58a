"""Ports and addresses of media: what is bound, and what viewers are told."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator

import pytest
from media_client import Client, session, small, until

from avatar_server.avatar.ice import (
    HostAddress,
    NoFreePortError,
    UnsupportedAioiceError,
    bind_udp,
    host_addresses,
    require_supported_aioice,
)
from avatar_server.avatar.peers import OfferError
from avatar_server.config import MediaSettings
from avatar_server.config.network import parse_ports, parse_public_addresses

anyio = pytest.mark.anyio
HAS_IPV6 = True
try:
    bind_udp("::1", None).close()
except OSError:
    HAS_IPV6 = False


def settings(**changes: object) -> MediaSettings:
    return MediaSettings.model_validate({**small().model_dump(), **changes})


def candidates(answer: str) -> list[tuple[str, int]]:
    """(address, port) of the answer's candidates."""
    fields = [line.split() for line in answer.splitlines() if line.startswith("a=candidate")]
    return [(field[4], int(field[5])) for field in fields]


@pytest.fixture
def free_ports() -> Iterator[range]:
    """Three ports in a row that are free everywhere, until the test binds them."""
    for first in range(40_000, 60_000, 7):
        try:
            for port in range(first, first + 3):
                bind_udp("0.0.0.0", range(port, port + 1)).close()
        except OSError:
            continue
        yield range(first, first + 3)
        return
    pytest.fail("no three ports in a row are free")


def test_the_installed_version_is_supported() -> None:
    require_supported_aioice()


@pytest.mark.parametrize("version", ["0.12.0", "0.14.0", "1.0.0"])
def test_another_version_is_refused_in_words(version: str) -> None:
    with pytest.raises(UnsupportedAioiceError, match=r"constraints\.txt"):
        require_supported_aioice(version)


def test_taken_ports_are_tried_past_until_the_range_is_used_up(free_ports: range) -> None:
    held = [bind_udp("127.0.0.1", free_ports) for _ in range(3)]
    try:
        assert {sock.getsockname()[1] for sock in held} == set(free_ports)
        with pytest.raises(NoFreePortError, match=f"{free_ports[0]}-{free_ports[-1]}"):
            bind_udp("127.0.0.1", free_ports)
        held.pop().close()
        held.append(bind_udp("127.0.0.1", free_ports))
    finally:
        for sock in held:
            sock.close()


def test_an_address_of_another_machine_is_no_lack_of_ports(free_ports: range) -> None:
    with pytest.raises(OSError, match="assign requested address") as refused:
        bind_udp("198.51.100.1", free_ports)
    assert not isinstance(refused.value, NoFreePortError)


def test_public_addresses_stand_in_for_all_local_ones_or_for_the_one_they_name() -> None:
    both = parse_public_addresses("203.0.113.7, 2001:db8::7 203.0.113.8")
    assert host_addresses(both) == [
        HostAddress("0.0.0.0", ("203.0.113.7", "203.0.113.8")),
        HostAddress("::", ("2001:db8::7",)),
    ]
    named = parse_public_addresses("203.0.113.7/10.0.0.7,203.0.113.8/10.0.0.8")
    assert host_addresses(named) == [
        HostAddress("10.0.0.7", ("203.0.113.7",)),
        HostAddress("10.0.0.8", ("203.0.113.8",)),
    ]


@anyio
async def test_viewers_get_ports_of_the_range_and_give_them_back(free_ports: range) -> None:
    ports = f"{free_ports[0]}-{free_ports[1]}"
    async with session(settings(udp_ports=ports)) as running:
        one, two, three = Client("one"), Client("two"), Client("three")
        try:
            answers = [await one.join(running.peers), await two.join(running.peers)]
            used = {port for answer in answers for _, port in candidates(answer)}
            assert used <= set(free_ports[:2])
            await until(lambda: one.payloads and two.payloads)
            with pytest.raises(OfferError, match="media port") as refused:
                await three.join(running.peers, wait=False)
            assert refused.value.status == 503
            assert ports in refused.value.detail
            assert running.peers.viewers() == ["one", "two"]
            await running.peers.leave("two", "left")
            again = Client("again")
            await again.join(running.peers)
            await until(lambda: again.payloads)
            await again.close()
        finally:
            for client in (one, two, three):
                await client.close()


@anyio
async def test_a_viewer_who_connects_anew_needs_no_second_port(free_ports: range) -> None:
    async with session(settings(udp_ports=str(free_ports[0]))) as running:
        one, again = Client("v"), Client("v")
        try:
            await one.join(running.peers)
            found = candidates(await again.join(running.peers))
            assert {port for _, port in found} == {free_ports[0]}
            await until(lambda: again.payloads)
            assert running.calls.left == []
        finally:
            await one.close()
            await again.close()


@anyio
async def test_two_servers_share_one_range(free_ports: range) -> None:
    media = settings(udp_ports=f"{free_ports[0]}-{free_ports[-1]}")
    async with session(media) as first, session(media) as second:
        one, two = Client("v"), Client("v")
        try:
            ports = [
                {port for _, port in candidates(await one.join(first.peers))},
                {port for _, port in candidates(await two.join(second.peers))},
            ]
            await until(lambda: one.payloads and two.payloads)
            assert ports[0] | ports[1] <= set(free_ports)
        finally:
            await one.close()
            await two.close()


@anyio
async def test_the_answer_names_the_public_address_and_the_port_that_is_bound(
    free_ports: range,
) -> None:
    media = settings(
        udp_ports=f"{free_ports[0]}-{free_ports[-1]}", public_address="203.0.113.7, 127.0.0.1"
    )
    async with session(media) as running:
        client = Client("v")
        try:
            found = candidates(await client.join(running.peers))
            assert {address for address, _ in found} == {"203.0.113.7", "127.0.0.1"}
            assert len({port for _, port in found}) == 1
            assert found[0][1] in free_ports
            with pytest.raises(NoFreePortError):
                bind_udp("127.0.0.1", range(found[0][1], found[0][1] + 1))
            await until(lambda: client.payloads)
        finally:
            await client.close()


@anyio
@pytest.mark.skipif(not HAS_IPV6, reason="this machine has no IPv6")
async def test_a_viewer_over_ipv6_loopback_gets_picture_and_sound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with session(settings(public_address="::1")) as running:
        client = Client("v")
        # The client too uses IPv6 only; its answers come from there.
        monkeypatch.setattr("aioice.ice.get_host_addresses", lambda **_: ["::1"])
        try:
            answer = await client.join(running.peers)
            assert {address for address, _ in candidates(answer)} == {"::1"}
            await until(lambda: client.payloads and client.sound)
            pair = client.pc.sctp.transport.transport._connection._nominated[1]
            assert (pair.local_addr[0], pair.remote_addr[0]) == ("::1", "::1")
        finally:
            await client.close()


@anyio
async def test_a_machine_without_a_network_offers_its_loopback_addresses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with session(small()) as running:
        client = Client("v1")
        try:
            await client.pc.setLocalDescription(await client.pc.createOffer())
            offer = client.pc.localDescription.sdp
            monkeypatch.setattr("aioice.ice.get_host_addresses", lambda **_: [])
            answer = await running.peers.offer("v1", offer, True)
            expected = {"127.0.0.1", "::1"} if HAS_IPV6 else {"127.0.0.1"}
            assert {address for address, _ in candidates(answer)} == expected
        finally:
            await client.close()


@pytest.mark.skipif(sys.platform != "linux", reason="other systems bind both by themselves")
@pytest.mark.skipif(not HAS_IPV6, reason="this machine has no IPv6")
def test_ipv4_and_ipv6_take_the_same_port_beside_each_other(free_ports: range) -> None:
    port = range(free_ports[0], free_ports[0] + 1)
    with bind_udp("::", port) as six, bind_udp("0.0.0.0", port) as four:
        assert six.family == socket.AF_INET6
        assert six.getsockname()[1] == four.getsockname()[1]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "50000-50100"),
        ("media", "50000-50100"),
        ("50100-50000", "write 50000-50100"),
        ("0-10", "1 to 65535"),
        ("60000-70000", "1 to 65535"),
        ("-5", "50000-50100"),
    ],
)
def test_port_ranges_that_cannot_be_used_are_refused_in_words(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse_ports(text)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("avatar.example.org", "host names"),
        ("203.0.113.7:80", "no IP address"),
        ("203.0.113.7/", "no IP address"),
        ("203.0.113.7/::1", "mixes"),
        ("0.0.0.0", "nobody"),
        ("239.1.1.1", "nobody"),
    ],
)
def test_public_addresses_that_cannot_be_used_are_refused_in_words(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse_public_addresses(text)
