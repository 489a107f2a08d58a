"""Viewers made of aiortc, over loopback, with a real encoder."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import time

import numpy as np
import pytest
from aiortc import RTCSessionDescription, rtp
from media_client import Client, Session, session, small, until

from avatar_server.avatar.peers import OfferError
from avatar_server.avatar.viewer import Viewer
from avatar_server.config import MediaSettings
from avatar_server.protocol.events import Bye, Notice, Ping, Text, decode_server_event

pytestmark = pytest.mark.anyio


async def test_a_viewer_gets_720p_h264_at_30_frames_of_rtp_time_and_sound() -> None:
    async with session() as running:
        client = Client("v1")
        before = time.monotonic()
        answer = await client.join(running.peers)
        try:
            await until(lambda: client.pictures)
            first = client.pictures[0][0] - before
            await until(lambda: len(client.payloads) > 60 and len(client.sound) > 60)
            assert "H264/90000" in answer
            assert "42e01f" in answer
            assert "useinbandfec=1" in answer
            assert client.pictures[-1][2].shape == (720, 1280)
            # On a machine with other work frames may be left out, but never moved.
            times = sorted({timestamp for timestamp, _, _ in client.payloads})
            steps = np.diff(times)
            assert np.median(steps) == 3_000
            assert not np.any(steps % 3_000)
            assert first < 5.0
            heard = np.concatenate([pcm for _, pcm in client.sound[20:40]]).astype(float)
            spectrum = np.abs(np.fft.rfft(heard * np.hanning(len(heard))))
            assert abs(np.argmax(spectrum) * 48_000 / len(heard) - 440) < 5
            assert running.peers.viewers() == ["v1"]
            assert running.calls.joined == [("v1", True)]
        finally:
            await client.close()
        await until(lambda: running.calls.left)
        assert running.fanout.viewers == 0


async def test_two_viewers_get_the_same_bytes() -> None:
    async with session(small()) as running:
        one, two = Client("one"), Client("two")
        try:
            await one.join(running.peers)
            await two.join(running.peers)
            await until(lambda: len(one.payloads) > 60 and len(two.payloads) > 40)
            ours = [payload for _, _, payload in two.payloads[:40]]
            theirs = [payload for _, _, payload in one.payloads]
            start = theirs.index(ours[0])
            assert theirs[start : start + 40] == ours
            assert one.payloads[start][1:2] != two.payloads[0][1:2]
        finally:
            await asyncio.gather(one.close(), two.close())


def keyframes(client: Client) -> list[int]:
    """Times of the pictures that begin with parameter sets."""
    return [at for at, _, data in client.payloads if data[0] & 0x1F == 24 and data[3] & 0x1F == 7]


async def test_a_picture_loss_is_answered_with_a_keyframe_for_all_but_not_too_often() -> None:
    async with session(small()) as running:
        client = Client("v1")
        try:
            await client.join(running.peers)
            await until(lambda: len(client.payloads) > 20)
            # Joining asks for one; a second may follow it.
            await asyncio.sleep(0.8)
            before = len(keyframes(client))
            await client.ask_keyframe()
            await until(lambda: len(keyframes(client)) == before + 1, 1.5)
            for _ in range(10):
                await client.ask_keyframe()
                await asyncio.sleep(0.05)
            await asyncio.sleep(0.6)
            times = keyframes(client)[before:]
            assert 2 <= len(times) <= 4
            assert min(np.diff(times)) >= 0.5 * 90_000
        finally:
            await client.close()


async def test_a_viewer_who_joins_later_sees_a_picture_at_once() -> None:
    async with session(small()) as running:
        first, late = Client("first"), Client("late")
        try:
            await first.join(running.peers)
            await until(lambda: len(first.payloads) > 30)
            await late.join(running.peers)
            opened = asyncio.get_running_loop().time()
            await until(lambda: late.pictures, 3)
            assert late.pictures[0][0] - opened < 1.0
            assert late.payloads[0][2][0] & 0x1F == 24
        finally:
            await asyncio.gather(first.close(), late.close())


async def test_a_lost_packet_is_sent_again() -> None:
    async with session(small()) as running:
        client = Client("v1")
        try:
            await client.join(running.peers)
            await until(lambda: len(client.payloads) > 30)
            known = client.payloads[-1]
            seen = len(client.payloads)
            await client.video.receiver._send_rtcp_nack(client.payload_ssrc, [known[1]])
            await until(lambda: running.peers.stats()["v1"]["retransmitted"] == 1, 3)
            await until(lambda: len(client.payloads) > seen + 5)
            again = [
                data
                for _, _, data in client.payloads[seen:]
                if data == known[1].to_bytes(2) + known[2]
            ]
            assert len(again) == 1
        finally:
            await client.close()


async def test_reports_give_sound_and_picture_one_clock() -> None:
    async with session(small()) as running:
        client = Client("v1")
        try:
            await client.join(running.peers)
            await until(lambda: len(client.payloads) > 30 and len(client.sound) > 30)

            def reports(kind: str) -> list[rtp.RtcpSenderInfo]:
                return [
                    packet.sender_info
                    for of, packet in client.reports
                    if of == kind and isinstance(packet, rtp.RtcpSrPacket)
                ]

            await until(lambda: len(reports("audio")) > 2 and len(reports("video")) > 2)
            for kind, rate in (("audio", 48_000), ("video", 90_000)):
                first, last = reports(kind)[0], reports(kind)[-1]
                seconds = (last.ntp_timestamp - first.ntp_timestamp) / (1 << 32)
                ticks = (last.rtp_timestamp - first.rtp_timestamp) & 0xFFFF_FFFF
                assert seconds > 0.2
                assert abs(ticks / rate - seconds) < 0.001
            # A picture's media time is drawn into it; its RTP time through the report must agree.
            report = reports("video")[-1]
            timeline = running.engine.timeline
            media_time = report.ntp_timestamp / (1 << 32) - timeline.ntp_epoch
            base = report.rtp_timestamp - media_time * 90_000
            offset = (client.payloads[-1][0] - base) % (1 << 32) / 90_000
            assert min(abs(offset - at) for at in running.source.drawn[-60:]) < 0.002
        finally:
            await client.close()


async def test_a_viewer_without_h264_gets_vp8() -> None:
    async with session(small()) as running:
        client, other = Client("v1", codec="VP8"), Client("v2")
        try:
            await client.join(running.peers)
            await other.join(running.peers)
            await until(lambda: len(client.pictures) > 10 and len(other.pictures) > 10)
            assert client.pictures[-1][2].shape == (180, 320)
            codecs = {name: stats["codec"] for name, stats in running.peers.stats().items()}
            assert codecs == {"v1": "vp8", "v2": "h264"}
        finally:
            await asyncio.gather(client.close(), other.close())


async def test_events_go_both_ways_and_rubbish_is_answered_in_words() -> None:
    async with session(small()) as running:
        client = Client("v1")
        try:
            await client.join(running.peers)
            client.send(Ping(t=4.5))
            client.send(Text(text="hello"))
            client.channel.send("{rubbish")
            await until(lambda: len(client.messages) == 2 and running.calls.events)
            assert running.calls.events == [("v1", Text(text="hello"))]
            notice = decode_server_event(client.messages[1])
            assert client.messages[0] == '{"type":"pong","t":4.5}'
            assert isinstance(notice, Notice)
            assert notice.code == "bad-event"
            running.peers.send(Notice(code="x", message="for all"))
            running.peers.send(Notice(code="x", message="for nobody"), "someone else")
            await until(lambda: len(client.messages) == 3)
            client.send(Bye())
            await until(lambda: running.calls.left == [("v1", "said goodbye")])
        finally:
            await client.close()


async def test_the_microphone_comes_in_as_16_khz_pieces() -> None:
    async with session(small()) as running:
        client = Client("v1", microphone=True)
        try:
            await client.join(running.peers)
            await until(lambda: len(running.calls.audio) > 25)
            assert all(piece.shape == (320,) for piece in running.calls.audio)
            assert running.calls.audio[0].dtype == np.int16
        finally:
            await client.close()


async def test_a_watcher_is_not_listened_to() -> None:
    async with session(small()) as running:
        client = Client("v1", microphone=True)
        try:
            await client.join(running.peers, can_speak=False)
            await until(lambda: len(client.sound) > 20)
            assert running.calls.audio == []
            assert running.calls.joined == [("v1", False)]
        finally:
            await client.close()


async def test_a_viewer_that_vanishes_is_noticed_whatever_ice_believes() -> None:
    settings = small().model_copy(update={"viewer_timeout_s": 1.5})
    async with session(settings) as running:
        client = Client("v1")
        try:
            await client.join(running.peers)
            await until(lambda: client.payloads)
            client.vanish()
            gone = time.monotonic()
            await until(lambda: running.calls.left, 8)
            assert running.calls.left == [("v1", "nothing was heard of it any more")]
            assert 0.9 < time.monotonic() - gone < 2.0
            assert running.peers.viewers() == []
            assert running.fanout.viewers == 0
        finally:
            await client.close()


async def test_a_viewer_who_joins_again_takes_its_own_place() -> None:
    async with session(small(), max_viewers=1) as running:
        one, again, other = Client("v1"), Client("v1"), Client("v2")
        try:
            await one.join(running.peers)
            with pytest.raises(OfferError, match="full") as full:
                await other.join(running.peers, wait=False)
            assert full.value.status == 503
            await again.join(running.peers)
            await until(lambda: again.payloads)
            assert running.calls.left == []
            assert running.calls.returned == [("v1", True)]
            assert running.peers.viewers() == ["v1"]
        finally:
            await asyncio.gather(one.close(), again.close(), other.close())


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


async def visit(running: Session, name: str) -> None:
    client = Client(name, microphone=True)
    await client.join(running.peers)
    await client.close()
    await until(lambda: name not in running.peers.stats())


async def test_joins_and_leaves_leave_nothing_behind() -> None:
    async with session(small()) as running:
        watcher = Client("watcher")
        await watcher.join(running.peers)
        await until(lambda: watcher.payloads)
        await visit(running, "warm-up")
        await asyncio.sleep(0.2)
        files, threads, tasks = open_files(), threading.active_count(), len(asyncio.all_tasks())
        for index in range(30):
            await visit(running, f"v{index}")
        await until(lambda: open_files() <= files)
        await until(lambda: len(asyncio.all_tasks()) <= tasks + 2)
        # aiortc's clients share a small pool of threads for encoding, which may still grow.
        assert threading.active_count() <= threads + 6
        assert len(running.calls.left) == 31
        gc.collect()
        assert [o.name for o in gc.get_objects() if isinstance(o, Viewer)] == ["watcher"]
        # The other viewer missed nothing.
        numbers = [number for _, number, _ in watcher.payloads]
        assert set(np.diff(numbers) % 65_536) == {1}
        await watcher.close()


async def test_without_viewers_nothing_is_drawn_but_media_time_and_sound_go_on() -> None:
    async with session(small()) as running:
        await asyncio.sleep(0.4)
        assert running.source.drawn == []
        assert 0.2 < running.source.samples / 48_000 < 0.8
        client = Client("v1")
        try:
            await client.join(running.peers)
            await until(lambda: client.pictures)
            assert running.source.drawn[0] > 0.3
        finally:
            await client.close()


async def test_settings_of_the_encoder_change_while_it_runs() -> None:
    async with session(small()) as running:
        client = Client("v1")
        try:
            await client.join(running.peers)
            await until(lambda: len(client.pictures) > 20)
            before = len(keyframes(client))
            running.engine.set_quality(preset="superfast", crf=40, max_bitrate_bps=200_000)
            await until(lambda: len(keyframes(client)) > before)
            seen = len(client.pictures)
            await until(lambda: len(client.pictures) > seen + 10)
            assert client.pictures[-1][2].shape == (180, 320)
            running.engine.set_quality(fps=10)
            await until(lambda: len(client.pictures) > seen + 25)
            assert set(np.diff([at for _, at, _ in client.pictures[-10:]])) == {9_000}
            assert running.engine.video_settings.crf == 40
            with pytest.raises(ValueError, match="preset"):
                running.engine.set_quality(preset="slowest", crf=20)
            with pytest.raises(ValueError, match="divide"):
                running.engine.set_quality(fps=7, crf=20)
            assert running.engine.video_settings.crf == 40
        finally:
            await client.close()


@pytest.mark.parametrize(
    ("change", "status", "says"),
    [
        (lambda sdp: "hello", 400, "RTCPeerConnection.createOffer"),
        (lambda sdp: "v=0\r\nm=audio x y", 400, "cannot be read"),
        (lambda sdp: sdp[: sdp.index("m=application")], 400, "data channel"),
        (lambda sdp: sdp.replace("recvonly", "inactive"), 400, "inactive"),
        (lambda sdp: sdp.replace("a=ice-ufrag", "a=x-none"), 400, "ICE user name"),
        (lambda sdp: sdp.replace("H264", "H265").replace("VP8", "AV1"), 406, "H.264 or VP8"),
        (lambda sdp: sdp.replace("opus", "mp4a"), 406, "Opus"),
        (lambda sdp: "v=0" + "x" * 70_000, 400, "at most 65536"),
    ],
)
async def test_an_offer_that_cannot_be_met_is_refused_in_words(
    change: object, status: int, says: str
) -> None:
    async with session(small()) as running:
        client = Client("v1")
        await client.pc.setLocalDescription(await client.pc.createOffer())
        with pytest.raises(OfferError) as refused:
            await running.peers.offer("v1", change(client.pc.localDescription.sdp), True)  # type: ignore[operator]
        await client.close()
        assert refused.value.status == status
        assert says in refused.value.detail
        assert running.peers.stats() == {}


async def test_mdns_candidates_do_not_stand_in_the_way() -> None:
    async with session(small()) as running:
        client = Client("v1")
        try:
            await client.pc.setLocalDescription(await client.pc.createOffer())
            lines = []
            for line in client.pc.localDescription.sdp.splitlines():
                fields = line.split()
                if line.startswith("a=candidate"):
                    fields[4] = "3f8c9a1e-0000-4000-8000-000000000000.local"
                lines.append(" ".join(fields))
            answer = await running.peers.offer("v1", "\r\n".join(lines) + "\r\n", True)
            await running.peers.add_candidate("v1", "candidate:1 1 udp 1 a.local 9 typ host", "0")
            client._tap()
            await client.pc.setRemoteDescription(RTCSessionDescription(answer, "answer"))
            await until(lambda: client.payloads)
        finally:
            await client.close()


async def test_a_candidate_that_cannot_be_read_is_refused_in_words() -> None:
    async with session(small()) as running:
        client = Client("v1")
        try:
            await client.join(running.peers)
            with pytest.raises(OfferError, match="candidate"):
                await running.peers.add_candidate("v1", "candidate:rubbish", "0")
            await running.peers.add_candidate("nobody", "candidate:rubbish", "0")
        finally:
            await client.close()


async def test_close_ends_every_viewer_and_refuses_new_ones() -> None:
    running = Session(MediaSettings(video=small().video))
    one, two = Client("one"), Client("two")
    await one.join(running.peers)
    await two.join(running.peers)
    await running.peers.close("the session ended")
    assert sorted(running.calls.left) == [
        ("one", "the session ended"),
        ("two", "the session ended"),
    ]
    with pytest.raises(OfferError, match="ended"):
        await running.peers.offer("late", "v=0", True)
    await running.close()
    await asyncio.gather(one.close(), two.close())
    assert not [t for t in threading.enumerate() if t.name.startswith("media-")]


async def test_a_still_picture_goes_on_at_30_frames_of_a_few_bytes() -> None:
    async with session(small()) as running:
        client = Client("v1")
        try:
            await client.join(running.peers)
            await until(lambda: len(client.pictures) > 10)
            running.source.still = True
            await until(lambda: len(client.payloads) > 20 and len(client.payloads[-1][2]) < 20)
            seen = len(client.pictures)
            await until(lambda: len(client.pictures) > seen + 20)
            assert np.array_equal(client.pictures[-1][2], client.pictures[-10][2])
            # A viewer who joins meanwhile gets a keyframe of it, and motion goes on after.
            late = Client("late")
            await late.join(running.peers)
            await until(lambda: len(late.pictures) > 5)
            running.source.still = False
            drawn = len(running.source.drawn)
            await until(lambda: len(running.source.drawn) > drawn + 15)
            seen = len(late.pictures)
            await until(lambda: len(late.pictures) > seen + 5)
            assert not np.array_equal(late.pictures[-1][2], late.pictures[-5][2])
            await late.close()
        finally:
            await client.close()
