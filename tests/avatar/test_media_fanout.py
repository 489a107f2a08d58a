"""The fan-out and a viewer's queue."""

from __future__ import annotations

import asyncio
import threading

import pytest

from avatar_server.avatar.fanout import Fanout, VideoQueue
from avatar_server.avatar.packets import EncodedAudio, EncodedVideo, Encoding

H264, VP8 = Encoding("h264", "full"), Encoding("vp8", "full")

pytestmark = pytest.mark.anyio


def frame(sequence: int, keyframe: bool = False, packets: int = 1) -> EncodedVideo:
    payloads = tuple(b"%d.%d" % (sequence, part) for part in range(packets))
    return EncodedVideo("h264", sequence, sequence * 3_000, keyframe, payloads, 10)


def drain(queue: VideoQueue) -> list[tuple[int, bytes, bool]]:
    items = []
    while (item := queue.pop()) is not None:
        items.append((item[0].sequence, item[1], item[2]))
    return items


def test_a_viewer_that_joined_gets_nothing_before_a_keyframe() -> None:
    queue = VideoQueue()
    assert not queue.push(frame(7))
    assert queue.push(frame(8, keyframe=True, packets=2))
    assert queue.push(frame(9))
    assert drain(queue) == [(8, b"8.0", False), (8, b"8.1", True), (9, b"9.0", True)]


def test_a_viewer_that_fell_behind_waits_for_the_next_keyframe() -> None:
    queue = VideoQueue(max_frames=3)
    queue.push(frame(0, keyframe=True))
    assert queue.push(frame(1))
    assert queue.push(frame(2))
    assert not queue.push(frame(3))
    assert not queue.push(frame(4))
    assert len(queue) == 0
    assert queue.overflows == 1
    assert queue.push(frame(5, keyframe=True))
    assert drain(queue) == [(5, b"5.0", True)]


def test_a_frame_lost_on_the_way_stops_video_until_a_keyframe() -> None:
    queue = VideoQueue()
    queue.push(frame(0, keyframe=True))
    drain(queue)
    assert not queue.push(frame(2))
    assert not queue.push(frame(3))
    assert queue.push(frame(4, keyframe=True))


def test_a_keyframe_takes_the_place_of_what_still_waits() -> None:
    queue = VideoQueue()
    queue.push(frame(0, keyframe=True, packets=3))
    queue.pop()
    queue.push(frame(1, keyframe=True))
    assert drain(queue) == [(1, b"1.0", True)]
    assert len(queue) == 0


class Sink:
    def __init__(self, *encodings: Encoding) -> None:
        self.encodings = frozenset(encodings)
        self.got: list[EncodedVideo | EncodedAudio] = []

    def on_video(self, frame: EncodedVideo) -> None:
        self.got.append(frame)

    def on_audio(self, packet: EncodedAudio) -> None:
        self.got.append(packet)


async def test_takers_of_an_encode_are_counted() -> None:
    fanout = Fanout(asyncio.get_running_loop())
    one, two = Sink(H264), Sink(H264, VP8)
    fanout.attach(one)
    fanout.attach(two)
    assert (fanout.takers(H264), fanout.takers(VP8)) == (2, 1)
    fanout.detach(two)
    assert (fanout.takers(H264), fanout.takers(VP8)) == (1, 0)


async def test_all_viewers_get_the_same_object_in_order_from_another_thread() -> None:
    fanout = Fanout(asyncio.get_running_loop())
    one, two, other = Sink(H264), Sink(H264), Sink(VP8)
    for sink in (one, two, other):
        fanout.attach(sink)
    assert fanout.encodings == {H264, VP8}
    sound = EncodedAudio(0, b"a")
    frames = [frame(i) for i in range(10)]

    def publish() -> None:
        for item in frames:
            fanout.publish(item)
        fanout.publish(sound)

    thread = threading.Thread(target=publish)
    thread.start()
    thread.join()
    assert fanout.backlog == 10
    await asyncio.sleep(0.01)
    assert fanout.backlog == 0
    assert all(a is b for a, b in zip(one.got, [*frames, sound], strict=True))
    assert all(a is b for a, b in zip(one.got, two.got, strict=True))
    assert other.got == [sound]
    fanout.detach(one)
    fanout.publish(sound)
    await asyncio.sleep(0.01)
    assert len(one.got) == 11
    assert len(two.got) == 12


async def test_a_stuck_event_loop_leaves_a_bounded_number_waiting() -> None:
    fanout = Fanout(asyncio.get_running_loop())
    sink = Sink(H264)
    fanout.attach(sink)
    for index in range(1_000):
        fanout.publish(frame(index))
    await asyncio.sleep(0.01)
    assert len(sink.got) == 64
    assert fanout.dropped == 936


async def test_after_close_nothing_is_delivered() -> None:
    fanout = Fanout(asyncio.get_running_loop())
    sink = Sink(H264)
    fanout.attach(sink)
    fanout.publish(frame(0))
    fanout.close()
    fanout.publish(frame(1))
    await asyncio.sleep(0.01)
    assert sink.got == []


async def test_that_nothing_comes_any_more_is_told_once_and_not_while_it_comes() -> None:
    fanout = Fanout(asyncio.get_running_loop())
    told: list[int] = []
    fanout.on_quiet(lambda: told.append(len(told)))
    for number in range(20):
        fanout.publish(frame(number))
        await asyncio.sleep(0.002)
    # On a machine with other work a sleep of 2 ms may last longer than the time after which it is
    # told; what counts is that it is not told each time.
    before = len(told)
    assert before < 10
    await asyncio.sleep(0.3)
    assert len(told) == before + 1
