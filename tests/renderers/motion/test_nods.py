"""A listener's nods."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import numpy as np

from renderers import Attitude
from renderers.motion import Animator
from renderers.motion.nods import Nods

FRAME_S = 0.032


def nod_times(nods: Nods, voiced: Callable[[float], bool], seconds: float) -> list[float]:
    """When nods begin while the viewer's voice is heard as `voiced` says."""
    begun, down = [], False
    t = 0.0
    while t < seconds:
        nods.hear(voiced(t), t)
        is_down = nods.angle(t) > 0.05
        if is_down and not down:
            begun.append(t)
        down = is_down
        t += FRAME_S
    return begun


def phrases(t: float) -> bool:
    """3 s of speech, then a pause of 0.7 s."""
    return t % 3.7 < 3.0


def test_nods_come_at_the_ends_of_phrases_and_not_at_each() -> None:
    begun = nod_times(Nods(Random(1)), phrases, 120)
    pauses = int(120 / 3.7)
    first_strokes = [t for t, before in zip(begun, [-9.0, *begun], strict=False) if t - before > 1]
    assert 0.5 * pauses < len(first_strokes) < 0.95 * pauses
    for t in first_strokes:
        assert 3.0 + 0.18 <= t % 3.7 <= 3.0 + 0.18 + 0.22 + 3 * FRAME_S


def test_who_speaks_without_a_pause_or_is_silent_is_not_nodded_at() -> None:
    assert nod_times(Nods(Random(1)), lambda t: True, 60) == []
    assert nod_times(Nods(Random(1)), lambda t: False, 60) == []


def test_a_word_is_too_short_for_a_nod_and_a_breath_within_a_phrase_ends_nothing() -> None:
    assert nod_times(Nods(Random(2)), lambda t: t % 2 < 0.4, 60) == []
    assert nod_times(Nods(Random(2)), lambda t: t % 0.7 < 0.6, 60) == []


def test_nods_are_of_different_depth_and_deeper_after_long_phrases() -> None:
    def depths(phrase_s: float) -> list[float]:
        nods, found = Nods(Random(3)), []
        t, deepest = 0.0, 0.0
        while t < 200:
            nods.hear(t % (phrase_s + 2.0) < phrase_s, t)
            deepest = max(deepest, nods.angle(t))
            if t % (phrase_s + 2.0) < FRAME_S and deepest:
                found.append(deepest)
                deepest = 0.0
            t += FRAME_S
        return found

    short, long = depths(1.2), depths(5.0)
    assert np.std(short) > 0.1
    assert np.mean(long) > np.mean(short) + 0.5
    assert 2.0 < min(short) <= max(long) < 4.7


def test_the_head_of_a_listener_goes_down_after_a_phrase_and_that_of_a_speaker_does_not() -> None:
    def lowest(attitude: Attitude, phrase: bool) -> float:
        animator = Animator(seed=11)
        animator.set_attitude(attitude, 0.0)
        pitches = []
        for k in range(30 * 30):
            t = k / 30
            animator.hear_viewer(phrase and phrases(t), t)
            pitches.append(animator.pose(t).pitch)
        return min(pitches)

    assert lowest(Attitude.LISTENING, True) < lowest(Attitude.LISTENING, False) - 1.0
    assert lowest(Attitude.SPEAKING, True) == lowest(Attitude.SPEAKING, False)
