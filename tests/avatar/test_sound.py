"""The session's sound, made by two threads in turn, in virtual time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from avatar_server.avatar.encoder import OpusEncoder
from avatar_server.avatar.packets import EncodedAudio, EncodedVideo
from avatar_server.avatar.sound import Sound
from avatar_server.clock import ManualClock
from avatar_server.config import AudioSettings

FRAME = EncodedVideo("h264", 0, 0, True, (b"x",), 1)


class Counted:
    """Sound whose blocks can be told apart; `clock` is media time."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.pulled: list[tuple[float, int]] = []

    def pull_audio(self, samples: int) -> NDArray[np.int16]:
        self.pulled.append((self.clock.now(), samples))
        return np.zeros(samples, np.int16)


class Published:
    """In place of the fan-out: what was handed on, and when."""

    viewers = 1

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.calls: list[tuple[float, tuple[EncodedVideo | EncodedAudio, ...]]] = []

    def publish(self, *items: EncodedVideo | EncodedAudio) -> None:
        if items:
            self.calls.append((self.clock.now(), items))

    @property
    def blocks(self) -> list[tuple[float, float]]:
        """When each block was handed on, and when it is due."""
        return [
            (at, (item.timestamp + 312) / 48_000)
            for at, items in self.calls
            for item in items
            if isinstance(item, EncodedAudio)
        ]


class Rig:
    def __init__(self) -> None:
        self.clock = ManualClock(0.0)
        self.source = Counted(self.clock)
        self.published = Published(self.clock)
        encoder = OpusEncoder(AudioSettings())
        self.sound = Sound(self.source, encoder, self.published, self.clock)  # type: ignore[arg-type]

    def frames(self, count: int, fps: int, start: int = 0, took_s: float = 0.004) -> None:
        """The video thread alone: each frame is ready `took_s` after its tick."""
        for number in range(start, start + count):
            self.clock.advance(max(0.0, number / fps + took_s - self.clock.now()))
            self.sound.send_ahead(number / fps, 1 / fps, [FRAME])

    def own_thread(self, until: float) -> int:
        """The sound's own thread alone; returns how often it woke."""
        woken = 0

        def wait(seconds: float) -> None:
            nonlocal woken
            woken += 1
            self.clock.advance(seconds + 1e-4)

        self.sound.run(self.clock.now, lambda: self.clock.now() >= until, wait)
        return woken


def due(blocks: Sequence[tuple[float, float]]) -> NDArray[np.float64]:
    return np.array([due for _, due in blocks])


def test_pictures_take_the_sound_along_in_one_hand_over_and_none_is_late() -> None:
    rig = Rig()
    rig.frames(300, 30)
    assert len(rig.published.calls) == 300
    assert all(items[-1] is FRAME for _, items in rig.published.calls)
    blocks = rig.published.blocks
    assert np.allclose(due(blocks), np.arange(len(blocks)) * 0.02)
    ahead = np.array([due - at for at, due in blocks[1:]])
    assert ahead.min() >= 0
    assert ahead.max() <= 0.04
    assert len(blocks) * 0.02 >= 10.0


def test_without_pictures_the_own_thread_makes_each_block_in_time() -> None:
    rig = Rig()
    woken = rig.own_thread(2.0)
    blocks = rig.published.blocks
    assert np.allclose(due(blocks), np.arange(len(blocks)) * 0.02)
    assert all(0 <= at - due <= 0.006 for at, due in blocks)
    assert 98 <= woken <= 102


def test_when_pictures_stop_the_own_thread_goes_on_where_they_were() -> None:
    rig = Rig()
    rig.frames(30, 30)
    rig.sound.hurry()
    rig.own_thread(1.5)
    rig.frames(30, 30, start=45)
    blocks = rig.published.blocks
    assert np.allclose(due(blocks), np.arange(len(blocks)) * 0.02)
    assert all(at - due <= 0.006 for at, due in blocks)
    assert rig.sound.skipped_ms == 0


def test_while_pictures_come_the_own_thread_sleeps_and_makes_nothing() -> None:
    rig = Rig()
    rig.frames(30, 30)
    made = len(rig.published.blocks)
    waits: list[float] = []
    rig.sound.run(rig.clock.now, lambda: bool(waits), waits.append)
    assert waits[0] >= 0.25
    assert len(rig.published.blocks) == made


def test_a_rate_at_which_sound_would_be_made_too_early_leaves_it_to_its_own_thread() -> None:
    rig = Rig()
    rig.frames(15, 15)
    assert rig.published.blocks == []
    assert len(rig.published.calls) == 15


@pytest.mark.parametrize("fps", [30, 60])
def test_sound_is_made_once_though_both_threads_come_for_it(fps: int) -> None:
    rig = Rig()
    for number in range(2 * fps):
        rig.frames(1, fps, start=number)
        rig.own_thread(rig.clock.now())
    blocks = rig.published.blocks
    assert np.allclose(due(blocks), np.arange(len(blocks)) * 0.02)
    assert len(rig.source.pulled) == len(blocks)


def test_nobody_there_sound_is_pulled_and_not_encoded() -> None:
    rig = Rig()
    rig.published.viewers = 0  # type: ignore[misc]
    rig.own_thread(1.0)
    assert len(rig.source.pulled) >= 49
    assert rig.published.calls == []
