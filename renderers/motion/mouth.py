"""The mouth over time: tracks of spoken clauses on the session's media clock."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from renderers.contract import VisemeSpan
from renderers.motion.coarticulation import PADDING_S, RATE_HZ, MouthTrack, mouth_track
from renderers.motion.prosody import PITCH_RATE_HZ, Melody

LEAD_S = 0.070
"""The mouth runs this far ahead of the sound: people take lips up to 80 ms early as in time, and
lips that lag at all as wrong."""

ENERGY_RATE_HZ = 100
CUT_S = 0.090
"""An interrupted mouth closes in this time."""

_EFFORT_WINDOW = np.hanning(15)[1:-1]
"""130 ms, about a syllable: how loud it is, not the pulses of the voice."""
_EFFORT_WINDOW /= _EFFORT_WINDOW.sum()


class _Clause:
    __slots__ = ("cut_at", "effort", "energy", "melody", "pauses", "start", "track")

    def __init__(self, start: float, track: MouthTrack, energy: NDArray[np.float32]):
        self.start = start
        # The jaw is one more column, so that one step between two rows gives both.
        self.track = np.concatenate((track.weights, track.jaw[:, None]), axis=1)
        self.hear(energy)
        self.melody = Melody()
        self.pauses: list[tuple[float, float]] = []  # (from this media time, for this long)
        self.cut_at: float | None = None

    def local(self, t: float) -> float:
        """Seconds from the clause's first sample that sound at media time `t`."""
        local = t - self.start
        for at, length in self.pauses:
            local -= min(max(t - at, 0.0), length)
        return local

    def hear(self, energy: NDArray[np.float32]) -> None:
        """All that is known of the loudness."""
        self.energy = energy
        padded = np.pad(energy, 6, mode="edge") if energy.size else energy
        self.effort = np.convolve(padded, _EFFORT_WINDOW, mode="valid") if energy.size else energy

    @property
    def end(self) -> float:
        sound = float(self.track.shape[0]) / RATE_HZ - PADDING_S
        end = self.start + sound + sum(length for _, length in self.pauses)
        return end if self.cut_at is None else min(end, self.cut_at + CUT_S)

    def gain(self, t: float) -> float:
        if self.cut_at is None or t <= self.cut_at:
            return 1.0
        return max(0.0, 1.0 - (t - self.cut_at) / CUT_S)


class Mouth:
    """Viseme weights and loudness at a media time, from the clauses scheduled so far."""

    def __init__(self) -> None:
        self._clauses: list[_Clause] = []

    def add(self, start: float, spans: Sequence[VisemeSpan], energy: NDArray[np.float32]) -> None:
        """Schedule a clause whose first sample sounds at media time `start` (s)."""
        self._clauses.append(_Clause(start, mouth_track(spans), energy))

    def extend_energy(self, start: float, energy: NDArray[np.float32]) -> None:
        """More loudness values of the clause that was scheduled at `start`, or last before it."""
        for clause in reversed(self._clauses):
            if clause.start <= start + 1e-6:
                clause.hear(np.concatenate((clause.energy, energy)))
                return

    def add_pitch(self, start: float, pitch: NDArray[np.float32], middle_hz: float) -> None:
        """More of the pitch of the clause that was scheduled at `start`, or last before it."""
        for clause in reversed(self._clauses):
            if clause.start <= start + 1e-6:
                clause.melody.add(pitch, middle_hz)
                return

    def tone(self, t: float) -> float:
        """Semitones of the voice above the speaker's middle at media time `t`, 0 in silence."""
        for clause in self._clauses:
            local = clause.local(t)
            if 0 <= local < clause.effort.shape[0] / ENERGY_RATE_HZ:
                return clause.melody.at(int(local * PITCH_RATE_HZ)) * clause.gain(t)
        return 0.0

    def shift(self, after: float, by: float) -> None:
        """The sound stood still for `by` seconds from media time `after`: so does the mouth."""
        for clause in self._clauses:
            if clause.start >= after:
                clause.start += by
                clause.pauses = [(at + by, length) for at, length in clause.pauses]
            elif clause.end > after:
                last = clause.pauses[-1] if clause.pauses else None
                if last and abs(last[0] + last[1] - after) < 1e-3:
                    clause.pauses[-1] = (last[0], last[1] + by)
                else:
                    clause.pauses.append((after, by))

    def cut(self, at: float) -> None:
        """Everything after media time `at` is not going to be heard."""
        self._clauses = [c for c in self._clauses if c.start < at]
        for clause in self._clauses:
            if clause.cut_at is None:
                clause.cut_at = at

    def shape(self, t: float, weights: NDArray[np.float32]) -> tuple[bool, float]:
        """Fill `weights` (15,) for media time `t`; whether anything is being said, and the jaw."""
        weights.fill(0.0)
        self._clauses = [c for c in self._clauses if c.end > t]
        ahead = t + LEAD_S
        active, jaw = False, 0.0
        for clause in self._clauses:
            position = (clause.local(ahead) + PADDING_S) * RATE_HZ
            index = int(position)
            if position < 0 or index + 1 >= clause.track.shape[0]:
                continue
            here, there = clause.track[index], clause.track[index + 1]
            row = (here + (there - here) * np.float32(position - index)) * np.float32(
                clause.gain(t)
            )
            weights += row[:-1]
            jaw = max(jaw, float(row[-1]))
            active = True
        total = float(weights.sum())
        if total > 1.0:
            weights /= total
        return active, jaw

    def loudness(self, t: float) -> float | None:
        """RMS (0..1 of full scale) of the sound around media time `t`, over about a syllable; None
        where it is not known."""
        for clause in self._clauses:
            index = int(clause.local(t) * ENERGY_RATE_HZ)
            if 0 <= index < clause.effort.shape[0]:
                return float(clause.effort[index]) * clause.gain(t)
        return None
