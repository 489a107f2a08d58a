"""From what the avatar does and says to the `Pose` of each frame."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from random import Random

import numpy as np
from numpy.typing import NDArray

from renderers.contract import Attitude, Pose, Viseme, VisemeSpan
from renderers.motion.eyes import Blinks, Gaze
from renderers.motion.mood import Feeling, Mood
from renderers.motion.mouth import LEAD_S, Mouth
from renderers.motion.nods import Nods
from renderers.motion.noise import SmoothNoise
from renderers.motion.posture import Posture
from renderers.motion.prosody import MiddlePitch
from renderers.motion.spring import Spring

NORMAL_RMS = 0.11
"""Loudness (RMS of full scale) of a stressed vowel in normalised speech."""


# Least share of each viseme that is left in a murmur, and the share in loud speech. Lips that close
# and lips that round do so however softly one speaks: only the opening is a matter of effort.
_EASE = np.full(len(Viseme), 0.52, np.float32)
_EASE[[Viseme.OU, Viseme.OH, Viseme.CH]] = 0.75
_EASE[[Viseme.PP, Viseme.FF]] = 1.0
_FULL = np.where(_EASE < 1.0, np.float32(0.9), np.float32(1.0))

_RAISE_PER_ST, _FALL_PER_ST = 0.085, 0.03
_LIFT_DEG_PER_ST = 0.38
"""Brows and chin for each semitone of the voice above (brows: or below) its middle."""

# How much the head drifts, per attitude.
_SWAY = {
    Attitude.IDLE: 1.0,
    Attitude.LISTENING: 0.6,
    Attitude.THINKING: 0.9,
    Attitude.SPEAKING: 1.35,
}


class Animator:
    """One face's behaviour, deterministic under `seed`.

    `pose` is called on one thread with times (media seconds) that do not go back; the other
    methods may be called from another thread.
    """

    def __init__(self, *, seed: int = 1) -> None:
        random = Random(seed)
        self._random = random
        self._lock = threading.Lock()
        self._mouth = Mouth()
        self._blinks = Blinks(random)
        self._gaze = Gaze(random)
        self._attitude = Attitude.IDLE
        self._feeling = Feeling()
        self._nods = Nods(Random(seed + 1))
        self._posture = Posture(Random(seed + 2))
        self._middle_pitch = MiddlePitch()
        self._last: float | None = None
        self._loud_slow = 0.0
        base = seed * 7919
        self._drift = {
            name: SmoothNoise(base + index, rate)
            for index, (name, rate) in enumerate(
                (
                    ("yaw", 0.23),
                    ("pitch", 0.19),
                    ("roll", 0.15),
                    ("sway", 0.11),
                    ("brow", 0.31),
                    ("smile", 0.06),
                )
            )
        }
        self._breath_phase = 0.0
        self._breath_rate = SmoothNoise(base + 50, 0.07)
        self._springs = {
            name: Spring(half_life)
            for name, half_life in (
                ("yaw", 0.16),
                ("pitch", 0.14),
                ("roll", 0.20),
                ("gaze_x", 0.022),
                ("gaze_y", 0.022),
                ("smile", 0.27),
                ("frown", 0.27),
                ("brows", 0.10),
                ("inner", 0.14),
                ("skew", 0.16),
                ("squint", 0.15),
                ("lids", 0.16),
                ("parted", 0.12),
                ("beat", 0.07),
                ("tone", 0.06),
                ("held_yaw", 0.42),
                ("held_pitch", 0.42),
                ("held_roll", 0.50),
                ("sway", 0.5),
            )
        }

    # --- what happens -----------------------------------------------------------------------

    def set_attitude(self, attitude: Attitude, t: float) -> None:
        """What the avatar does from media time `t` on."""
        with self._lock:
            if attitude is self._attitude:
                return
            self._attitude = attitude
            self._gaze.retarget(t)
            self._posture.change_at(t)

    def set_emotion(self, name: str, t: float, *, for_s: float = 6.0) -> None:
        """Show an emotion of `EMOTIONS` for a while. An unknown one shows as neutral."""
        with self._lock:
            self._feeling.set(name, t, for_s)

    def hear_viewer(self, voiced: bool, t: float) -> None:
        """Whether the voice of the viewer who is listened to is heard at media time `t`."""
        with self._lock:
            self._nods.hear(voiced, t)

    def add_speech(
        self, start: float, visemes: Sequence[VisemeSpan], energy: NDArray[np.float32]
    ) -> None:
        """A clause sounds from media time `start`; `energy` is its RMS (0..1) per 10 ms."""
        with self._lock:
            self._mouth.add(start, visemes, energy)
            self._posture.change_at(start)

    def add_pitch(self, start: float, pitch: NDArray[np.float32]) -> None:
        """More of the pitch (Hz, 0 where there is none, per 10 ms) of the clause that started at
        `start`."""
        with self._lock:
            self._middle_pitch.hear(pitch)
            self._mouth.add_pitch(start, pitch, self._middle_pitch.hz)

    def extend_energy(self, start: float, energy: NDArray[np.float32]) -> None:
        """More of the loudness of the clause that started at `start`."""
        with self._lock:
            self._mouth.extend_energy(start, energy)

    def shift_speech(self, after: float, by: float) -> None:
        """The sound paused for `by` seconds at media time `after`."""
        with self._lock:
            self._mouth.shift(after, by)

    def cut_speech(self, at: float) -> None:
        """The sound ends at media time `at`; the mouth closes quickly."""
        with self._lock:
            self._mouth.cut(at)
            self._posture.forget_after(at)

    # --- what is seen -----------------------------------------------------------------------

    def pose(self, t: float, out: Pose | None = None) -> Pose:
        """The face at media time `t`, written into `out` where one is given."""
        pose = out or Pose()
        pose.time_s = t
        with self._lock:
            dt = 1 / 30 if self._last is None else min(max(t - self._last, 0.0), 0.25)
            self._last = t
            speaking, jaw = self._mouth.shape(t, pose.visemes)
            known = self._mouth.loudness(t + LEAD_S)
            loud = NORMAL_RMS if known is None and speaking else known or 0.0
            mood = self._feeling.at(t, self._attitude)
            self._face(pose, t, dt, mood, loud, jaw if speaking else None)
            self._head(pose, t, dt, mood)
            self._eyes(pose, t, dt, mood)
        return pose

    def _face(
        self, pose: Pose, t: float, dt: float, mood: Mood, loud: float, jaw: float | None
    ) -> None:
        """`jaw` is the mouth's own, None where nothing is being said."""
        spring = self._springs
        # Emphasis: loudness above its running mean. 0.05-0.2 is the RMS of normal speech.
        self._loud_slow += (loud - self._loud_slow) * min(dt / 0.6, 1.0)
        emphasis = 0.0 if jaw is None else (loud - self._loud_slow) / 0.12
        beat = spring["beat"].step(min(max(emphasis, 0.0), 1.0), dt)

        # Loud syllables are spoken with a wider mouth, murmured ones hardly open it. No spring
        # follows: what is smoothed here would be late, and lips that have to close would not.
        effort = 1.0 if jaw is None else min(loud / NORMAL_RMS, 1.25)
        pose.visemes *= _EASE + (_FULL - _EASE) * np.float32(min(effort, 1.0))
        pose.jaw = min((jaw or 0.0) * (0.42 + 0.36 * effort), 1.0)

        parted = spring["parted"].step(mood.jaw, dt)
        # Lips that are parted in surprise close before the first sound needs them elsewhere.
        free = max(1.0 - 3.0 * float(pose.visemes.sum()), 0.0)
        pose.jaw = max(pose.jaw, parted * free)
        pose.visemes[Viseme.OH] += np.float32(1.3 * parted * free)

        tone = spring["tone"].step(self._mouth.tone(t + LEAD_S), dt)
        busy = 1.0 - 0.4 * min(float(pose.visemes.sum()), 1.0)
        rest = 0.06 * self._drift["smile"](t) if self._attitude is Attitude.IDLE else 0.0
        pose.smile = min(max(spring["smile"].step((mood.smile + rest) * busy, dt), 0.0), 1.0)
        pose.frown = min(max(spring["frown"].step(mood.frown * busy, dt), 0.0), 1.0)
        melody = tone * (_RAISE_PER_ST if tone > 0 else _FALL_PER_ST)
        brows = spring["brows"].step(mood.brows + 0.34 * beat + melody, dt)
        lift = brows + 0.07 * self._drift["brow"](t)
        skew = spring["skew"].step(mood.skew, dt) + 0.04 * self._drift["roll"](t)
        pose.brow_left = min(max(lift + skew, -1.0), 1.0)
        pose.brow_right = min(max(lift - skew, -1.0), 1.0)
        pose.brow_inner = min(max(spring["inner"].step(mood.inner, dt), -1.0), 1.0)
        pose.squint = min(max(spring["squint"].step(mood.squint, dt), 0.0), 1.0)

    def _head(self, pose: Pose, t: float, dt: float, mood: Mood) -> None:
        spring, held = self._springs, self._posture.step(t, self._attitude)
        sway = _SWAY[self._attitude]
        beat, tone = spring["beat"].value, spring["tone"].value
        yaw = 2.4 * sway * self._drift["yaw"](t) + 3.0 * self._gaze.x
        yaw += spring["held_yaw"].step(held.yaw, dt)
        pitch = 1.7 * sway * self._drift["pitch"](t) + 2.0 * self._gaze.y + mood.pitch
        pitch += spring["held_pitch"].step(held.pitch, dt)
        pitch += _LIFT_DEG_PER_ST * tone - 2.2 * beat
        if self._attitude is not Attitude.SPEAKING:
            pitch -= self._nods.angle(t)
        roll = 1.5 * sway * self._drift["roll"](t) + mood.roll
        roll += spring["held_roll"].step(held.roll, dt)
        pose.yaw = min(max(spring["yaw"].step(yaw, dt), -12.0), 12.0)
        pose.pitch = min(max(spring["pitch"].step(pitch, dt), -8.0), 8.0)
        pose.roll = min(max(spring["roll"].step(roll, dt), -8.0), 8.0)
        pose.sway_x = spring["sway"].step(0.7 * sway * self._drift["sway"](t) + held.sway, dt)

        # 12-18 breaths a minute; breathing in takes about 40% of the time.
        self._breath_phase += dt * (0.25 + 0.05 * self._breath_rate(t))
        phase = self._breath_phase % 1.0
        x = phase / 0.4 if phase < 0.4 else 1.0 - (phase - 0.4) / 0.6
        pose.breath = x * x * (3 - 2 * x)

    def _eyes(self, pose: Pose, t: float, dt: float, mood: Mood) -> None:
        spring = self._springs
        # Who thinks while speaking ("Hmm …") looks away all the same.
        thinks = self._feeling.name == "thinking"
        gaze_x, gaze_y = self._gaze.step(t, Attitude.THINKING if thinks else self._attitude)
        gaze_y += mood.gaze_y
        if self._gaze.jumped and self._random.random() < 0.45:
            self._blinks.soon(t)
        # The eyes hold their target while the head moves under them (vestibulo-ocular reflex).
        gaze_x -= spring["yaw"].value * 0.022
        gaze_y -= spring["pitch"].value * 0.02
        pose.gaze_x = min(max(spring["gaze_x"].step(gaze_x, dt), -1.0), 1.0)
        pose.gaze_y = min(max(spring["gaze_y"].step(gaze_y, dt), -1.0), 1.0)
        blink = self._blinks.value(t, self._attitude)
        lids = max(spring["lids"].step(mood.lids, dt), 0.0)
        pose.blink_left = max(blink, lids)
        right = self._blinks.value(t - 0.006, self._attitude) if blink else 0.0
        pose.blink_right = max(right, lids)
