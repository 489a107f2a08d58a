"""Offers, candidates and events of viewers who send whatever they like."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from aiortc import RTCConfiguration, RTCPeerConnection
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from media_client import Client, session, small, until

from avatar_server.avatar.loop_errors import handle_loop_error
from avatar_server.avatar.peers import OfferError, Peers
from avatar_server.avatar.signalling import check_offer
from avatar_server.protocol.events import (
    DATA_CHANNEL,
    EventError,
    Notice,
    Text,
    decode_page_event,
    decode_server_event,
    encode_event,
)

CANDIDATES = """\
a=candidate:1467250027 1 udp 2122260223 192.0.2.7 46243 typ host generation 0 network-id 1
a=candidate:435653019 1 tcp 1518280447 192.0.2.7 9 typ host tcptype active generation 0
a=candidate:842163049 1 udp 1677729535 203.0.113.5 4500 typ srflx raddr 0.0.0.0 rport 0
a=candidate:3 1 udp 41885439 2001:db8::1 5000 typ relay raddr 203.0.113.5 rport 4500
a=candidate:9 1 udp 2122260223 3f8c9a1e-0000-4000-8000-000000000000.local 9 typ host
a=end-of-candidates
a=ssrc:1 cname:abc
a=ssrc-group:FID 1 2
a=extmap-allow-mixed
a=rtcp:9 IN IP4 0.0.0.0
a=sctpmap:5000 webrtc-datachannel 1024
a=fmtp:127 apt=126
a=rtcp-fb:* nack pli
b=AS:1
c=IN IP6 ::1""".splitlines()
"""Lines that browsers write and aiortc does not."""
WORDS = st.sampled_from(
    [
        "",
        "0",
        "-1",
        "65536",
        "99999999999999999999",
        "1e9",
        "inactive",
        "sendrecv",
        "*",
        "a b",
        "::",
    ]
) | st.text(max_size=12)


def real_offers() -> list[str]:
    """As aiortc makes them: listening only, with a microphone, with fewer sections."""

    async def make() -> list[str]:
        made = []
        for video, channel in ((True, True), (False, True), (True, False)):
            connection = RTCPeerConnection(RTCConfiguration(iceServers=[]))
            if channel:
                connection.createDataChannel(DATA_CHANNEL)
            connection.addTransceiver("audio", "sendrecv")
            if video:
                connection.addTransceiver("video", "recvonly")
            await connection.setLocalDescription(await connection.createOffer())
            made.append(connection.localDescription.sdp)
            await connection.close()
        return made

    return asyncio.run(make())


OFFERS = real_offers()


@st.composite
def offers(draw: Callable[[Any], Any], at_most: int = 6) -> str:
    """A real offer, mutated a few times."""
    lines: list[str] = draw(st.sampled_from(OFFERS)).splitlines()
    for _ in range(draw(st.integers(0, at_most))):
        at = draw(st.integers(0, max(0, len(lines) - 1)))
        line = lines[at] if lines else ""
        match draw(st.sampled_from(["cut", "twice", "swap", "more", "word", "value", "character"])):
            case "cut":
                del lines[at : at + draw(st.integers(1, 3))]
            case "twice":
                lines.insert(at, line)
            case "swap":
                lines.insert(draw(st.integers(0, len(lines))), lines.pop(at) if lines else "")
            case "more":
                lines.insert(at, draw(st.sampled_from(CANDIDATES)))
            case "word":
                words = line.split(" ")
                words[draw(st.integers(0, len(words) - 1))] = draw(WORDS)
                lines[at : at + 1] = [" ".join(words)]
            case "value":
                lines[at : at + 1] = [line.partition(":")[0] + ":" + draw(WORDS)]
            case "character":
                where = draw(st.integers(0, len(line)))
                lines[at : at + 1] = [line[:where] + draw(st.characters()) + line[where + 1 :]]
    return draw(st.sampled_from(["\r\n", "\n"])).join(lines) + "\r\n"


@settings(max_examples=600, derandomize=True, deadline=None, database=None)
@given(offers() | st.text(max_size=300) | st.text(max_size=300).map(lambda text: "v=0\r\n" + text))
def test_an_offer_is_taken_or_refused_in_words(offer: str) -> None:
    with contextlib.suppress(OfferError):
        check_offer(offer)
        return
    with pytest.raises(OfferError) as refused:
        check_offer(offer)
    refusal = refused.value
    assert 400 <= refusal.status < 500
    assert 0 < len(refusal.detail) < 2_000


class Faults:
    """What the event loop was told of exceptions that nobody caught."""

    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        handle_loop_error(loop, context)
        self.seen.append(context)


def held() -> tuple[int, int, int]:
    """Open files, tasks and threads of this process."""
    files = len(os.listdir("/proc/self/fd"))
    return files, len(asyncio.all_tasks()), threading.active_count()


async def answered(peers: Peers, offer: str) -> str:
    """The answer; empty where it was refused."""
    refusal: OfferError | None = None
    try:
        async with asyncio.timeout(15):
            return await peers.offer("v1", offer, True)
    except OfferError as error:
        refusal = error
    assert 400 <= refusal.status < 500, refusal
    return ""


def test_whatever_is_offered_leaves_nothing_behind() -> None:
    with asyncio.Runner() as runner:
        manager = session(small())
        running = runner.run(manager.__aenter__())
        faults = Faults()
        runner.get_loop().set_exception_handler(faults)
        taken = list[str]()

        @settings(
            max_examples=60,
            derandomize=True,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(offers(at_most=3))
        def offer_it(offer: str) -> None:
            async def scenario() -> None:
                if await answered(running.peers, offer):
                    taken.append(offer)
                    await asyncio.sleep(0.02)
                await running.peers.leave("v1", "the test goes on")
                assert running.peers.stats() == {}
                assert running.fanout.viewers == 0

            runner.run(scenario())

        runner.run(answered(running.peers, OFFERS[0]))
        runner.run(running.peers.leave("v1", "the test goes on"))
        before = runner.run(_held_soon())
        offer_it()
        assert len(taken) > 10

        async def after() -> None:
            await until(lambda: all(now <= then for now, then in zip(held(), before, strict=True)))

        runner.run(after())
        runner.run(manager.__aexit__(None, None, None))
        assert [str(context) for context in faults.seen] == []


async def _held_soon() -> tuple[int, int, int]:
    await asyncio.sleep(0.2)
    return held()


CANDIDATE = st.one_of(
    st.text(max_size=60),
    st.sampled_from(["", "a=end-of-candidates", "candidate:", "candidate:1 1 udp 1 1.2.3.4 5 typ"]),
    st.builds(
        lambda words, at, word: " ".join([*words[:at], word, *words[at + 1 :]]),
        st.sampled_from([line.removeprefix("a=").split() for line in CANDIDATES[:5]]),
        st.integers(0, 9),
        WORDS,
    ),
)


def test_candidates_are_taken_or_refused_in_words() -> None:
    with asyncio.Runner() as runner:
        manager = session(small())
        running = runner.run(manager.__aenter__())
        faults = Faults()
        runner.get_loop().set_exception_handler(faults)
        assert runner.run(answered(running.peers, OFFERS[0]))

        @settings(max_examples=300, derandomize=True, deadline=None, database=None)
        @given(
            CANDIDATE,
            st.none() | st.sampled_from(["0", "1", "2", "x"]),
            st.none() | st.integers(0, 64),
        )
        def trickle(candidate: str, mid: str | None, line: int | None) -> None:
            async def scenario() -> None:
                with contextlib.suppress(OfferError):
                    async with asyncio.timeout(10):
                        await running.peers.add_candidate("v1", candidate, mid, line)

            runner.run(scenario())

        trickle()
        runner.run(asyncio.sleep(0.1))
        runner.run(manager.__aexit__(None, None, None))
        assert [str(context) for context in faults.seen] == []


EVENTS = st.one_of(
    st.binary(max_size=200),
    st.text(max_size=200),
    st.sampled_from(
        [
            "[" * 10_000,
            '{"type":"ping","t":1e999}',
            '{"type":"ping","t":NaN}',
            '{"type":"ping","t":' + "9" * 4_000 + "}",
            '{"type":"text","text":"\\ud800"}',
            '{"type":"text","text":"\\u0000' + "x" * 16_000 + '"}',
            '{"type":"hello"}',
            b"\xff\xfe",
        ]
    ),
    st.recursive(
        st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(max_size=10),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner),
        max_leaves=8,
    ).map(lambda value: msgspec.json.encode({"type": "text", "text": value, "t": value})),
)


@settings(max_examples=500, derandomize=True, deadline=None, database=None)
@given(EVENTS)
def test_an_event_is_one_of_ours_or_refused_in_words(data: str | bytes) -> None:
    with contextlib.suppress(EventError):
        encode_event(decode_page_event(data))
        return
    with pytest.raises(EventError) as refused:
        decode_page_event(data)
    encode_event(Notice(code="bad-event", message=str(refused.value)[:300]))


@pytest.mark.anyio
async def test_a_viewer_who_sends_nonsense_is_told_so_and_stays() -> None:
    faults = Faults()
    asyncio.get_running_loop().set_exception_handler(faults)
    async with session(small()) as running:
        client = Client("v1")
        try:
            await client.join(running.peers)
            for message in ("nonsense", b"\x00\xff", '{"type":"hello"}', "x" * 20_000, b""):
                client.channel.send(message)
            client.send(Text(text="still here"))
            await until(lambda: ("v1", Text(text="still here")) in running.calls.events)

            def notices() -> int:
                events = [decode_server_event(message) for message in client.messages]
                return sum(isinstance(event, Notice) for event in events)

            await until(lambda: notices() == 5)
            assert running.peers.viewers() == ["v1"]
        finally:
            await client.close()
    assert [str(context) for context in faults.seen] == []


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("stream", "kind", "data"),
    [
        (0, 51, b"\xff\xfe\xfd"),
        (9, 50, b"\x03" + bytes(7) + b"\x00\x02\x00\x00\xff\xff"),
        (0, 50, b"\x03" + bytes(11)),
        (77, 50, b"\x02"),
    ],
    ids=["a text that is not UTF-8", "a name that is not UTF-8", "opened twice", "never opened"],
)
async def test_who_breaks_the_data_channel_loses_only_their_own_connection(
    stream: int, kind: int, data: bytes
) -> None:
    faults = Faults()
    asyncio.get_running_loop().set_exception_handler(faults)
    async with session(small()) as running:
        rude, other = Client("rude"), Client("other")
        try:
            await asyncio.gather(rude.join(running.peers), other.join(running.peers))
            sctp: Any = rude.pc.sctp
            await sctp._send(rude.channel.id if stream == 0 else stream, kind, data)
            await until(lambda: running.peers.viewers() == ["other"])
            await until(lambda: running.fanout.viewers == 1)
            seen = len(other.payloads)
            await until(lambda: len(other.payloads) > seen + 5)
        finally:
            await asyncio.gather(rude.close(), other.close())
    assert [str(context) for context in faults.seen] == []
