"""Brows and head by the voice's melody and stress."""

from __future__ import annotations

import numpy as np
import pytest

from renderers import Attitude, Pose, Viseme, VisemeSpan
from renderers.motion import Animator
from renderers.motion.prosody import MiddlePitch, tones

SPEECH = [VisemeSpan(Viseme.AA, 0.0, 3.0)]


def spoken(
    energy: np.ndarray | None = None, pitch: np.ndarray | None = None, seed: int = 9
) -> list[Pose]:
    animator = Animator(seed=seed)
    animator.set_attitude(Attitude.SPEAKING, 0.0)
    flat = np.full(300, 0.05, np.float32)
    animator.add_speech(0.0, SPEECH, flat if energy is None else energy)
    if pitch is not None:
        animator.add_pitch(0.0, pitch)
    return [animator.pose(k / 30) for k in range(90)]


def brows(poses: list[Pose]) -> np.ndarray:
    return np.array([(pose.brow_left + pose.brow_right) / 2 for pose in poses])


def test_brows_and_chin_rise_with_the_pitch_and_no_later_than_it() -> None:
    high = np.full(300, 120.0, np.float32)
    high[150:200] = 120 * 2 ** (5 / 12)
    raised, level = spoken(pitch=high), spoken(pitch=np.full(300, 120.0, np.float32))
    rise = brows(raised) - brows(level)
    chin = np.array([a.pitch - b.pitch for a, b in zip(raised, level, strict=True)])
    assert 0.25 < rise.max() < 0.6
    assert 0.8 < chin.max() < 2.5
    assert 1.4 < rise.argmax() / 30 < 2.1
    assert np.abs(rise[:36]).max() < 0.05
    assert np.abs(rise[75:]).max() < 0.08


def test_a_question_ends_with_raised_brows() -> None:
    rising = np.full(300, 110.0, np.float32)
    rising[240:] = np.geomspace(110, 200, 60)
    falling = np.full(300, 110.0, np.float32)
    falling[240:] = np.geomspace(110, 75, 60)
    difference = brows(spoken(pitch=rising)) - brows(spoken(pitch=falling))
    assert difference[86] > 0.25


def test_stressed_syllables_raise_the_brows_and_nod() -> None:
    energy = np.full(300, 0.03, np.float32)
    energy[100:130] = 0.25
    stressed, flat = spoken(energy), spoken(np.full(300, 0.03, np.float32))
    assert (brows(stressed) - brows(flat)).max() > 0.15
    assert min(a.pitch - b.pitch for a, b in zip(stressed, flat, strict=True)) < -0.5


def test_tones_are_semitones_and_bridge_what_has_no_pitch() -> None:
    pitch = np.full(100, 100.0, np.float32)
    pitch[40:60] = 0.0
    np.testing.assert_allclose(tones(pitch, 100.0), 0.0, atol=1e-6)
    np.testing.assert_allclose(tones(pitch, 50.0), 7.0, atol=1e-5)  # an octave: bounded
    np.testing.assert_allclose(tones(pitch, 100 / 2 ** (3 / 12)), 3.0, atol=1e-5)
    assert not tones(np.zeros(50, np.float32), 100.0).any()


def test_the_middle_pitch_follows_the_voice_slowly() -> None:
    middle = MiddlePitch()
    middle.hear(np.zeros(50, np.float32))
    assert middle.hz == 0
    middle.hear(np.full(50, 100.0, np.float32))
    assert middle.hz == pytest.approx(100)
    middle.hear(np.full(50, 200.0, np.float32))
    assert 110 < middle.hz < 140


def test_pitch_that_comes_in_pieces_is_one_melody() -> None:
    pitch = np.geomspace(90, 180, 300).astype(np.float32)
    whole, pieces = Animator(seed=1), Animator(seed=1)
    for animator in (whole, pieces):
        animator.add_speech(0.0, SPEECH, np.full(300, 0.05, np.float32))
        animator.add_pitch(0.0, np.full(20, 127.0, np.float32))
    whole.add_pitch(0.0, pitch)
    for part in np.split(pitch, 3):
        pieces._mouth.add_pitch(0.0, part, whole._middle_pitch.hz)
    for t in np.arange(0.1, 2.9, 0.1):
        assert pieces._mouth.tone(float(t)) == pytest.approx(whole._mouth.tone(float(t)), abs=0.02)
