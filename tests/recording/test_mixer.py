"""The sound of a recording: who is on which side, and when."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from avatar_server.recording.mixer import Mixer

RATE = 48_000


def tone(samples: int, rate: int, level: int = 8_000) -> NDArray[np.int16]:
    return (np.sin(2 * np.pi * 400 * np.arange(samples) / rate) * level).astype(np.int16)


def first_loud(channel: NDArray[np.int16]) -> int:
    return int(np.flatnonzero(np.abs(channel.astype(int)) > 1_000)[0])


def speak(mixer: Mixer, viewer: str, begin: int, pcm: NDArray[np.int16]) -> None:
    """As 20 ms pieces, each of which comes when it is over."""
    for at in range(0, len(pcm), 320):
        piece = pcm[at : at + 320]
        mixer.add_viewer(viewer, begin + 3 * (at + len(piece)), piece)


def test_the_avatar_is_left_and_the_viewer_right_each_at_its_time() -> None:
    mixer = Mixer(10 * RATE)
    mixer.add_avatar(11 * RATE, tone(RATE // 2, RATE))
    speak(mixer, "a", 12 * RATE, tone(8_000, 16_000))
    sound = mixer.take(13 * RATE)
    assert sound.shape == (3 * RATE, 2)
    assert abs(first_loud(sound[:, 0]) - RATE) < 20
    assert abs(first_loud(sound[:, 1]) - 2 * RATE) < 100
    assert not sound[RATE * 3 // 2 : 2 * RATE - 100].any()


def test_a_voice_has_no_seams_though_its_packets_come_unevenly() -> None:
    spoken, mixer, choice = tone(32_000, 16_000), Mixer(0), np.random.default_rng(1)
    for at in range(0, len(spoken), 320):
        late = int(choice.integers(0, 4_000))
        mixer.add_viewer("a", RATE + 3 * (at + 320) + late, spoken[at : at + 320])
    right = mixer.take(4 * RATE)[:, 1].astype(float)
    begin = first_loud(right)
    steady = right[begin + 2_000 : begin + 80_000]
    # A tone of 400 Hz never moves by more than this from one sample to the next.
    assert np.abs(np.diff(steady)).max() < 8_000 * 2 * np.pi * 400 / RATE * 1.1


def test_after_a_pause_of_its_packets_a_voice_goes_on_where_it_was_heard() -> None:
    mixer = Mixer(0)
    speak(mixer, "a", 0, tone(3_200, 16_000))
    speak(mixer, "a", 2 * RATE, tone(3_200, 16_000))
    right = mixer.take(3 * RATE)[:, 1]
    assert not right[RATE // 2 : RATE].any()
    assert abs(first_loud(right[RATE:]) - RATE) < 100


def test_two_viewers_who_speak_at_once_are_both_heard_and_too_loud_is_not_noise() -> None:
    mixer, loud = Mixer(0), tone(16_000, 16_000, 30_000)
    speak(mixer, "a", 0, loud)
    speak(mixer, "b", 0, loud)
    right = mixer.take(RATE // 2)[:, 1]
    assert right.max() == 32_767
    assert right.min() == -32_768


def test_what_comes_for_a_time_that_is_written_already_is_left_out() -> None:
    mixer = Mixer(0)
    mixer.take(RATE)
    mixer.add_avatar(RATE - 480, tone(960, RATE))
    mixer.add_avatar(RATE + 100 * RATE, tone(960, RATE))
    sound = mixer.take(2 * RATE)[:, 0]
    assert sound[:480].any()
    assert not sound[480:].any()
    assert mixer.position == 2 * RATE
