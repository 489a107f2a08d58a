"""The viewer's microphone: order, loss, resampling."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from avatar_server.avatar.encoder import OpusEncoder
from avatar_server.avatar.microphone import Gap, Microphone, ReorderBuffer
from avatar_server.config import AudioSettings


def feed(buffer: ReorderBuffer, numbers: list[int], origin: int = 0) -> list[bytes | Gap]:
    out: list[bytes | Gap] = []
    for number in numbers:
        at = origin + number
        out += buffer.push(at & 0xFFFF, at * 960 & 0xFFFF_FFFF, b"%d" % number)
    return out


def test_packets_in_order_go_on_at_once() -> None:
    buffer = ReorderBuffer()
    for number in range(5):
        assert feed(buffer, [number]) == [b"%d" % number]


def test_a_packet_out_of_place_is_put_back() -> None:
    assert feed(ReorderBuffer(), [0, 2, 1, 3]) == [b"0", b"1", b"2", b"3"]


def test_a_lost_packet_is_given_up_after_three_later_ones_and_leaves_a_gap() -> None:
    buffer = ReorderBuffer()
    assert feed(buffer, [0, 2, 3]) == [b"0"]
    assert feed(buffer, [4]) == [Gap(960), b"2", b"3", b"4"]
    assert buffer.lost == 1
    assert feed(buffer, [1, 5]) == [b"5"]


def test_repeated_packets_are_left_out() -> None:
    assert feed(ReorderBuffer(), [0, 0, 1, 1, 0, 2]) == [b"0", b"1", b"2"]


def test_a_pause_of_the_sender_is_filled_but_not_without_end() -> None:
    buffer = ReorderBuffer()
    buffer.push(0, 0, b"a")
    assert buffer.push(1, 960 * 3, b"b") == [Gap(1920), b"b"]
    assert buffer.push(2, 960 * 500, b"c") == [Gap(48_000), b"c"]


@given(st.permutations(range(12)), st.integers(0, 1 << 32))
def test_whatever_the_order_nothing_is_repeated_or_turned_round(
    order: list[int], origin: int
) -> None:
    origin -= origin % (1 << 6)
    packets = [item for item in feed(ReorderBuffer(), order, origin) if not isinstance(item, Gap)]
    numbers = [int(item) for item in packets]
    assert numbers == sorted(set(numbers))


def tone_packets(count: int) -> list[bytes]:
    encoder = OpusEncoder(AudioSettings())
    t = np.arange(count * 960) / 48_000
    tone = (np.sin(2 * np.pi * 500 * t) * 10_000).astype(np.int16)
    packets = [encoder.encode(tone[k * 960 : (k + 1) * 960], k) for k in range(count)]
    return [packet.payload for packet in packets if packet is not None]


def test_a_tone_comes_through_at_16_khz_in_pieces_of_20_ms() -> None:
    microphone = Microphone()
    pieces = [
        piece
        for number, payload in enumerate(tone_packets(50))
        for piece in microphone.feed(number, number * 960, payload)
    ]
    assert 48 <= len(pieces) <= 50
    assert all(piece.shape == (320,) and piece.dtype == np.int16 for piece in pieces)
    heard = np.concatenate(pieces[10:40]).astype(float)
    peak = np.argmax(np.abs(np.fft.rfft(heard * np.hanning(len(heard)))))
    assert abs(peak * 16_000 / len(heard) - 500) < 3
    assert 8_000 < np.abs(heard).max() < 12_000


def test_sound_keeps_its_length_and_has_no_hole_when_packets_are_lost() -> None:
    microphone = Microphone()
    pieces = [
        piece
        for number, payload in enumerate(tone_packets(50))
        if number not in (20, 30, 31)
        for piece in microphone.feed(number, number * 960, payload)
    ]
    assert 48 <= len(pieces) <= 50
    assert microphone.lost == 3
    levels = [float(np.abs(piece).max()) for piece in pieces[5:45]]
    assert min(levels) > 1_000


def test_rubbish_in_a_packet_is_concealed() -> None:
    microphone = Microphone()
    payloads = tone_packets(10)
    payloads[5] = b"\xff"
    pieces = [
        piece
        for number, payload in enumerate(payloads)
        for piece in microphone.feed(number, number * 960, payload)
    ]
    assert len(pieces) >= 8
