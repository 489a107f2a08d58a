"""Which of the session's encodes a viewer's link carries. Pure logic under the caller's clock.

Evidence is what every receiver reports: the share of packets lost (receiver reports) and its own
estimate of the bandwidth (REMB). The estimate says little while we send little: it grows only to
one and a half times what arrives, and slowly, so that it may lie below what a talking face needs on
the best of links. That it *falls* does say something: the receiver has seen its queue grow.
"""

from __future__ import annotations

from collections import deque

from avatar_server.avatar.packets import Layer

_REPORTS = 4
"""Receiver reports that the loss is averaged over; they come about once a second."""
_CLIP = 0.3
"""One report counts no more than this: a link that was gone for a moment is not a slow one."""
_LOSS_DOWN = 0.12
_LOSS_UP = 0.06
_FALL = 0.97
"""An estimate below this share of the one before has fallen."""
_FALLS = 2
_FALLS_WITHIN_S = 5.0
_FIRST_HOLD_S = 15.0
_LAST_HOLD_S = 120.0
"""How long a viewer stays on the smaller picture before the full one is tried again: doubled
each time the trial fails, since each trial disturbs the viewer."""
_KNOWN_HOLD_S = 2.0
"""The same where the estimate says that there is room."""
_TRIAL_S = 20.0
"""A trial that lasts so long has not failed; after twice that the hold is the first once more."""


class LayerPolicy:
    """Chooses for one viewer. Times in seconds, of any clock."""

    def __init__(self, enough_bps: float) -> None:
        """`enough_bps`: with an estimate of so much the full picture is never in doubt."""
        self.layer: Layer = "full"
        self._enough_bps = enough_bps
        self._losses: deque[float] = deque(maxlen=_REPORTS)
        self._estimate: float | None = None
        self._falls: deque[float] = deque(maxlen=_FALLS)
        self._moved_at = float("-inf")
        self._bad_at = float("-inf")
        self._hold_s = _FIRST_HOLD_S

    def on_loss(self, now: float, fraction: float) -> Layer:
        """A receiver report: `fraction` (0..1) of the packets since the last one was lost."""
        self._losses.append(min(_CLIP, fraction))
        return self._choose(now)

    def on_estimate(self, now: float, bps: float) -> Layer:
        """The receiver's estimate of the bandwidth to it."""
        if self._estimate is not None and bps < _FALL * self._estimate:
            self._falls.append(now)
        self._estimate = bps
        return self._choose(now)

    @property
    def _loss(self) -> float:
        return sum(self._losses) / _REPORTS

    def _choose(self, now: float) -> Layer:
        known_good = self._estimate is not None and self._estimate >= self._enough_bps
        congested = (
            not known_good
            and len(self._falls) == _FALLS
            and now - self._falls[0] <= _FALLS_WITHIN_S
        )
        bad = congested or self._loss >= _LOSS_DOWN
        if bad:
            self._bad_at = now
        since = now - self._moved_at
        if self.layer == "full":
            if bad:
                failed = since < _TRIAL_S
                self._hold_s = min(_LAST_HOLD_S, 2 * self._hold_s) if failed else _FIRST_HOLD_S
                self._move(now, "low")
            elif since > 2 * _TRIAL_S:
                self._hold_s = _FIRST_HOLD_S
        else:
            hold = _KNOWN_HOLD_S if known_good else self._hold_s
            quiet = now - self._bad_at >= min(hold, _FALLS_WITHIN_S)
            if since >= hold and quiet and self._loss <= _LOSS_UP:
                self._move(now, "full")
        return self.layer

    def _move(self, now: float, layer: Layer) -> None:
        self.layer = layer
        self._moved_at = now
        # What was seen of the other picture says nothing of this one.
        self._losses.clear()
        self._falls.clear()
