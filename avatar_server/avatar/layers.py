"""Which of the session's encodes a viewer's link carries. Pure logic under the caller's clock.

Evidence is what every receiver reports: the share of packets lost (receiver reports) and its own
estimate of the bandwidth (REMB). The estimate says little while we send little: it grows only to
one and a half times what arrives, and slowly, so that it may lie below what a talking face needs on
the best of links. That it *falls* does say something: the receiver has seen its queue grow.
"""

from __future__ import annotations

import logging
from collections import deque

from avatar_server.avatar.packets import Layer

logger = logging.getLogger(__name__)

_BUCKET_S = 0.45
"""Browsers report once a second, and with every packet they ask for: those are taken together."""
_WINDOW_S = 4.5
"""The loss is that of so long a time."""
_WINDOW_PACKETS = 200
"""What is sent in that time; of fewer packets, by chance, a great share may be lost."""
_CLIP, _CLIP_PACKETS = 0.3, 40
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
        self._losses: deque[tuple[float, int, float]] = deque()
        self._bucket_at = float("-inf")
        self._sent, self._lost = 0, 0.0
        self._estimate: float | None = None
        self._falls: deque[float] = deque(maxlen=_FALLS)
        self._moved_at = float("-inf")
        self._bad_at = float("-inf")
        self._hold_s = _FIRST_HOLD_S

    def __str__(self) -> str:
        """What the last choice rests on, for the log."""
        estimate = "none" if self._estimate is None else f"{self._estimate / 1e3:.0f} kbit/s"
        return f"{100 * self._loss():.0f}% lost, estimate {estimate}, {len(self._falls)} falls"

    def on_loss(self, now: float, fraction: float, packets: int) -> Layer:
        """A receiver report: `fraction` (0..1) of the `packets` since the last one was lost."""
        self._sent += packets
        self._lost += packets * fraction
        if now - self._bucket_at >= _BUCKET_S:
            share = self._lost / max(1, self._sent)
            self._losses.append((now, min(_CLIP_PACKETS, self._sent), min(_CLIP, share)))
            self._bucket_at, self._sent, self._lost = now, 0, 0.0
        while self._losses and now - self._losses[0][0] >= _WINDOW_S:
            self._losses.popleft()
        return self._choose(now)

    def on_estimate(self, now: float, bps: float) -> Layer:
        """The receiver's estimate of the bandwidth to it."""
        if self._estimate is not None and bps < _FALL * self._estimate:
            self._falls.append(now)
        self._estimate = bps
        return self._choose(now)

    def _loss(self, of_packets: int = 1) -> float:
        """The share that was lost lately, of at least so many packets."""
        sent = sum(packets for _, packets, _ in self._losses)
        lost = sum(packets * fraction for _, packets, fraction in self._losses)
        return lost / max(of_packets, sent)

    def _choose(self, now: float) -> Layer:
        known_good = self._estimate is not None and self._estimate >= self._enough_bps
        congested = (
            not known_good
            and len(self._falls) == _FALLS
            and now - self._falls[0] <= _FALLS_WITHIN_S
        )
        bad = congested or self._loss(_WINDOW_PACKETS) >= _LOSS_DOWN
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
            if since >= hold and quiet and self._loss() <= _LOSS_UP:
                self._move(now, "full")
        return self.layer

    def _move(self, now: float, layer: Layer) -> None:
        self.layer = layer
        self._moved_at = now
        logger.info("%s picture: %s", layer, self)
        # What was seen of the other picture says nothing of this one.
        self._losses.clear()
        self._falls.clear()
