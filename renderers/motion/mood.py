"""What a face looks like at rest, by what it feels and does."""

from __future__ import annotations

from typing import NamedTuple

from renderers.contract import Attitude


class Mood(NamedTuple):
    """What an emotion or attitude adds to the face at rest. Angles in degrees, the rest -1..1."""

    smile: float = 0.0
    frown: float = 0.0
    brows: float = 0.0
    inner: float = 0.0
    """Inner ends of the brows raised: sorrow, concern."""
    skew: float = 0.0
    """The left brow higher than the right one: doubt."""
    squint: float = 0.0
    """Lower lids raised: a smile that reaches the eyes."""
    lids: float = 0.0
    """Upper lids lowered."""
    jaw: float = 0.0
    """Lips parted while nothing is said."""
    pitch: float = 0.0
    roll: float = 0.0
    gaze_y: float = 0.0


# Which muscles show what is that of the basic emotions in the Facial Action Coding System (Ekman &
# Friesen 1978; happiness AU 6+12, sadness 1+4+15, surprise 1+2+5+26); head as in Mignault &
# Chaudhuri 2003: bowed for sadness and shame, raised for joy. How much was set by eye.
EMOTIONS: dict[str, Mood] = {
    "neutral": Mood(smile=0.12),
    "happy": Mood(smile=0.85, brows=0.22, squint=0.45, pitch=1.4, roll=1.2),
    "sad": Mood(frown=0.75, brows=-0.28, inner=0.85, lids=0.16, pitch=-3.2, roll=-1.0, gaze_y=-0.1),
    "surprised": Mood(smile=-0.2, brows=1.0, inner=0.45, jaw=0.3, pitch=2.0),
    "thinking": Mood(brows=-0.14, skew=0.38, squint=0.26, frown=0.22, pitch=0.8, roll=3.0),
    "apologetic": Mood(
        smile=-0.06, frown=0.34, inner=0.95, brows=0.06, pitch=-2.6, roll=-3.2, gaze_y=-0.06
    ),
}

ATTITUDES: dict[Attitude, Mood] = {
    Attitude.IDLE: Mood(smile=0.10),
    Attitude.LISTENING: Mood(smile=0.10, brows=0.22, inner=0.08, pitch=-0.8, roll=1.6),
    Attitude.THINKING: Mood(brows=-0.10, inner=0.16, squint=0.14, pitch=1.4, roll=-2.0),
    Attitude.SPEAKING: Mood(smile=0.06, brows=0.04),
}

FEWEST_S = 1.2
"""An emotion is shown for this long at least: shorter ones look like twitches (spontaneous
expressions last 0.5 to 4 s, Ekman & Friesen 1982)."""


class Feeling:
    """Which emotion shows when. Emotions can be set ahead of time; times are media seconds."""

    def __init__(self) -> None:
        self._mood = EMOTIONS["neutral"]
        self._name = "neutral"
        self._until = 0.0

    @property
    def name(self) -> str:
        return self._name

    def set(self, name: str, t: float, for_s: float) -> None:
        """Show emotion `name` for `for_s` from `t` on; an unknown one shows as neutral."""
        self._name = name if name in EMOTIONS else "neutral"
        self._mood = EMOTIONS[self._name]
        self._until = t + max(for_s, FEWEST_S)

    def at(self, t: float, attitude: Attitude) -> Mood:
        """What the face aims for at `t`."""
        if t >= self._until and self._name != "neutral":
            self.set("neutral", t, 0.0)
        return Mood(*(a + e for a, e in zip(ATTITUDES[attitude], self._mood, strict=True)))
