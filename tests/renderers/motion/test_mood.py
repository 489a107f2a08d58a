"""Emotions on the face."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from renderers import Attitude, Pose, Viseme, VisemeSpan
from renderers.motion import EMOTIONS, Animator
from renderers.motion.articulation import aperture

FIELDS = ("smile", "frown", "brow_left", "brow_right", "brow_inner", "squint", "pitch", "roll")


def faces(animator: Animator, start: float, end: float) -> list[Pose]:
    return [animator.pose(k / 30) for k in range(round(start * 30), round(end * 30))]


def felt(name: str, seconds: float = 6.0, seed: int = 4) -> dict[str, float]:
    """The means of the fields over the last seconds of an emotion."""
    animator = Animator(seed=seed)
    animator.set_emotion(name, 0.0, for_s=seconds)
    shown = faces(animator, 0, seconds)[60:]
    means = {field: float(np.mean([getattr(pose, field) for pose in shown])) for field in FIELDS}
    return means | {"jaw": float(np.mean([pose.jaw for pose in shown]))}


@pytest.fixture(scope="module")
def shown() -> dict[str, dict[str, float]]:
    return {name: felt(name) for name in EMOTIONS}


def test_each_emotion_has_a_face_of_its_own(shown: dict[str, dict[str, float]]) -> None:
    for one, other in itertools.combinations(EMOTIONS, 2):
        apart = max(
            abs(shown[one][field] - shown[other][field]) for field in FIELDS if field[0] != "p"
        )
        assert apart > 0.25, (one, other)


def test_emotions_move_what_people_move(shown: dict[str, dict[str, float]]) -> None:
    calm = shown["neutral"]
    assert shown["happy"]["smile"] > 0.75
    assert shown["happy"]["squint"] > 0.35
    assert shown["sad"]["frown"] > 0.6
    assert shown["sad"]["brow_inner"] > 0.7
    assert shown["sad"]["pitch"] < calm["pitch"] - 2
    assert shown["surprised"]["brow_left"] > 0.8
    assert 0.2 < shown["surprised"]["jaw"] < 0.4
    assert shown["thinking"]["brow_left"] > shown["thinking"]["brow_right"] + 0.5
    assert shown["apologetic"]["brow_inner"] > 0.8
    assert shown["apologetic"]["roll"] < calm["roll"] - 2


def test_an_emotion_comes_and_goes_smoothly_and_passes() -> None:
    animator = Animator(seed=2)
    faces(animator, 0, 1)
    animator.set_emotion("happy", 1.0, for_s=2.0)
    poses = faces(animator, 1, 6)
    smiles = [pose.smile for pose in poses]
    assert max(smiles) > 0.75
    assert smiles[-1] < 0.35
    for field in ("smile", "brow_left", "squint"):
        assert np.abs(np.diff([getattr(pose, field) for pose in poses])).max() < 0.16, field
    # Half of the way takes a fifth of a second or more: a face is no switch.
    assert next(k for k, smile in enumerate(smiles) if smile > 0.5) >= 5


def test_a_short_emotion_is_shown_long_enough_to_be_seen() -> None:
    animator = Animator()
    animator.set_emotion("surprised", 0.0, for_s=0.1)
    assert faces(animator, 0, 1)[-1].brow_left > 0.7


def test_an_unknown_emotion_is_none() -> None:
    animator = Animator()
    animator.set_emotion("no such feeling", 0.0)
    assert faces(animator, 0, 2)[-1].frown == pytest.approx(0, abs=0.01)


def test_lips_parted_in_surprise_close_for_the_sounds_that_need_it() -> None:
    animator = Animator()
    animator.set_attitude(Attitude.SPEAKING, 0.0)
    animator.set_emotion("surprised", 0.0, for_s=5.0)
    spans = [VisemeSpan(Viseme.PP, 0.0, 0.1), VisemeSpan(Viseme.AA, 0.1, 0.4)]
    animator.add_speech(1.0, spans, np.zeros(0, np.float32))
    poses = {round(k / 30, 3): p for k, p in enumerate(faces(animator, 0, 3))}
    assert aperture(poses[0.5]) > 0.08
    closing = [aperture(pose) for t, pose in poses.items() if 0.9 <= t <= 1.1]
    assert min(closing) < 0.01


def test_who_thinks_aloud_looks_away_though_speaking() -> None:
    thinking, plain = Animator(seed=6), Animator(seed=6)
    for animator in (thinking, plain):
        animator.set_attitude(Attitude.SPEAKING, 0.0)
    thinking.set_emotion("thinking", 0.0, for_s=20.0)
    away = np.mean([abs(pose.gaze_x) for pose in faces(thinking, 0, 15)])
    near = np.mean([abs(pose.gaze_x) for pose in faces(plain, 0, 15)])
    assert away > near + 0.1
