"""libopus itself: what it is good for beyond FFmpeg's wrapper, and how we do without it."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from avatar_server.avatar import libopus
from avatar_server.avatar.encoder import OpusEncoder
from avatar_server.avatar.encoder.opus import _Pyav
from avatar_server.avatar.microphone import Microphone
from avatar_server.avatar.speech_decoder import (
    ConcealingDecoder,
    FecDecoder,
    SpeechDecoder,
    make_decoder,
    recovers_losses,
)
from avatar_server.config import AudioSettings


@pytest.fixture
def without_libopus(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(libopus, "_candidates", lambda: iter(["/nowhere/libopus.so"]))
    libopus.load_libopus.cache_clear()
    yield
    libopus.load_libopus.cache_clear()


def speech_like(seconds: float) -> NDArray[np.int16]:
    """Syllables of a gliding voice whose pitch and colour change, as concealment cannot foresee."""
    t = np.arange(round(seconds * 48_000)) / 48_000
    phase = 2 * np.pi * np.cumsum(130 + 40 * np.sin(2 * np.pi * 1.3 * t)) / 48_000
    colour = 1 + np.floor(t / 0.11) % 4
    voice = sum(np.sin(phase * n) / (1 + np.abs(n - 3 * colour)) for n in range(1, 14))
    return (voice * np.abs(np.sin(np.pi * t / 0.11)) * 4_000).astype(np.int16)


def packets_of(pcm: NDArray[np.int16], audio: AudioSettings) -> list[bytes]:
    encoder = OpusEncoder(audio)
    made = (encoder.encode(pcm[k * 960 : (k + 1) * 960], k) for k in range(len(pcm) // 960))
    return [packet.payload for packet in made if packet is not None]


def heard(packets: list[bytes], arrived: list[int], decoder: SpeechDecoder) -> NDArray[np.float64]:
    microphone = Microphone(decoder)
    pieces = [piece for n in arrived for piece in microphone.feed(n & 0xFFFF, n * 960, packets[n])]
    return np.concatenate(pieces).astype(float)


def lossy(count: int, share: float, seed: int) -> list[int]:
    """Packets that arrive: the first and last ones do, and no two in a row are lost."""
    chance = random.Random(seed)
    arrived = list(range(10))
    for n in range(10, count):
        if n > count - 5 or arrived[-1] != n - 1 or chance.random() >= share:
            arrived.append(n)
    return arrived


def snr_db(whole: NDArray[np.float64], got: NDArray[np.float64], pieces: list[int]) -> float:
    """Median over the given 20 ms pieces: those in which something was lost."""
    ratios = []
    for n in pieces:
        a, b = whole[n * 320 : (n + 1) * 320], got[n * 320 : (n + 1) * 320]
        ratios.append(10 * np.log10((np.sum(a**2) + 1) / (np.sum((a - b) ** 2) + 1)))
    return float(np.median(ratios))


@pytest.mark.parametrize("share", [0.05, 0.10])
def test_what_is_lost_is_recovered_better_than_it_can_be_concealed(share: float) -> None:
    packets = packets_of(speech_like(8.0), AudioSettings(expected_loss_percent=20))
    whole = heard(packets, list(range(len(packets))), FecDecoder())
    # The same sound and the same decoder, but without the redundancy in the stream.
    bare = packets_of(speech_like(8.0), AudioSettings(fec=False))
    bare_whole = heard(bare, list(range(len(bare))), FecDecoder())
    recovered, concealed = [], []
    for seed in range(3):
        arrived = lossy(len(packets), share, seed)
        lost = sorted(set(range(len(packets))) - set(arrived))
        assert len(lost) >= 8
        with_fec = heard(packets, arrived, FecDecoder())
        without = heard(bare, arrived, FecDecoder())
        assert len(with_fec) == len(without) == len(whole)
        recovered.append(snr_db(whole, with_fec, lost))
        concealed.append(snr_db(bare_whole, without, lost))
    assert np.mean(recovered) > np.mean(concealed) + 6


def test_the_sound_that_was_not_lost_is_the_same_with_and_without_the_redundancy() -> None:
    packets = packets_of(speech_like(2.0), AudioSettings(expected_loss_percent=20))
    whole = heard(packets, list(range(len(packets))), FecDecoder())
    got = heard(packets, [n for n in range(len(packets)) if n != 40], FecDecoder())
    assert np.array_equal(whole[: 39 * 320], got[: 39 * 320])
    assert np.array_equal(whole[60 * 320 :].shape, got[60 * 320 :].shape)


def test_two_lost_in_a_row_are_one_concealed_and_one_recovered_and_keep_their_length() -> None:
    packets = packets_of(speech_like(2.0), AudioSettings(expected_loss_percent=20))
    whole = heard(packets, list(range(len(packets))), FecDecoder())
    got = heard(packets, [n for n in range(len(packets)) if n not in (40, 41)], FecDecoder())
    assert len(got) == len(whole)
    assert snr_db(whole, got, [41]) > snr_db(whole, got, [40])


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.one_of(st.binary(max_size=40), st.just(b"")), min_size=1, max_size=12),
    st.integers(1, 30_000),
)
def test_bad_packets_never_crash_a_decoder(payloads: list[bytes], hole: int) -> None:
    for decoder in (FecDecoder(), ConcealingDecoder()):
        for payload in payloads:
            for sound in (decoder.decode(payload), decoder.fill(hole, payload)):
                assert sound.dtype == np.int16
        if isinstance(decoder, FecDecoder):
            assert len(decoder.fill(hole, payloads[0])) == hole // 3


def test_damaged_packets_of_real_speech_never_crash_a_microphone() -> None:
    chance = random.Random(4)
    packets = packets_of(speech_like(3.0), AudioSettings())
    damaged = []
    for packet in packets:
        data = bytearray(packet)
        for _ in range(chance.choice((0, 0, 1, 8))):
            data[chance.randrange(len(data))] = chance.randrange(256)
        damaged.append(bytes(data[: chance.randrange(len(data) + 1)]))
    arrived = [n for n in range(len(packets)) if n < 5 or chance.random() > 0.1]
    assert len(heard(damaged, arrived, FecDecoder())) > 16_000


def test_without_libopus_speech_goes_through_pyav_and_the_log_says_what_that_costs(
    without_libopus: None, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        packets = packets_of(speech_like(1.0), AudioSettings())
        assert isinstance(make_decoder(), ConcealingDecoder)
        assert not recovers_losses()
    assert len([r for r in caplog.records if "libopus was found neither" in r.message]) == 1
    assert len(packets) > 45
    assert len(heard(packets, list(range(len(packets))), make_decoder())) > 14_000


def test_both_encoders_give_a_block_the_same_time() -> None:
    block = np.zeros(960, np.int16)
    by_libopus = OpusEncoder(AudioSettings()).encode(block, 7)
    by_pyav = _Pyav(AudioSettings())
    packets = [by_pyav.encode(block, index) for index in range(8)]
    assert by_libopus is not None
    assert packets[7] is not None
    assert by_libopus.timestamp == packets[7].timestamp


def test_settings_that_libopus_refuses_are_told_in_its_words() -> None:
    with pytest.raises(libopus.OpusError, match="encode 44100 Hz: invalid argument"):
        libopus.Encoder(44_100, 48_000, complexity=1, fec=True, expected_loss_percent=10)
    with pytest.raises(libopus.OpusError, match="invalid argument"):
        libopus.Encoder(48_000, 48_000, complexity=11, fec=True, expected_loss_percent=10)
