"""Watches an encode's rate, to say when its cap has to be worked for. Pure arithmetic."""

from __future__ import annotations

_CALM_S = 10.0
"""The cap is let go of only when the rate was low for so long."""
_CALM_SHARE = 0.5
"""What counts as low, of the cap."""


class RateGuard:
    """A leaky bucket that drains at the cap and holds a second of it.

    A keyframe alone does not fill it; a second of pictures that need more than the cap does.
    """

    def __init__(self, cap_bps: int) -> None:
        self.cap_bps = cap_bps
        self.capped = False
        self._level = 0.0
        self._slow_level = 0.0
        self._at = 0.0
        self._high_at = 0.0

    def add(self, bits: int, now: float) -> None:
        """A picture of `bits` was made at media time `now` (s)."""
        since = max(0.0, now - self._at)
        self._at = now
        self._level = max(0.0, self._level - self.cap_bps * since) + bits
        self._slow_level = max(0.0, self._slow_level - _CALM_SHARE * self.cap_bps * since) + bits
        self._slow_level = min(self._slow_level, self.cap_bps)
        if self._slow_level > self.cap_bps / 2:
            self._high_at = now

    def must_change(self, at_keyframe: bool) -> bool:
        """Whether the encoder is to be opened anew: capped at once, uncapped only at a keyframe."""
        if not self.capped:
            return self._level > self.cap_bps
        return at_keyframe and self._at - self._high_at >= _CALM_S

    def change(self) -> None:
        """The encoder was opened anew."""
        self.capped = not self.capped
        self._level = self._slow_level = 0.0
        self._high_at = self._at
