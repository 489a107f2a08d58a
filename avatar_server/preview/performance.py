"""The poses of an avatar that says something, or idles: those of a session, at a film's pace."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from avatar_server.avatar.clip import ENERGY_SAMPLES, rms_per_10_ms
from avatar_server.avatar.pitch import pitch_of_whole
from avatar_server.inference.llm.emotion import emotion_of
from avatar_server.preview.voice import Speech
from renderers import Attitude, Pose
from renderers.motion import Animator

LEAD_S, TAIL_S = 0.5, 0.9
"""A face is seen for a moment before it speaks, and after."""


class Moment(NamedTuple):
    """A pose and the media time (s) that it is for."""

    at: float
    pose: Pose


def performance(
    speech: Speech | None, *, seconds: float, fps: int, seed: int, emotion: str | None = None
) -> Iterator[Moment]:
    """`seconds` of a face at `fps`; the pose is filled anew for each moment.

    It says `speech`, with the emotion that its words ask for where none is given, or idles.
    """
    animator = Animator(seed=seed)
    pose = Pose()
    end = 0.0
    if speech is not None:
        end = speech.seconds
        for start, clause, _ in speech.clauses:
            pcm = clause.pcm[: len(clause.pcm) // ENERGY_SAMPLES * ENERGY_SAMPLES]
            animator.add_speech(start, clause.visemes, rms_per_10_ms(pcm))
            animator.add_pitch(start, pitch_of_whole(pcm))
    if emotion is not None:
        animator.set_emotion(emotion, 0.0, for_s=seconds)
    felt = []
    if speech is not None and emotion is None:
        felt = [(start, emotion_of(text)) for start, _, text in speech.clauses]
    for frame in range(round(seconds * fps)):
        at = frame / fps
        while felt and at >= felt[0][0]:
            _, name = felt.pop(0)
            if name:
                animator.set_emotion(name, at)
        speaking = speech is not None and speech.clauses[0].start <= at + 0.1 and at < end
        animator.set_attitude(Attitude.SPEAKING if speaking else Attitude.IDLE, at)
        yield Moment(at, animator.pose(at, pose))
