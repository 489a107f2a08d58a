"""The playout and the real animator together: lips against the sound that was pulled."""

from __future__ import annotations

import random

import numpy as np
import pytest
from numpy.typing import NDArray

from avatar_server.avatar.playout import Playout
from avatar_server.clock import ManualClock
from avatar_server.protocol.messages import ReplyAudio
from renderers.contract import Attitude, Pose, Viseme, VisemeSpan
from renderers.motion import Animator

RATE = 48_000
STEP = 960
GRID_S = 0.005


def syllables(rng: random.Random, count: int) -> tuple[NDArray[np.int16], list[VisemeSpan]]:
    """Open vowels with closed lips between them, of odd lengths."""
    parts, spans, at = [], [], 0.0
    for number in range(count):
        length = rng.uniform(0.12, 0.3)
        vowel = number % 2 == 0
        samples = round(length * RATE)
        parts.append(np.full(samples, 12_000 if vowel else 0, np.int16))
        spans.append(VisemeSpan(Viseme.AA if vowel else Viseme.PP, at, at + samples / RATE))
        at += samples / RATE
    return np.concatenate(parts), spans


def talk(seed: int, late: bool) -> tuple[NDArray[np.float64], NDArray[np.float64], Playout]:
    """Loudness and openness every 5 ms of playout time; `late`: pieces come late now and then."""
    rng = random.Random(seed)
    animator = Animator(seed=seed)
    animator.set_attitude(Attitude.SPEAKING, 0.0)
    playout = Playout(animator, clock=ManualClock())
    sound: list[NDArray[np.int16]] = []
    open_at: list[tuple[float, float]] = []
    pose = Pose()

    def run(steps: int) -> None:
        for _ in range(steps):
            # The face is drawn for the moment that is about to be heard.
            animator.pose(playout.position, pose)
            open_at.append((playout.position, float(pose.visemes[Viseme.AA])))
            sound.append(playout.pull(STEP))

    playout.commit("r", 1)
    for clause in range(5):
        pcm, spans = syllables(rng, 10)
        pieces = np.array_split(pcm, 5)
        for number, part in enumerate(pieces):
            playout.push(
                "r",
                ReplyAudio(
                    job="r",
                    clause=clause,
                    piece=number,
                    pcm=part.tobytes(),
                    last=number == len(pieces) - 1,
                    text="a" if number == 0 else "",
                    visemes=spans if number == 0 else [],
                ),
            )
            run(rng.choice([0, 5, 40]) if late else 10)
        run(15 if late else 60)
    run(200)
    pcm = np.concatenate(sound)
    times = np.arange(0, playout.position, GRID_S)
    loud = (pcm[(times * RATE).astype(int)] > 1_000).astype(float)
    at, openness = zip(*open_at, strict=True)
    return loud, np.interp(times, at, openness), playout


def best_lag_ms(loud: NDArray[np.float64], openness: NDArray[np.float64]) -> tuple[float, float]:
    """By how much the lips are late (negative: early), and the correlation there."""
    lags = range(-40, 41)
    scores = []
    for lag in lags:
        a = loud[50:-50]
        b = openness[50 + lag : len(openness) - 50 + lag]
        scores.append(float(np.corrcoef(a, b)[0, 1]))
    best = int(np.argmax(scores))
    return lags[best] * GRID_S * 1000, scores[best]


@pytest.mark.parametrize("late", [False, True], ids=["in time", "running dry"])
def test_lips_lead_the_sound_by_at_most_80_ms_and_never_lag(late: bool) -> None:
    loud, openness, playout = talk(seed=2, late=late)
    assert (playout.underruns > 2) is late
    lag_ms, correlation = best_lag_ms(loud, openness)
    assert correlation > 0.6
    assert -80 <= lag_ms <= 0
