"""A face that does nothing in particular."""

from __future__ import annotations

from random import Random

import numpy as np

from renderers import Attitude
from renderers.motion import Animator
from renderers.motion.posture import Posture

MINUTES = 8
RATE_HZ = 10


def life(seed: int) -> np.ndarray:
    """Yaw, pitch and roll, each column of mean 0 and deviation 1."""
    animator = Animator(seed=seed)
    poses = [animator.pose(k / RATE_HZ) for k in range(MINUTES * 60 * RATE_HZ)]
    values = np.array(
        [(p.yaw, p.pitch, p.roll) for k, p in enumerate(poses) if k > 5 * RATE_HZ], float
    )
    return (values - values.mean(axis=0)) / values.std(axis=0)


def test_idling_does_not_come_back_to_what_it_was() -> None:
    values = life(3)
    # A loop of any length from 12 s to 4 minutes would make the face like itself that much later;
    # below that a posture is simply kept.
    for lag in range(12 * RATE_HZ, 240 * RATE_HZ, RATE_HZ // 2):
        alike = (values[:-lag] * values[lag:]).mean(axis=0)
        assert alike.max() < 0.75
        assert alike.mean() < 0.5


def test_no_ten_seconds_are_like_any_others() -> None:
    values = life(8)
    window = 10 * RATE_HZ
    pieces = [values[k : k + window].ravel() for k in range(0, len(values) - window, window)]
    for one in range(len(pieces)):
        for other in range(one):
            assert np.abs(pieces[one] - pieces[other]).mean() > 0.3


def test_a_posture_is_kept_for_a_while_and_changes_at_uneven_times() -> None:
    posture, changes, last = Posture(Random(1)), [], None
    for k in range(300 * 30):
        held = posture.step(k / 30, Attitude.IDLE)
        if held != last:
            changes.append(k / 30)
            last = held
    gaps = np.diff(changes)
    assert 10 < len(changes) < 60
    assert gaps.min() >= 1.2
    assert gaps.std() > 0.4 * gaps.mean()


def test_a_phrase_changes_the_posture_where_it_begins() -> None:
    posture = Posture(Random(2))
    posture.change_at(0.5)
    posture.change_at(0.9)  # too soon after the other
    before = posture.step(0.4, Attitude.SPEAKING)
    after = posture.step(0.55, Attitude.SPEAKING)
    assert after != before
    assert posture.step(0.95, Attitude.SPEAKING) == after


def test_phrases_may_be_planned_in_any_order_and_taken_back() -> None:
    posture = Posture(Random(2))
    before = posture.step(0.0, Attitude.SPEAKING)
    posture.change_at(1.9)
    posture.change_at(0.5)
    first = posture.step(0.55, Attitude.SPEAKING)
    assert first != before
    posture.forget_after(1.0)
    assert posture.step(1.95, Attitude.SPEAKING) == first
