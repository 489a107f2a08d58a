"""The beginning of speech, before it is long enough to count."""

from __future__ import annotations

from dataclasses import dataclass

_GAP_SAMPLES = 1_024
# Two frames: a plosive's closure is shorter, a click's silence is longer.


@dataclass(slots=True)
class Onset:
    """A run of voiced frames; a gap of two frames ends it. Positions are samples at 16 kHz."""

    start: int = 0
    at: float = 0.0
    voiced_end: int = 0
    voiced_at: float = 0.0
    voiced_samples: int = 0

    @property
    def voiced_ms(self) -> float:
        """Voiced sound so far."""
        return self.voiced_samples / 16

    def add(self, end: int, at: float, samples: int, voiced: bool) -> None:
        """A frame of `samples` that ends at sample `end`, at the moment `at` (seconds)."""
        if self.voiced_samples and end - self.voiced_end >= _GAP_SAMPLES + (
            samples if voiced else 0
        ):
            self.voiced_samples = 0
        if not voiced:
            return
        if not self.voiced_samples:
            self.start = end - samples
            self.at = at - samples / 16_000
        self.voiced_samples += samples
        self.voiced_end, self.voiced_at = end, at
