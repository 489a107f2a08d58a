"""What a playout tells of itself, and whom it tells while it plays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from renderers.contract import VisemeSpan


class Mouth(Protocol):
    """What moves the avatar's mouth. Times are seconds of the playout clock.

    It is called from whichever thread pushes or pulls, while the playout's lock is held: it must
    be quick and must not call the playout, apart from reading `position`.
    """

    def add_speech(
        self, start: float, visemes: Sequence[VisemeSpan], energy: NDArray[np.float32]
    ) -> None:
        """A clause's first sample will be played at `start`. `energy`: RMS 0..1 per 10 ms."""
        ...

    def extend_energy(self, start: float, energy: NDArray[np.float32]) -> None:
        """More energy is known: of the sound that begins at `start`, within the newest clause."""
        ...

    def shift_speech(self, after: float, by: float) -> None:
        """The sound starved at `after`: everything later comes `by` later."""
        ...

    def cut_speech(self, at: float) -> None:
        """Nothing is heard from `at` on."""
        ...


@runtime_checkable
class Expressive(Protocol):
    """A mouth that belongs to a face."""

    def set_emotion(self, name: str, t: float) -> None:
        """Look `name` (neutral, happy, …) from `t` (s of the playout clock) on, for a while."""
        ...


@runtime_checkable
class Melodic(Protocol):
    """A mouth whose face moves with the melody of the voice."""

    def add_pitch(self, start: float, pitch: NDArray[np.float32]) -> None:
        """More pitch is known (Hz per 10 ms; 0: no voice): of the sound that begins at `start`,
        within the newest clause."""
        ...


@runtime_checkable
class Attentive(Protocol):
    """A mouth whose face shows that it listens."""

    def hear_viewer(self, voiced: bool, t: float) -> None:
        """Whether the voice of the viewer who is listened to is heard at `t` (s of the playout
        clock)."""
        ...


@dataclass(frozen=True, slots=True)
class ClauseStarted:
    """A clause's first sample was pulled; `position` in seconds of the playout clock.

    `emotion`: what the face shows with it; empty: as before.
    """

    turn: int
    clause: int
    text: str
    position: float
    emotion: str = ""


@dataclass(frozen=True, slots=True)
class WordSpoken:
    """A word began. `spoken` is the clause's `text` up to and with it."""

    turn: int
    clause: int
    text: str
    spoken: str
    position: float


@dataclass(frozen=True, slots=True)
class FirstAudible:
    """The first sample of a reply that can be heard was pulled; `at` is the moment (clock).

    `aside`: not of the reply itself, but of a remark before it.
    """

    turn: int
    at: float
    position: float
    aside: bool = False


@dataclass(frozen=True, slots=True)
class ReplyFinished:
    """A reply was played to its end."""

    turn: int
    heard: str
    position: float


PlayoutEvent = ClauseStarted | WordSpoken | FirstAudible | ReplyFinished


@dataclass(frozen=True, slots=True)
class Cut:
    """What had been heard of a reply when it was cut, and what of it was left."""

    heard: str
    rest: str
    audible: bool
