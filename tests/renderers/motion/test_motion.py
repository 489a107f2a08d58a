"""The behaviour of a face over time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from renderers import Attitude, Pose, Viseme, VisemeSpan
from renderers.motion import Animator
from renderers.motion.eyes import closure
from renderers.motion.noise import SmoothNoise
from renderers.motion.spring import Spring

QUIET = np.zeros(0, np.float32)


def frames(animator: Animator, start: float, end: float) -> list[tuple[float, Pose]]:
    out = []
    for k in range(round(start * 30), round(end * 30)):
        out.append((k / 30, animator.pose(k / 30)))
    return out


def test_a_cut_closes_the_mouth_within_150_ms_and_forgets_what_was_to_come() -> None:
    animator = Animator()
    animator.add_speech(0.0, [VisemeSpan(Viseme.AA, 0.0, 5.0)], QUIET)
    animator.add_speech(5.0, [VisemeSpan(Viseme.OH, 0.0, 5.0)], QUIET)
    assert frames(animator, 0.0, 1.0)[-1][1].jaw > 0.7
    animator.cut_speech(1.0)
    closing = frames(animator, 1.0, 6.0)
    assert all(pose.jaw < 0.08 for t, pose in closing if t >= 1.15)
    assert all(pose.visemes.sum() == 0 for t, pose in closing if t >= 1.15)


def test_the_same_seed_gives_the_same_life_and_another_seed_another() -> None:
    def life(seed: int) -> list[float]:
        animator = Animator(seed=seed)
        return [value for _, p in frames(animator, 0, 20) for value in (p.yaw, p.blink_left)]

    assert life(4) == life(4)
    assert life(4) != life(5)


def test_an_idle_face_blinks_breathes_looks_around_and_stays_in_range() -> None:
    animator = Animator(seed=7)
    poses = [pose for _, pose in frames(animator, 0, 60)]
    lids = np.array([p.blink_left for p in poses])
    blinks = int(((lids[1:] > 0.9) & (lids[:-1] <= 0.9)).sum())
    assert 8 <= blinks <= 35
    assert np.ptp([p.gaze_x for p in poses]) > 0.3
    assert np.ptp([p.yaw for p in poses]) > 2
    breath = np.array([p.breath for p in poses])
    assert 9 <= int(((breath[1:] > 0.5) & (breath[:-1] <= 0.5)).sum()) <= 20
    assert max(abs(p.yaw) for p in poses) <= 12
    assert max(abs(p.pitch) for p in poses) <= 8
    assert max(abs(p.roll) for p in poses) <= 8
    assert all(p.visemes.sum() == 0 for p in poses)


def test_a_head_moves_without_jerks() -> None:
    animator = Animator(seed=1)
    poses = [pose for _, pose in frames(animator, 0, 30)]
    for name in ("yaw", "pitch", "roll"):
        assert np.abs(np.diff([getattr(p, name) for p in poses])).max() < 0.8


def test_a_listener_raises_the_brows_and_a_thinker_looks_away() -> None:
    listening, thinking, idle = Animator(seed=3), Animator(seed=3), Animator(seed=3)
    listening.set_attitude(Attitude.LISTENING, 0.0)
    thinking.set_attitude(Attitude.THINKING, 0.0)
    heard = [p for _, p in frames(listening, 0, 20)]
    thought = [p for _, p in frames(thinking, 0, 20)]
    rest = [p for _, p in frames(idle, 0, 20)]
    assert np.mean([p.brow_left for p in heard]) > np.mean([p.brow_left for p in rest]) + 0.1
    assert np.mean([abs(p.gaze_x) for p in thought]) > 0.25
    assert np.mean([p.gaze_y for p in thought]) > 0.15


def test_lids_close_fast_and_open_slowly() -> None:
    values = [closure(ms / 1000) for ms in range(400)]
    peak = values.index(max(values))
    assert values[0] == 0
    assert max(values) == 1
    assert values[-1] == 0
    assert peak < 100
    assert next(i for i, v in enumerate(values) if i > peak + 40 and v < 0.05) - peak > 140


def test_a_spring_is_stable_for_any_step_and_reaches_half_in_its_half_life() -> None:
    spring = Spring(0.1)
    for _ in range(100):
        spring.step(1.0, 0.001)
    assert spring.value == pytest.approx(0.5, abs=0.02)
    assert Spring(0.1).step(1.0, 10.0) == pytest.approx(1.0)


@given(st.floats(0, 1e5), st.integers(0, 1000))
def test_noise_is_bounded_and_continuous(t: float, seed: int) -> None:
    noise = SmoothNoise(seed, 0.5)
    assert -1 <= noise(t) <= 1
    assert abs(noise(t + 1e-3) - noise(t)) < 0.02
