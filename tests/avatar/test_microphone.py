"""The viewer's microphone: order, loss, resampling."""

from __future__ import annotations

import os
import random
import sys
from fractions import Fraction

import av
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from avatar_server.avatar.encoder import OpusEncoder
from avatar_server.avatar.microphone import Gap, Microphone, ReorderBuffer, packet_samples
from avatar_server.config import AudioSettings


def feed(buffer: ReorderBuffer, numbers: list[int], origin: int = 0) -> list[bytes | Gap]:
    out: list[bytes | Gap] = []
    for number in numbers:
        at = origin + number
        out += buffer.push(at & 0xFFFF, at * 960 & 0xFFFF_FFFF, b"%d" % number)
    return out


def test_packets_in_order_go_on_at_once() -> None:
    buffer = ReorderBuffer(lambda payload: 960)
    for number in range(5):
        assert feed(buffer, [number]) == [b"%d" % number]


def test_a_packet_out_of_place_is_put_back() -> None:
    assert feed(ReorderBuffer(lambda payload: 960), [0, 2, 1, 3]) == [b"0", b"1", b"2", b"3"]


def test_a_lost_packet_is_given_up_after_three_later_ones_and_leaves_a_gap() -> None:
    buffer = ReorderBuffer(lambda payload: 960)
    assert feed(buffer, [0, 2, 3]) == [b"0"]
    assert feed(buffer, [4]) == [Gap(960), b"2", b"3", b"4"]
    assert buffer.lost == 1
    assert feed(buffer, [1, 5]) == [b"5"]


def test_repeated_packets_are_left_out() -> None:
    assert feed(ReorderBuffer(lambda payload: 960), [0, 0, 1, 1, 0, 2]) == [b"0", b"1", b"2"]


def test_a_pause_of_the_sender_is_filled_but_not_without_end() -> None:
    buffer = ReorderBuffer(lambda payload: 960)
    buffer.push(0, 0, b"a")
    assert buffer.push(1, 960 * 3, b"b") == [Gap(1920), b"b"]
    assert buffer.push(2, 960 * 500, b"c") == [Gap(48_000), b"c"]


@given(st.permutations(range(12)), st.integers(0, 1 << 32))
def test_whatever_the_order_nothing_is_repeated_or_turned_round(
    order: list[int], origin: int
) -> None:
    origin -= origin % (1 << 6)
    packets = [
        item
        for item in feed(ReorderBuffer(lambda payload: 960), order, origin)
        if not isinstance(item, Gap)
    ]
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
        if number not in (20, 30)
        for piece in microphone.feed(number, number * 960, payload)
    ]
    assert 48 <= len(pieces) <= 50
    assert microphone.lost == 2
    levels = [float(np.abs(piece).max()) for piece in pieces[5:45]]
    assert min(levels) > 4_000


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


# --- what a browser may send ------------------------------------------------------------------


def encoded(
    pcm: NDArray[np.int16], rate_hz: int = 48_000, ms: int = 20, bitrate_bps: int = 48_000
) -> list[bytes]:
    """Opus packets of `ms` each. `pcm`: int16, (samples,) or (samples, 2)."""
    layout = "mono" if pcm.ndim == 1 else "stereo"
    context = av.CodecContext.create("libopus", "w")
    context.sample_rate, context.layout, context.format = rate_hz, layout, "s16"
    context.bit_rate, context.time_base = bitrate_bps, Fraction(1, rate_hz)
    context.options = {"application": "voip", "frame_duration": str(ms), "vbr": "on"}
    context.open()
    step = rate_hz * ms // 1_000
    packets = []
    for index in range(len(pcm) // step):
        block = pcm[index * step : (index + 1) * step].reshape(1, -1)
        frame = av.AudioFrame.from_ndarray(block, format="s16", layout=layout)
        frame.sample_rate, frame.pts, frame.time_base = rate_hz, index * step, Fraction(1, rate_hz)
        packets += [bytes(packet) for packet in context.encode(frame)]
    return packets


def tone(
    seconds: float, hz: float = 1_000, rate_hz: int = 48_000, level: float = 8_000
) -> NDArray[np.int16]:
    t = np.arange(round(seconds * rate_hz)) / rate_hz
    return np.clip(np.sin(2 * np.pi * hz * t) * level, -32_768, 32_767).astype(np.int16)


def speech_like(seconds: float) -> NDArray[np.int16]:
    """Harmonics of a gliding 120 Hz, swelling four times a second."""
    t = np.arange(round(seconds * 48_000)) / 48_000
    phase = 2 * np.pi * np.cumsum(120 + 20 * np.sin(2 * np.pi * 0.7 * t)) / 48_000
    voice = sum(np.sin(phase * n) / n for n in range(1, 12))
    return (voice * (0.6 + 0.4 * np.sin(2 * np.pi * 4 * t)) * 6_000).astype(np.int16)


def heard(packets: list[bytes], order: list[int] | None = None, ms: int = 20) -> Heard:
    """What comes out where the packets of `order` arrive."""
    microphone = Microphone()
    pieces = [
        piece
        for number in (range(len(packets)) if order is None else order)
        for piece in microphone.feed(number, number * ms * 48, packets[number])
    ]
    return Heard(np.concatenate(pieces), microphone.lost)


class Heard:
    def __init__(self, pcm: NDArray[np.int16], lost: int) -> None:
        self.pcm, self.lost = pcm, lost

    @property
    def middle(self) -> NDArray[np.float64]:
        """Without the decoder's first and last moments."""
        return self.pcm[3_200:-1_600].astype(float)

    @property
    def level(self) -> float:
        """Amplitude of the tone in it."""
        return float(np.sqrt(2 * np.mean(self.middle**2)))

    @property
    def hz(self) -> float:
        spectrum = np.abs(np.fft.rfft(self.middle * np.hanning(len(self.middle))))
        return float(np.argmax(spectrum) * 16_000 / len(self.middle))


@pytest.mark.parametrize("rate_hz", [8_000, 12_000, 16_000, 24_000, 48_000])
def test_every_sampling_rate_comes_through_at_its_pitch_level_and_length(rate_hz: int) -> None:
    got = heard(encoded(tone(1.0, rate_hz=rate_hz), rate_hz))
    assert abs(got.hz - 1_000) < 3
    assert 7_300 < got.level < 8_500
    assert abs(len(got.pcm) - 16_000) <= 640
    assert got.lost == 0


@pytest.mark.parametrize("ms", [10, 20, 40, 60])
def test_packets_of_any_length_join_without_holes(ms: int) -> None:
    packets = encoded(tone(1.2), ms=ms)
    assert {packet_samples(packet) for packet in packets} == {ms * 48}
    got = heard(packets, ms=ms)
    assert abs(len(got.pcm) - 19_200) <= 16 * ms + 640
    assert abs(got.hz - 1_000) < 3
    quietest = min(np.abs(block).max() for block in got.middle.reshape(-1, 160))
    assert quietest > 6_500


@pytest.mark.parametrize(
    ("left", "right", "level"), [(8_000, 8_000, 8_000), (8_000, 0, 4_000), (0, 8_000, 4_000)]
)
def test_stereo_is_mixed_down_to_the_mean_of_both_sides(
    left: float, right: float, level: float
) -> None:
    pcm = np.stack([tone(1.0, level=left), tone(1.0, level=right)], axis=1)
    packets = encoded(pcm, bitrate_bps=96_000)
    assert any(packet[0] & 4 for packet in packets), "the packets are stereo"
    got = heard(packets)
    assert abs(got.level - level) < 0.12 * level
    assert abs(got.hz - 1_000) < 3


def test_sound_beyond_full_scale_is_clipped_and_never_wraps_round() -> None:
    loud = tone(1.0, hz=300, level=130_000)
    got = heard(encoded(loud, bitrate_bps=128_000)).middle
    # Its fundamental is what it was: a wrap would turn the sign of whole stretches.
    fundamental = np.abs(np.fft.rfft(got * np.hanning(len(got))))
    at = round(300 * len(got) / 16_000)
    assert np.argmax(fundamental) == pytest.approx(at, abs=1)
    power = np.sum(fundamental[at - 3 : at + 4] ** 2) / np.sum(fundamental**2)
    assert power > 0.8
    assert np.abs(got).max() > 32_000


def test_jitter_up_to_three_packets_changes_not_a_sample() -> None:
    packets = encoded(speech_like(4.0))
    chance = random.Random(5)
    arrival = sorted(range(len(packets)), key=lambda n: n * 20 + chance.uniform(0, 55))
    assert arrival != sorted(arrival)
    even, jittery = heard(packets), heard(packets, arrival)
    assert jittery.lost == 0
    assert np.array_equal(even.pcm[: len(jittery.pcm)], jittery.pcm)


@pytest.mark.parametrize(("loss", "at_least_db"), [(0.01, 17), (0.05, 9), (0.10, 6.5)])
def test_lost_packets_are_concealed_in_place(loss: float, at_least_db: float) -> None:
    # Repeating the last piece, softer each time, gives 14, 7 and 4.5 dB.
    packets = encoded(speech_like(6.0))
    whole = heard(packets)
    ratios = []
    for seed in range(6):
        chance = random.Random(seed)
        order = [n for n in range(len(packets)) if n < 10 or chance.random() >= loss]
        holed = heard(packets, order)
        # Those that too little comes after are not given up yet.
        assert 0 <= order[-1] + 1 - len(order) - holed.lost <= 3
        assert abs(len(whole.pcm) - len(holed.pcm)) <= 4 * 320
        size = min(len(whole.pcm), len(holed.pcm))
        a, b = whole.pcm[:size].astype(float), holed.pcm[:size].astype(float)
        ratios.append(10 * np.log10(np.sum(a**2) / (np.sum((a - b) ** 2) + 1)))
    assert np.mean(ratios) > at_least_db


def test_a_hole_of_one_packet_is_no_pause_and_a_long_one_is_silence() -> None:
    packets = encoded(tone(2.0, hz=200))
    order = [n for n in range(100) if n != 30 and not 60 <= n < 80]
    got = heard(packets, order).pcm
    assert np.abs(got[30 * 320 : 31 * 320].astype(int)).max() > 5_000
    assert np.abs(got[70 * 320 : 79 * 320].astype(int)).max() < 50
    assert np.abs(got[85 * 320 : 86 * 320].astype(int)).max() > 6_000


@pytest.mark.parametrize(
    ("payload", "samples"),
    [
        (b"", 0),
        (bytes([0 << 3]), 480),
        (bytes([3 << 3]), 2_880),
        (bytes([13 << 3]), 960),
        (bytes([16 << 3]), 120),
        (bytes([31 << 3 | 1]), 1_920),
        (bytes([31 << 3 | 3, 6]), 5_760),
        (bytes([31 << 3 | 3]), 0),
    ],
)
def test_the_length_of_a_packet_is_read_from_its_first_bytes(payload: bytes, samples: int) -> None:
    assert packet_samples(payload) == samples


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux has /proc")
def test_a_microphone_keeps_no_threads() -> None:
    packet = tone_packets(2)[0]
    before = len(os.listdir("/proc/self/task"))
    microphones = [Microphone() for _ in range(10)]
    for microphone in microphones:
        list(microphone.feed(0, 0, packet))
    assert len(os.listdir("/proc/self/task")) <= before
