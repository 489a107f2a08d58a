"""The poses of an avatar that says something, or idles: those of a session, at a film's pace."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from avatar_server.avatar.clip import ENERGY_SAMPLES, rms_per_10_ms
from avatar_server.inference.llm.manner import mood
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
        shown = emotion or mood("", speech.text)
        end = speech.seconds
        for start, clause in speech.clauses:
            energy = rms_per_10_ms(clause.pcm[: len(clause.pcm) // ENERGY_SAMPLES * ENERGY_SAMPLES])
            animator.add_speech(start, clause.visemes, energy)
        animator.set_emotion(shown, 0.0, for_s=seconds)
    elif emotion is not None:
        animator.set_emotion(emotion, 0.0, for_s=seconds)
    for frame in range(round(seconds * fps)):
        at = frame / fps
        speaking = speech is not None and speech.clauses[0].start <= at + 0.1 and at < end
        animator.set_attitude(Attitude.SPEAKING if speaking else Attitude.IDLE, at)
        yield Moment(at, animator.pose(at, pose))
