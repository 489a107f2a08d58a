"""Whole pictures and gaps in the sound, from made-up packets."""

from __future__ import annotations

import random

import pytest

from avatar_server.loadtest.streams import (
    Gap,
    Packet,
    Picture,
    PictureAssembler,
    Unwrap,
    audio_gaps,
    starts_keyframe,
)

BLOCK_S = 0.02


def packets_of(
    frames: int, per_frame: int = 3, *, first: int = 0, keyframes: tuple[int, ...] = (0,)
) -> list[Packet]:
    """A stream of 30 pictures a second whose packets arrive in order, 1 ms apart."""
    return [
        Packet(
            sequence=(first + frame * per_frame + part) & 0xFFFF,
            timestamp=(90_000 + frame * 3_000) & 0xFFFF_FFFF,
            marker=part == per_frame - 1,
            starts_keyframe=part == 0 and frame in keyframes,
            size=1_000,
            arrived=frame / 30 + part / 1_000,
        )
        for frame in range(frames)
        for part in range(per_frame)
    ]


def assembled(packets: list[Packet]) -> tuple[list[Picture], PictureAssembler]:
    assembler = PictureAssembler()
    return [picture for packet in packets for picture in assembler.add(packet)], assembler


def test_a_picture_is_shown_when_its_last_packet_has_come() -> None:
    pictures, _ = assembled(packets_of(3))
    assert [picture.pts for picture in pictures] == [0, 3_000, 6_000]
    assert [picture.shown for picture in pictures] == pytest.approx(
        [0.002, 1 / 30 + 0.002, 2 / 30 + 0.002]
    )
    assert [picture.size for picture in pictures] == [3_000] * 3
    assert [picture.keyframe for picture in pictures] == [True, False, False]


def test_nothing_is_shown_before_the_first_keyframe() -> None:
    pictures, _ = assembled(packets_of(4, keyframes=(2,)))
    assert [picture.pts for picture in pictures] == [6_000, 9_000]


def test_packets_in_any_order_make_the_same_pictures() -> None:
    packets = packets_of(10)
    # The one that a stream begins with comes first: before it, the beginning is not known.
    mixed = packets[1:]
    random.Random(1).shuffle(mixed)
    pictures, assembler = assembled([packets[0], *mixed])
    assert [picture.pts for picture in pictures] == [3_000 * n for n in range(10)]
    assert assembler.lost == 0


def test_later_pictures_wait_for_a_packet_that_is_sent_again() -> None:
    packets = packets_of(4)
    late = packets.pop(4)
    again = Packet(late.sequence, late.timestamp, late.marker, False, late.size, arrived=0.2)
    pictures, _ = assembled([*packets, again])
    assert [picture.pts for picture in pictures] == [0, 3_000, 6_000, 9_000]
    assert [picture.shown for picture in pictures[1:]] == pytest.approx([0.2, 0.2, 0.2])


def test_a_keyframe_makes_what_was_lost_before_it_unnecessary() -> None:
    packets = packets_of(6, keyframes=(0, 4))
    del packets[4]
    pictures, assembler = assembled(packets)
    assert [picture.pts for picture in pictures] == [0, 12_000, 15_000]
    assert assembler.lost == 1


def test_a_packet_of_the_keyframe_itself_is_waited_for() -> None:
    packets = packets_of(5, keyframes=(0, 3))
    missing = packets.pop(10)
    del packets[4]
    pictures, assembler = assembled(packets)
    assert [picture.pts for picture in pictures] == [0]
    more = assembler.add(missing)
    assert [picture.pts for picture in more] == [9_000, 12_000]


def test_a_packet_that_comes_twice_counts_once() -> None:
    packets = packets_of(3)
    pictures, _ = assembled([packet for packet in packets for _ in range(2)])
    assert len(pictures) == 3
    assert pictures[0].size == 3_000


def test_sequence_numbers_and_timestamps_may_wrap() -> None:
    packets = [
        Packet(
            (65_530 + n) & 0xFFFF,
            (2**32 - 6_000 + n * 3_000) & 0xFFFF_FFFF,
            True,
            n == 0,
            9,
            n / 30,
        )
        for n in range(12)
    ]
    pictures, _ = assembled(packets)
    assert [picture.pts for picture in pictures] == [3_000 * n for n in range(12)]


def test_a_counter_goes_on_past_its_wrap_and_takes_steps_back() -> None:
    unwrap = Unwrap(16)
    assert [unwrap(n) for n in (65_534, 1, 65_535, 2)] == [65_534, 65_537, 65_535, 65_538]


@pytest.mark.parametrize(
    ("codec", "payload", "expected"),
    [
        ("h264", bytes((0x67, 1)), True),  # a parameter set
        ("h264", bytes((0x65, 1)), True),  # an IDR slice
        ("h264", bytes((0x78, 0, 9, 0x67)), True),  # STAP-A that begins with a parameter set
        ("h264", bytes((0x78, 0, 9, 0x61)), False),
        ("h264", bytes((0x61, 1)), False),
        ("h264", bytes((0x7C, 0x85)), False),  # FU-A: an IDR slice's parameter sets come first
        ("vp8", bytes((0x90, 0x80, 0x80, 0x01, 0x00)), True),
        ("vp8", bytes((0x90, 0x80, 0x80, 0x01, 0x01)), False),
        ("vp8", bytes((0x80, 0x80, 0x80, 0x01, 0x00)), False),  # not the beginning
        ("vp8", bytes((0x10, 0x00)), True),
        ("h264", b"", False),
    ],
)
def test_the_beginning_of_a_keyframe_is_known_by_its_payload(
    codec: str, payload: bytes, expected: bool
) -> None:
    assert starts_keyframe(codec, payload) is expected


def sound(count: int, delay_s: float = 0.005) -> list[tuple[int, float]]:
    return [(n * 960, n * BLOCK_S + delay_s) for n in range(count)]


def test_steady_sound_has_no_gap() -> None:
    assert audio_gaps(sound(500), buffer_s=0.1) == []


def test_sound_as_late_as_the_player_holds_back_is_no_gap() -> None:
    packets = sound(100)
    packets[50] = (packets[50][0], packets[50][1] + 0.1)
    assert audio_gaps(packets, buffer_s=0.1) == []
    packets[50] = (packets[50][0], packets[50][1] + 0.001)
    assert [gap.length_s for gap in audio_gaps(packets, buffer_s=0.1)] == [BLOCK_S]


def test_a_lost_packet_is_a_gap_of_its_length_where_it_was_due() -> None:
    packets = sound(100)
    del packets[50:52]
    (gap,) = audio_gaps(packets, buffer_s=0.1)
    assert gap.length_s == pytest.approx(2 * BLOCK_S)
    assert gap.at == pytest.approx(50 * BLOCK_S + 0.005 + 0.1)


def test_packets_that_come_late_one_after_another_are_one_gap() -> None:
    packets = [
        (pts, arrived + (0.15 if 40 <= n < 45 else 0.0))
        for n, (pts, arrived) in enumerate(sound(100))
    ]
    (gap,) = audio_gaps(packets, buffer_s=0.1)
    assert gap.length_s == pytest.approx(5 * BLOCK_S)


def test_the_order_of_arrival_and_repeated_packets_do_not_matter() -> None:
    packets = sound(60)
    mixed = [*packets, *packets[:10]]
    random.Random(2).shuffle(mixed)
    assert audio_gaps(mixed, buffer_s=0.1) == []


def test_a_network_that_becomes_slower_is_learned_after_ten_seconds() -> None:
    packets = [
        (pts, arrived + (0.15 if n >= 500 else 0.0)) for n, (pts, arrived) in enumerate(sound(1500))
    ]
    (gap,) = audio_gaps(packets, buffer_s=0.1)
    assert 9.5 < gap.length_s < 10.5


def test_no_sound_has_no_gaps() -> None:
    assert audio_gaps([], buffer_s=0.1) == list[Gap]()
