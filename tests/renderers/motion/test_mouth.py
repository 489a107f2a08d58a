"""What the lips and the jaw do, and when."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from renderers import Attitude, Pose, Viseme, VisemeSpan
from renderers.motion import LEAD_S, Animator, mouth_track
from renderers.motion.articulation import aperture, rounding
from renderers.motion.coarticulation import PADDING_S, RATE_HZ, MouthTrack
from renderers.motion.mouth import Mouth

QUIET = np.zeros(0, np.float32)
MAMA = [
    VisemeSpan(Viseme.PP, 0.0, 0.09),
    VisemeSpan(Viseme.AA, 0.09, 0.28),
    VisemeSpan(Viseme.PP, 0.28, 0.36),
    VisemeSpan(Viseme.AA, 0.36, 0.60),
]


def row(*sounds: tuple[Viseme, float], start: float = 0.0) -> list[VisemeSpan]:
    out = []
    for viseme, length in sounds:
        out.append(VisemeSpan(viseme, start, start + length))
        start += length
    return out


def at(track: MouthTrack, t: float) -> np.ndarray:
    return track.weights[round((t + PADDING_S) * RATE_HZ)]


def jaw_at(track: MouthTrack, t: float) -> float:
    return float(track.jaw[round((t + PADDING_S) * RATE_HZ)])


def spoken(
    spans: list[VisemeSpan], energy: np.ndarray = QUIET, start: float = 1.0, phase: float = 0.0
) -> list[tuple[float, Pose]]:
    """(seconds of the sound, pose) of a speaker at 30 frames a second."""
    animator = Animator(seed=2)
    animator.set_attitude(Attitude.SPEAKING, 0.0)
    animator.add_speech(start, spans, energy)
    times = [k / 30 + phase for k in range(round((start + spans[-1].end + 0.6) * 30))]
    return [(t - start, animator.pose(t)) for t in times]


@st.composite
def speech(draw: st.DrawFn) -> list[VisemeSpan]:
    t, out = draw(st.floats(-PADDING_S, 0.5)), []
    for viseme in draw(st.lists(st.integers(0, 14), max_size=30)):
        end = t + draw(st.floats(0.0, 0.3))
        out.append(VisemeSpan(viseme, t, end))
        t = end
    return out


@given(speech())
@settings(max_examples=80, deadline=None)
def test_weights_are_never_negative_nor_over_one_and_the_mouth_rests_at_both_ends(
    spans: list[VisemeSpan],
) -> None:
    track = mouth_track(spans)
    assert np.isfinite(track.weights).all()
    assert track.weights.min() >= 0
    assert track.weights.sum(axis=1).max() <= 1.0001
    assert track.jaw.min() >= 0
    assert track.jaw.max() <= 1
    if not spans or spans[0].start > 0.2:
        assert track.weights[0].sum() < 0.05
    assert track.weights[-1].sum() < 0.1


def test_lips_are_closed_in_the_middle_of_every_p_b_m_and_the_jaw_with_them() -> None:
    track = mouth_track(MAMA)
    for middle in (0.045, 0.32):
        assert at(track, middle)[Viseme.PP] > 0.97
        assert jaw_at(track, middle) < 0.01


@pytest.mark.parametrize("length", [0.0, 0.02, 0.025, 0.06])
@pytest.mark.parametrize("viseme", [Viseme.PP, Viseme.FF])
def test_even_a_very_short_closure_between_open_vowels_is_reached(
    viseme: Viseme, length: float
) -> None:
    track = mouth_track(row((Viseme.AA, 0.2), (viseme, length), (Viseme.AA, 0.3)))
    assert at(track, 0.2 + length / 2)[viseme] > 0.93
    assert jaw_at(track, 0.2 + length / 2) < 0.12


@pytest.mark.parametrize("first", [Viseme.PP, Viseme.FF])
def test_lips_that_close_twice_in_a_row_do_both_without_opening_between(first: Viseme) -> None:
    second = Viseme.FF if first is Viseme.PP else Viseme.PP
    track = mouth_track(row((Viseme.AA, 0.2), (first, 0.08), (second, 0.08), (Viseme.AA, 0.2)))
    assert at(track, 0.24)[first] > 0.97
    assert at(track, 0.32)[second] > 0.97
    for t in np.arange(0.24, 0.32, 0.01):
        assert at(track, float(t))[[first, second]].sum() > 0.9


def test_closures_hold_on_the_pose_however_loud_the_vowels_and_wherever_the_frames_lie() -> None:
    word = row(
        (Viseme.AA, 0.15),
        (Viseme.PP, 0.06),
        (Viseme.AA, 0.12),
        (Viseme.FF, 0.07),
        (Viseme.OH, 0.15),
    )
    for loud, phase in itertools.product((0.02, 0.1, 0.4), np.arange(0, 1 / 30, 0.004)):
        poses = spoken(word, np.full(60, loud, np.float32), phase=float(phase))
        closed = [p for t, p in poses if 0.15 - 0.1 <= t <= 0.21]
        assert min(aperture(p) for p in closed) < 0.02
        assert max(p.visemes[Viseme.PP] for p in closed) > 0.95
        on_teeth = [p for t, p in poses if 0.33 - 0.1 <= t <= 0.40]
        assert max(p.visemes[Viseme.FF] for p in on_teeth) > 0.9
        assert min(p.jaw for p in on_teeth) < 0.12


def test_a_murmur_opens_the_mouth_less_and_rounds_it_nearly_as_much() -> None:
    word = row((Viseme.DD, 0.1), (Viseme.AA, 0.25), (Viseme.SS, 0.1), (Viseme.OU, 0.25))
    soft = spoken(word, np.full(80, 0.02, np.float32))
    loud = spoken(word, np.full(80, 0.14, np.float32))
    assert max(aperture(p) for _, p in soft) < 0.8 * max(aperture(p) for _, p in loud)
    assert max(rounding(p) for _, p in soft) > 0.8 * max(rounding(p) for _, p in loud)


def test_a_vowel_is_reached_and_opens_the_jaw() -> None:
    track = mouth_track(MAMA)
    assert at(track, 0.5)[Viseme.AA] > 0.75
    assert jaw_at(track, 0.5) > 0.7


def test_rounding_starts_before_its_vowel_and_ends_after_it() -> None:
    track = mouth_track(row((Viseme.SS, 0.15), (Viseme.OU, 0.15), (Viseme.SS, 0.15)))
    assert at(track, 0.08)[Viseme.OU] > 0.2
    assert at(track, 0.225)[Viseme.OU] > 0.72
    assert at(track, 0.37)[Viseme.OU] > 0.2


def test_a_rounded_vowel_that_is_too_short_to_be_reached_is_rounded_all_the_same() -> None:
    track = mouth_track(row((Viseme.AA, 0.2), (Viseme.OU, 0.04), (Viseme.AA, 0.2)))
    assert at(track, 0.22)[Viseme.OU] > 0.6


def test_the_mouth_never_jumps_from_frame_to_frame() -> None:
    word = row(*[(v, 0.07) for v in (Viseme.PP, Viseme.AA, Viseme.FF, Viseme.AA) * 4])
    steps = []
    for phase in np.arange(0, 1 / 30, 0.005):
        openness = [aperture(p) for _, p in spoken(word, phase=float(phase))]
        steps.append(np.abs(np.diff(openness)).max())
    assert max(steps) < 0.45


def test_spans_that_run_backwards_are_refused() -> None:
    with pytest.raises(ValueError, match="follow each other"):
        mouth_track([VisemeSpan(1, 0.2, 0.3), VisemeSpan(2, 0.0, 0.1)])


def test_a_sound_before_the_first_sample_is_shown() -> None:
    track = mouth_track(row((Viseme.FF, 0.08), (Viseme.AA, 0.2), start=-0.08))
    assert at(track, -0.04)[Viseme.FF] > 0.95


def test_the_mouth_leads_the_sound_by_60_to_80_ms() -> None:
    # One open vowel out of silence: its middle in the picture against its middle in the sound.
    opening = [(t, pose.jaw) for t, pose in spoken([VisemeSpan(Viseme.AA, 0.2, 0.4)])]
    middle = sum(t * jaw for t, jaw in opening) / sum(jaw for _, jaw in opening)
    assert 0.060 <= 0.3 - middle <= 0.080
    assert 0.060 <= LEAD_S <= 0.080


def test_a_pause_in_the_sound_delays_the_mouth_by_the_same_time() -> None:
    straight, paused = Mouth(), Mouth()
    for mouth in (straight, paused):
        mouth.add(0.5, MAMA, QUIET)
        mouth.add(1.1, MAMA, QUIET)
    for step in range(10):  # the sound stands still for 0.2 s, noticed in pieces of 20 ms
        paused.shift(0.8 + step * 0.02, 0.02)
    a = np.zeros(15, np.float32)
    b = np.zeros(15, np.float32)
    for t in np.arange(1.05, 1.9, 0.01):
        paused.shape(float(t) + 0.2, a)
        straight.shape(float(t), b)
        np.testing.assert_allclose(a, b, atol=0.02)


def test_loudness_that_comes_late_is_taken_up() -> None:
    mouth = Mouth()
    mouth.add(0.0, MAMA, np.full(10, 0.1, np.float32))
    assert mouth.loudness(0.05) == pytest.approx(0.1)
    assert mouth.loudness(0.3) is None
    mouth.extend_energy(0.1, np.full(40, 0.2, np.float32))
    assert mouth.loudness(0.3) == pytest.approx(0.2)
