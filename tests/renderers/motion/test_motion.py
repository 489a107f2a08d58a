"""The behaviour of a face over time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from renderers import Attitude, Pose, Viseme, VisemeSpan
from renderers.motion import LEAD_S, Animator, mouth_track
from renderers.motion.coarticulation import JAW, PADDING_S, RATE_HZ
from renderers.motion.eyes import closure
from renderers.motion.noise import SmoothNoise
from renderers.motion.spring import Spring

QUIET = np.zeros(0, np.float32)
MAMA = [
    VisemeSpan(Viseme.PP, 0.0, 0.09),
    VisemeSpan(Viseme.AA, 0.09, 0.28),
    VisemeSpan(Viseme.PP, 0.28, 0.36),
    VisemeSpan(Viseme.AA, 0.36, 0.60),
]


def at(track: np.ndarray, t: float) -> np.ndarray:
    return track[round((t + PADDING_S) * RATE_HZ)]


def frames(animator: Animator, start: float, end: float) -> list[tuple[float, Pose]]:
    out = []
    for k in range(round(start * 30), round(end * 30)):
        out.append((k / 30, animator.pose(k / 30)))
    return out


@st.composite
def spans(draw: st.DrawFn) -> list[VisemeSpan]:
    t, out = draw(st.floats(0, 0.5)), []
    for viseme in draw(st.lists(st.integers(0, 14), max_size=30)):
        end = t + draw(st.floats(0.0, 0.3))
        out.append(VisemeSpan(viseme, t, end))
        t = end
    return out


@given(spans())
@settings(max_examples=60, deadline=None)
def test_weights_are_never_negative_nor_over_one_and_the_mouth_rests_at_both_ends(
    speech: list[VisemeSpan],
) -> None:
    track = mouth_track(speech)
    assert np.isfinite(track).all()
    assert track.min() >= 0
    assert track.sum(axis=1).max() <= 1.0001
    if not speech or speech[0].start > 0.2:
        assert track[0].sum() < 0.05
    assert track[-1].sum() < 0.1


def test_lips_are_closed_in_the_middle_of_every_p_b_m() -> None:
    track = mouth_track(MAMA)
    for middle in (0.045, 0.32):
        assert at(track, middle)[Viseme.PP] > 0.97


def test_even_a_very_short_p_between_open_vowels_closes_the_lips() -> None:
    track = mouth_track(
        [
            VisemeSpan(Viseme.AA, 0, 0.2),
            VisemeSpan(Viseme.PP, 0.2, 0.225),
            VisemeSpan(Viseme.AA, 0.225, 0.5),
        ]
    )
    assert at(track, 0.21)[Viseme.PP] > 0.95


def test_a_vowel_is_reached_and_opens_the_jaw() -> None:
    track = mouth_track(MAMA)
    assert at(track, 0.5)[Viseme.AA] > 0.75
    assert at(track, 0.5) @ JAW > 0.7


def test_rounding_starts_before_its_vowel() -> None:
    track = mouth_track([VisemeSpan(Viseme.SS, 0, 0.15), VisemeSpan(Viseme.OU, 0.15, 0.4)])
    assert at(track, 0.08)[Viseme.OU] > 0.15


def test_spans_that_run_backwards_are_refused() -> None:
    with pytest.raises(ValueError, match="follow each other"):
        mouth_track([VisemeSpan(1, 0.2, 0.3), VisemeSpan(2, 0.0, 0.1)])


def test_the_mouth_leads_the_sound_and_never_lags() -> None:
    animator = Animator(seed=2)
    # One open vowel out of silence: its middle in the picture against its middle in the sound.
    animator.add_speech(1.0, [VisemeSpan(Viseme.AA, 0.2, 0.4)], QUIET)
    opening = [(t, pose.jaw) for t, pose in frames(animator, 0.8, 2.0)]
    weight = sum(jaw for _, jaw in opening)
    middle = sum(t * jaw for t, jaw in opening) / weight
    lead = 1.3 - middle
    assert 0.0 <= lead <= 0.080
    assert LEAD_S <= 0.080


def test_a_cut_closes_the_mouth_within_150_ms_and_forgets_what_was_to_come() -> None:
    animator = Animator()
    animator.add_speech(0.0, [VisemeSpan(Viseme.AA, 0.0, 5.0)], QUIET)
    animator.add_speech(5.0, [VisemeSpan(Viseme.OH, 0.0, 5.0)], QUIET)
    assert frames(animator, 0.0, 1.0)[-1][1].jaw > 0.7
    animator.cut_speech(1.0)
    closing = frames(animator, 1.0, 6.0)
    assert all(pose.jaw < 0.08 for t, pose in closing if t >= 1.15)
    assert all(pose.visemes.sum() == 0 for t, pose in closing if t >= 1.15)


def test_a_pause_in_the_sound_delays_the_mouth_by_the_same_time() -> None:
    straight, paused = Animator(), Animator()
    for animator in (straight, paused):
        animator.add_speech(0.5, MAMA, QUIET)
        animator.add_speech(1.1, MAMA, QUIET)
    for step in range(10):  # the sound stands still for 0.2 s, noticed in pieces of 20 ms
        paused.shift_speech(0.8 + step * 0.02, 0.02)
    a = np.zeros(15, np.float32)
    b = np.zeros(15, np.float32)
    for t in np.arange(1.05, 1.9, 0.01):
        paused._mouth.weights(float(t) + 0.2, a)
        straight._mouth.weights(float(t), b)
        np.testing.assert_allclose(a, b, atol=0.02)


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


def test_a_listener_nods_and_raises_the_brows_and_a_thinker_looks_away() -> None:
    listening, thinking, idle = Animator(seed=3), Animator(seed=3), Animator(seed=3)
    listening.set_attitude(Attitude.LISTENING, 0.0)
    thinking.set_attitude(Attitude.THINKING, 0.0)
    heard = [p for _, p in frames(listening, 0, 20)]
    thought = [p for _, p in frames(thinking, 0, 20)]
    rest = [p for _, p in frames(idle, 0, 20)]
    assert np.mean([p.brow_left for p in heard]) > np.mean([p.brow_left for p in rest]) + 0.1
    assert min(p.pitch for p in heard) < -2.5
    assert np.mean([abs(p.gaze_x) for p in thought]) > 0.25
    assert np.mean([p.gaze_y for p in thought]) > 0.15


def test_an_emotion_shows_and_passes() -> None:
    animator = Animator()
    animator.set_emotion("happy", 0.0, for_s=2.0)
    smiling = frames(animator, 0, 2)[-1][1].smile
    later = frames(animator, 2, 5)[-1][1].smile
    assert smiling > 0.5 > later + 0.2
    animator.set_emotion("no such feeling", 5.0)
    assert frames(animator, 5, 6)[-1][1].frown == pytest.approx(0, abs=0.01)


def test_loud_syllables_move_brows_and_head() -> None:
    loud, flat = Animator(seed=9), Animator(seed=9)
    speech = [VisemeSpan(Viseme.AA, 0, 2)]
    energy = np.full(200, 0.02, np.float32)
    energy[100:130] = 0.3
    loud.add_speech(0, speech, energy)
    flat.add_speech(0, speech, np.full(200, 0.02, np.float32))
    brow = [p.brow_left for _, p in frames(loud, 0, 2)]
    still = [p.brow_left for _, p in frames(flat, 0, 2)]
    assert max(np.array(brow) - np.array(still)) > 0.15


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
