"""RTP payloads of H.264 and VP8, read back with aiortc's depacketisers."""

from __future__ import annotations

import random

from aiortc.codecs.h264 import h264_depayload
from aiortc.codecs.vpx import vp8_depayload
from hypothesis import given
from hypothesis import strategies as st

from avatar_server.avatar.packets import packetize_h264, packetize_vp8, split_annexb

START = b"\x00\x00\x00\x01"


def unit(kind: int, size: int, seed: int = 1) -> bytes:
    body = bytes(random.Random(seed).choices(range(1, 256), k=size - 1))
    return bytes((0x60 | kind,)) + body


def test_start_codes_of_three_and_four_bytes_are_both_split() -> None:
    a, b, c = unit(7, 20), unit(8, 5), unit(5, 40)
    stream = START + a + b"\x00\x00\x01" + b + START + c
    assert list(split_annexb(stream)) == [a, b, c]


def test_parameter_sets_travel_together_and_a_large_slice_in_pieces() -> None:
    sps, pps, idr = unit(7, 25), unit(8, 6), unit(5, 5_000)
    payloads = packetize_h264(START + sps + START + pps + START + idr)
    assert payloads[0][0] & 0x1F == 24
    assert all(payload[0] & 0x1F == 28 for payload in payloads[1:])
    sizes = [len(payload) for payload in payloads[1:]]
    assert max(sizes) <= 1_180
    assert max(sizes) - min(sizes) <= len(sizes)
    assert b"".join(map(h264_depayload, payloads)) == START + sps + START + pps + START + idr


def test_sei_and_delimiters_are_left_out() -> None:
    slice_ = unit(1, 50)
    assert packetize_h264(START + unit(9, 2) + START + unit(6, 700) + START + slice_) == (slice_,)


@given(st.lists(st.tuples(st.sampled_from([1, 5, 7, 8]), st.integers(2, 4_000)), max_size=8))
def test_what_goes_in_comes_out_in_payloads_of_bounded_size(units: list[tuple[int, int]]) -> None:
    stream = b"".join(START + unit(kind, size, i) for i, (kind, size) in enumerate(units))
    payloads = packetize_h264(stream)
    assert all(0 < len(payload) <= 1_180 for payload in payloads)
    assert b"".join(map(h264_depayload, payloads)) == stream


@given(st.binary(min_size=1, max_size=5_000), st.integers(0, 100_000))
def test_vp8_frames_come_out_whole(frame: bytes, picture: int) -> None:
    payloads = packetize_vp8(frame, picture)
    assert all(len(payload) <= 1_180 for payload in payloads)
    assert b"".join(map(vp8_depayload, payloads)) == frame
    assert payloads[0][0] & 0x10
    assert not any(payload[0] & 0x10 for payload in payloads[1:])
