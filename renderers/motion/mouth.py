"""The mouth over time: tracks of spoken clauses on the session's media clock."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from renderers.contract import VisemeSpan
from renderers.motion.coarticulation import PADDING_S, RATE_HZ, mouth_track

LEAD_S = 0.050
"""The mouth runs this far ahead of the sound: people take lips up to 80 ms early as in time, and
lips that lag at all as wrong."""

ENERGY_RATE_HZ = 100
CUT_S = 0.090
"""An interrupted mouth closes in this time."""


class _Clause:
    __slots__ = ("cut_at", "energy", "pauses", "start", "track")

    def __init__(self, start: float, track: NDArray[np.float32], energy: NDArray[np.float32]):
        self.start = start
        self.track = track
        self.energy = energy
        self.pauses: list[tuple[float, float]] = []  # (from this media time, for this long)
        self.cut_at: float | None = None

    def local(self, t: float) -> float:
        """Seconds from the clause's first sample that sound at media time `t`."""
        local = t - self.start
        for at, length in self.pauses:
            local -= min(max(t - at, 0.0), length)
        return local

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
                clause.energy = np.concatenate((clause.energy, energy))
                return

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

    def weights(self, t: float, out: NDArray[np.float32]) -> bool:
        """Fill `out` (15,) for media time `t`; False where nothing is being said."""
        out.fill(0.0)
        self._clauses = [c for c in self._clauses if c.end > t]
        ahead = t + LEAD_S
        active = False
        for clause in self._clauses:
            position = (clause.local(ahead) + PADDING_S) * RATE_HZ
            index = int(position)
            if position < 0 or index + 1 >= clause.track.shape[0]:
                continue
            fraction = np.float32(position - index)
            row = clause.track[index] + fraction * (clause.track[index + 1] - clause.track[index])
            out += row * np.float32(clause.gain(t))
            active = True
        total = float(out.sum())
        if total > 1.0:
            out /= total
        return active

    def loudness(self, t: float) -> float | None:
        """RMS (0..1 of full scale) of the sound at media time `t`; None where it is not known."""
        for clause in self._clauses:
            index = int(clause.local(t) * ENERGY_RATE_HZ)
            if 0 <= index < clause.energy.shape[0]:
                return float(clause.energy[index]) * clause.gain(t)
        return None
