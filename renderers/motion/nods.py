"""A listener's nods: at the ends of what the other says, never by the clock."""

from __future__ import annotations

import math
from random import Random

# People nod where the speaker pauses or comes to the end of a phrase (Dittmann & Llewellyn 1968);
# hardly within a second of the phrase's beginning, and by no means each time.
_PAUSE_S = 0.18
_PHRASE_S = 0.9
_REST_S = 1.6
_CHANCE = 0.75
_DELAY_S = (0.04, 0.22)
_DEPTH_DEG = (2.2, 4.6)
_LONG_PHRASE_S = 4.0
_STROKE_S = 0.42
_SECOND_STROKE = 0.4


class Nods:
    """When to nod, from whether the viewer's voice is heard; `angle` is how far the head is down.

    `hear` may be called at any pace, with times that do not go back.
    """

    def __init__(self, random: Random) -> None:
        self._random = random
        self._voiced = 0.0
        self._last_heard: float | None = None
        self._silent_since: float | None = None
        self._decided = True
        self._start = -10.0
        self._depth = 0.0
        self._strokes = 1

    def hear(self, voiced: bool, t: float) -> None:
        """Whether the viewer's voice is heard at media time `t`."""
        since = t - self._last_heard if self._last_heard is not None else 0.0
        self._last_heard = t
        if voiced:
            if self._silent_since is not None:
                self._silent_since = None
                if self._decided:
                    self._voiced, self._decided = 0.0, False
            self._voiced += min(since, 0.1)
            return
        if self._silent_since is None:
            self._silent_since = t
        if not self._decided and t - self._silent_since >= _PAUSE_S:
            self._decided = True
            self._maybe_nod(t)

    def _maybe_nod(self, t: float) -> None:
        r = self._random
        # Drawn whether used or not, so that what follows does not depend on how long one spoke.
        chance, delay, size, again = r.random(), r.uniform(*_DELAY_S), r.random(), r.random()
        rested = t - self._start > _REST_S
        if self._voiced < _PHRASE_S or not rested or chance > _CHANCE:
            return
        long = min(self._voiced / _LONG_PHRASE_S, 1.0)
        low, high = _DEPTH_DEG
        self._start = t + delay
        self._depth = low + (high - low) * (0.35 * size + 0.65 * long)
        # After long phrases people nod twice more often.
        self._strokes = 2 if again < 0.25 + 0.5 * long else 1

    def angle(self, t: float) -> float:
        """Degrees that the head is lowered by at media time `t`."""
        since = t - self._start
        stroke = int(since // _STROKE_S) if since >= 0 else -1
        if not 0 <= stroke < self._strokes:
            return 0.0
        x = since / _STROKE_S - stroke
        size = 1.0 if stroke == 0 else _SECOND_STROKE
        return self._depth * size * math.sin(math.pi * x) ** 2
