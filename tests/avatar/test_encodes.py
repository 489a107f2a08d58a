"""The session's encodes: made when wanted, moved between on keyframes."""

from __future__ import annotations

from collections.abc import Iterable

import av
import pytest
from aiortc.codecs.h264 import h264_depayload

from avatar_server.avatar.encoder import EncoderError, H264Encoder
from avatar_server.avatar.encodes import Encodes, layer_settings, low_size
from avatar_server.avatar.packets import EncodedVideo, Encoding
from avatar_server.config import VideoSettings
from renderers.contract import I420Frame

SETTINGS = VideoSettings(width=320, height=180)
FULL, LOW, VP8 = Encoding("h264", "full"), Encoding("h264", "low"), Encoding("vp8", "full")


class Rig:
    def __init__(self) -> None:
        self.encodes = Encodes(SETTINGS)
        self.number = 0
        self.frame = I420Frame.empty(320, 180)

    def run(self, count: int, *wanted: Encoding) -> list[list[EncodedVideo]]:
        made = []
        for _ in range(count):
            self.frame.data[:] = 128
            self.frame.y[:, self.number % 200 : self.number % 200 + 60] = 220
            made.append(self.encodes.encode(self.frame, frozenset(wanted), 3_000 * self.number, 0))
            self.number += 1
        return made


def keyframes(made: list[list[EncodedVideo]], encoding: Encoding) -> list[int]:
    return [k for k, each in enumerate(made) for e in each if e.encoding == encoding and e.keyframe]


def sizes(frames: Iterable[EncodedVideo]) -> set[tuple[int, int]]:
    decoder = av.CodecContext.create("h264", "r")
    decoder.thread_count = 1
    pictures = []
    for frame in frames:
        stream = b"".join(map(h264_depayload, frame.payloads))
        pictures += decoder.decode(av.Packet(stream))
    return {(p.width, p.height) for p in pictures + decoder.decode(None)}


def test_each_picture_is_encoded_once_for_each_encoding_that_is_wanted() -> None:
    rig = Rig()
    assert [[e.encoding for e in each] for each in rig.run(3, FULL)] == [[FULL]] * 3
    both = rig.run(5, FULL, LOW)
    assert all({e.encoding for e in each} == {FULL, LOW} for each in both)
    assert sizes(e for each in both for e in each if e.encoding == LOW) == {(160, 88)}
    assert all(len({e.timestamp for e in each}) == 1 for each in both)
    alone = rig.run(3, LOW)
    assert [[e.encoding for e in each] for each in alone] == [[LOW]] * 3


def test_an_encode_that_begins_does_so_with_a_keyframe_and_disturbs_no_other() -> None:
    rig = Rig()
    rig.run(10, FULL)
    both = rig.run(10, FULL, LOW)
    assert keyframes(both, LOW) == [0]
    assert keyframes(both, FULL) == []
    # First, so that a viewer who is moved was not sent this picture yet.
    assert both[0][0].encoding == LOW


def test_a_request_is_for_one_encode_and_comes_first() -> None:
    rig = Rig()
    rig.run(30, FULL, LOW)
    rig.encodes.request_keyframe([LOW])
    both = rig.run(5, FULL, LOW)
    assert (keyframes(both, LOW), keyframes(both, FULL)) == ([0], [])
    rig.encodes.request_keyframe([FULL])
    both = rig.run(5, FULL, LOW)
    assert both[0][0].encoding == FULL


def test_no_encode_makes_two_keyframes_within_half_a_second() -> None:
    rig = Rig()
    made = rig.run(4, FULL)
    rig.encodes.request_keyframe([FULL])
    made += rig.run(26, FULL)
    assert keyframes(made, FULL) == [0, 15]


def test_other_settings_are_used_from_the_next_keyframe_of_each_encode() -> None:
    rig = Rig()
    rig.run(3, FULL, LOW, VP8)
    rig.encodes.configure(SETTINGS.model_copy(update={"crf": 45.0}))
    made = rig.run(27, FULL, LOW, VP8)
    assert keyframes(made, FULL) == keyframes(made, LOW) == keyframes(made, VP8) == [12]


def test_the_smaller_picture_is_never_better_than_the_full_one() -> None:
    worse = layer_settings(SETTINGS.model_copy(update={"crf": 40.0}), LOW)
    assert worse.crf == 40
    assert worse.max_bitrate_bps == SETTINGS.min_bitrate_bps
    assert layer_settings(SETTINGS, LOW).crf == SETTINGS.low.crf
    assert low_size(VideoSettings()) == (640, 360)
    assert low_size(VideoSettings(width=720, height=1280)) == (360, 640)


def test_an_encode_that_fails_is_counted_and_takes_no_other_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    encode = H264Encoder.encode

    def failing(
        self: H264Encoder, frame: I420Frame, timestamp: int, key: bool, gentle: bool
    ) -> EncodedVideo:
        if frame.width == 160 and timestamp == 9_000:
            raise EncoderError("broken")
        return encode(self, frame, timestamp, key, gentle)

    monkeypatch.setattr(H264Encoder, "encode", failing)
    rig = Rig()
    made = rig.run(6, FULL, LOW)
    assert [len(each) for each in made] == [2, 2, 2, 1, 2, 2]
    assert rig.encodes.failed == 1


def test_a_keyframe_is_gentle_where_all_who_asked_say_so_and_those_by_time_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gentle_ones: list[tuple[int, bool]] = []
    encode = H264Encoder.encode

    def seen(
        self: H264Encoder, frame: I420Frame, timestamp: int, key: bool, gentle: bool
    ) -> EncodedVideo:
        if key:
            gentle_ones.append((timestamp // 3_000, gentle))
        return encode(self, frame, timestamp, key, gentle)

    monkeypatch.setattr(H264Encoder, "encode", seen)
    rig = Rig()
    rig.encodes.request_keyframe([FULL], gentle=True)
    rig.run(30, FULL)
    rig.encodes.request_keyframe([FULL], gentle=True)
    rig.encodes.request_keyframe([FULL])
    rig.run(30, FULL)
    rig.encodes.request_keyframe([FULL], gentle=True)
    rig.run(400, FULL)
    assert gentle_ones == [(0, True), (30, False), (60, True), (360, False)]
