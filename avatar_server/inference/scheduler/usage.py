"""Who used which engine of late."""

from __future__ import annotations

import math

from avatar_server.clock import Clock

MEMORY_S = 10.0
"""Half of what was used is forgiven after this long."""
MANY_SESSIONS = 256
"""From here on sessions whose use has faded are dropped, in case nobody said that they ended."""
FADED_S = 1e-3


class Usage:
    """Seconds of each engine, in all and by session, fading with time."""

    def __init__(self, clock: Clock, memory_s: float = MEMORY_S) -> None:
        self._clock = clock
        self._memory_s = memory_s
        self._since = clock.now()
        self._totals: dict[str, tuple[float, float]] = {}
        self._sessions: dict[str, dict[str, tuple[float, float]]] = {}

    def ran(self, engine: str, seconds: float) -> None:
        """The engine was busy for `seconds`."""
        self._totals[engine] = (self._faded(self._totals.get(engine)) + seconds, self._clock.now())

    def used(self, engine: str, session: str, seconds: float) -> None:
        """Of which these were for the session."""
        if session not in self._sessions and len(self._sessions) >= MANY_SESSIONS:
            self._drop_faded()
        engines = self._sessions.setdefault(session, {})
        engines[engine] = (self._faded(engines.get(engine)) + seconds, self._clock.now())

    def used_s(self, engine: str, session: str) -> float:
        """Seconds of the engine that the session used, fading with time."""
        return self._faded(self._sessions.get(session, {}).get(engine))

    def busy(self, engine: str) -> float:
        """Share of the remembered time in which the engine was busy, 0..1."""
        elapsed = self._clock.now() - self._since
        # The integral of the fading weight over the time that there was.
        whole = self._memory_s / math.log(2) * (1 - math.pow(0.5, elapsed / self._memory_s))
        return min(1.0, self._faded(self._totals.get(engine)) / whole) if whole > 0 else 0.0

    def forget(self, session: str) -> None:
        self._sessions.pop(session, None)

    def _drop_faded(self) -> None:
        for session, engines in list(self._sessions.items()):
            if all(self._faded(known) < FADED_S for known in engines.values()):
                del self._sessions[session]

    def _faded(self, known: tuple[float, float] | None) -> float:
        if known is None:
            return 0.0
        amount, at = known
        return amount * math.pow(0.5, (self._clock.now() - at) / self._memory_s)
