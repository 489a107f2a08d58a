"""The mouths that speech passes through, found by practising without a word.

Made-up syllables, with the sounds as frequent and as long as in English speech, move the same mouth
that replies move. The result depends on nothing else, so it is the same everywhere.
"""

from __future__ import annotations

from random import Random

import numpy as np
from numpy.typing import NDArray

from renderers.contract import Attitude, Pose, Viseme, VisemeSpan
from renderers.motion import Animator
from renderers.puppet.cache import Key, KeyBook
from renderers.puppet.visemes import CLOSED, MOUTH_TOLERANCE, mouth_key

PRACTICE_S = 180.0
"""Seconds to practise: of real speech one mouth in twenty-five is not among those found then."""

_FPS = 30

# Shares (%) of the sounds among a speaker's, and how long (ms) the middle one of each lasts:
# counted in two minutes of the bundled English voice.
_CONSONANTS: dict[Viseme, tuple[float, float]] = {
    Viseme.PP: (6.5, 70),
    Viseme.FF: (2.4, 58),
    Viseme.TH: (1.7, 64),
    Viseme.DD: (8.6, 61),
    Viseme.KK: (4.4, 78),
    Viseme.CH: (0.7, 104),
    Viseme.SS: (5.3, 70),
    Viseme.NN: (8.3, 70),
    Viseme.RR: (7.4, 81),
}
_VOWELS: dict[Viseme, tuple[float, float]] = {
    Viseme.AA: (12.1, 75),
    Viseme.E: (7.9, 70),
    Viseme.IH: (13.6, 64),
    Viseme.OH: (3.0, 81),
    Viseme.OU: (9.1, 67),
}
_HAPPY = 0.1
"""Share of the clauses said with a smile."""

_SPREAD = 0.4
"""Spread of the lengths' logarithm: the tenth longest last 1.7 times the middle one."""


def spoken_mouths(seconds: float = PRACTICE_S, seed: int = 1) -> list[Key]:
    """Keys of mouths such that any mouth of the practice is near one of them."""
    book = KeyBook(MOUTH_TOLERANCE, CLOSED)
    for pose in babble(seconds, seed):
        key = mouth_key(pose)
        if book.nearest(key) is None:
            book.add(key)
    return book.keys()


def babble(seconds: float, seed: int) -> list[Pose]:
    """A face that speaks nonsense, at 30 frames a second."""
    random = Random(seed)
    animator = Animator(seed=seed)
    animator.set_attitude(Attitude.SPEAKING, 0.0)
    start = 0.3
    happy: list[tuple[float, float]] = []
    while start < seconds:
        spans = _clause(random)
        length = spans[-1].end
        animator.add_speech(start, spans, _loudness(random, spans))
        if random.random() < _HAPPY:
            happy.append((start, length))
        start += length + random.choice((0.0, 0.0, 0.3))
    poses = []
    for frame in range(round(seconds * _FPS)):
        time_s = frame / _FPS
        if happy and time_s >= happy[0][0]:
            animator.set_emotion("happy", time_s, for_s=happy.pop(0)[1])
        poses.append(animator.pose(time_s))
    return poses


def _clause(random: Random) -> list[VisemeSpan]:
    spans: list[VisemeSpan] = []
    time_s = 0.0

    def say(sounds: dict[Viseme, tuple[float, float]], stretch: float = 1.0) -> None:
        nonlocal time_s
        (viseme,) = random.choices(list(sounds), [share for share, _ in sounds.values()])
        length = sounds[viseme][1] * 1e-3 * random.lognormvariate(0.0, _SPREAD) * stretch
        spans.append(VisemeSpan(viseme, time_s, time_s + length))
        time_s += length

    syllables = random.randint(2, 14)
    for syllable in range(syllables):
        for _ in range(random.choices((0, 1, 2), (2, 8, 3))[0]):
            say(_CONSONANTS)
        # The last syllable of a clause is drawn out.
        say(_VOWELS, 1.6 if syllable == syllables - 1 else 1.0)
        if random.random() < 0.35:
            say(_CONSONANTS)
        if random.random() < 0.06:
            spans.append(VisemeSpan(Viseme.SIL, time_s, time_s + 0.08))
            time_s += 0.08
    spans.append(VisemeSpan(Viseme.SIL, time_s, time_s + 0.22))
    return spans


def _loudness(random: Random, spans: list[VisemeSpan]) -> NDArray[np.float32]:
    energy = np.zeros(max(1, round(spans[-1].end * 100)), np.float32)
    for span in spans:
        level = 0.0
        if span.viseme != Viseme.SIL:
            level = random.uniform(0.04, 0.17) if span.viseme >= Viseme.AA else 0.03
        energy[round(span.start * 100) : round(span.end * 100)] = level
    soft = np.hanning(9)
    return np.convolve(energy, soft / soft.sum(), mode="same").astype(np.float32)
