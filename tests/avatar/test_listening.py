from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from avatar_server.avatar.listening import Listener, SampleRing, StreamClock, VoiceFrame
from avatar_server.avatar.vad_worker import Worker
from tests.avatar.simulation import Inline, LoudnessDetector, tone


def listening(keep_s: float = 10.0) -> tuple[Listener, list[VoiceFrame]]:
    frames: list[VoiceFrame] = []
    return Listener(LoudnessDetector, Inline(), frames.append, keep_s), frames


@given(st.lists(st.integers(0, 300), max_size=60), st.integers(1, 200), st.integers(0, 400))
def test_the_ring_gives_back_what_was_put_in(sizes: list[int], capacity: int, length: int) -> None:
    ring = SampleRing(capacity)
    everything = np.arange(sum(sizes), dtype=np.int64).astype(np.int16)
    at = 0
    for size in sizes:
        ring.add(everything[at : at + size])
        at += size
    start = max(0, at - length)
    kept = everything[max(start, at - capacity) : at]
    assert ring.take(start, at + 5).tolist() == kept.tolist()


@given(st.lists(st.integers(1, 2_000), min_size=1, max_size=30))
def test_frames_are_the_same_however_the_sound_is_cut(sizes: list[int]) -> None:
    listener, frames = listening()
    sound = np.tile(np.concatenate([tone(0.1, 16_000), np.zeros(1_600, np.int16)]), 20)
    at = 0
    for size in sizes:
        listener.add(sound[at : at + size], at / 16_000)
        at += size
    total = min(at, len(sound))
    assert [f.end for f in frames] == list(range(512, total + 1, 512))
    whole, reference = listening()
    whole.add(sound[:total], total / 16_000)
    assert [f.probability for f in frames] == [f.probability for f in reference]


def test_an_utterance_can_be_taken_from_before_it_was_noticed() -> None:
    listener, _ = listening()
    sound = np.arange(16_000, dtype=np.int16)
    listener.add(sound, 1.0)
    assert listener.take(4_000, 8_000).tolist() == sound[4_000:8_000].tolist()


def test_silence_does_not_ask_the_model() -> None:
    class Refusing(LoudnessDetector):
        def probability(self, frame: NDArray[np.int16]) -> float:
            raise AssertionError("asked")

    frames: list[VoiceFrame] = []
    listener = Listener(Refusing, Inline(), frames.append, 1.0)
    listener.add(np.full(2_048, 9, np.int16), 0.2)
    assert [f.probability for f in frames] == [0.0] * 4


def test_frames_that_the_executor_refuses_are_left_out_and_counted() -> None:
    class Full:
        def submit(self, call: Callable[[], None]) -> bool:
            return False

    listener = Listener(LoudnessDetector, Full(), lambda frame: None, 1.0)
    listener.add(np.zeros(5_120, np.int16), 0.3)
    assert listener.dropped == 10


def test_a_model_that_cannot_be_loaded_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    def missing() -> LoudnessDetector:
        raise FileNotFoundError("no such model")

    frames: list[VoiceFrame] = []
    listener = Listener(missing, Inline(), frames.append, 1.0)
    listener.add(tone(1.0, 16_000), 1.0)
    assert not frames
    assert len(caplog.records) == 1
    assert "not heard" in caplog.text


def test_jitter_does_not_bend_the_times_of_frames() -> None:
    clock = StreamClock()
    late = [0.0, 0.03, 0.01, 0.06, 0.0, 0.02] * 100
    offsets = []
    for number, delay in enumerate(late, 1):
        clock.arrived(number * 320, 50.0 + number * 0.02 + delay)
        offsets.append(clock.at(number * 320) - (50.0 + number * 0.02))
    assert max(abs(o) for o in offsets[10:]) < 0.005


def test_a_slowly_drifting_sound_card_is_followed() -> None:
    clock = StreamClock()
    offsets = []
    for number in range(1, 50 * 3_600):
        now = number * 0.02 * 1.0001
        clock.arrived(number * 320, now)
        offsets.append(now - clock.at(number * 320))
    assert max(offsets) < 0.02


def test_after_a_pause_of_the_stream_time_goes_on_from_there() -> None:
    clock = StreamClock()
    clock.arrived(16_000, 1.0)
    clock.arrived(16_320, 11.0)
    assert clock.at(16_320) == pytest.approx(11.0)


def test_the_worker_runs_calls_in_order_and_survives_a_failing_one() -> None:
    worker = Worker()
    done: list[int] = []
    finished = threading.Event()
    try:
        worker.submit(lambda: done.append(1))
        worker.submit(lambda: 1 / 0)
        worker.submit(lambda: done.append(2))
        worker.submit(finished.set)
        assert finished.wait(10)
    finally:
        worker.close()
    assert done == [1, 2]
    assert not worker.submit(finished.set)


def test_the_worker_refuses_calls_beyond_its_bound() -> None:
    worker = Worker(max_waiting=2)
    held, begun = threading.Event(), threading.Event()

    def hold() -> None:
        begun.set()
        held.wait(10)

    try:
        assert worker.submit(hold)
        assert begun.wait(10)
        accepted = [worker.submit(lambda: None) for _ in range(4)]
    finally:
        held.set()
        worker.close()
    assert accepted == [True, True, False, False]


def test_a_listener_that_is_closed_keeps_and_delivers_nothing() -> None:
    waiting: list[Callable[[], None]] = []

    class Later:
        def submit(self, call: Callable[[], None]) -> bool:
            waiting.append(call)
            return True

    frames: list[VoiceFrame] = []
    listener = Listener(LoudnessDetector, Later(), frames.append, 10.0)
    listener.add(tone(0.5, 16_000), 0.5)
    assert waiting
    listener.close()
    for call in waiting:
        call()
    assert frames == []
    assert len(listener.take(0, 8_000)) == 0
