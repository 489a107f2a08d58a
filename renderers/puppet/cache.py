"""A bounded cache of drawn patches that takes a near match for a match."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from renderers.warp import Patch

Key = tuple[int, ...]


class PatchCache:
    """Keeps the `limit` most recently used patches by keys of whole numbers.

    A key is answered by the nearest one held, if no element differs by more than its `tolerance`:
    speech goes back to the same mouths again and again, but hardly ever to precisely the same.
    Where an element is 0 in one of two keys and `zero_is_apart` names it, the two do not match:
    closed lips are not nearly closed ones.
    """

    def __init__(
        self, limit: int, tolerance: Sequence[float], zero_is_apart: Sequence[int] = ()
    ) -> None:
        """`tolerance` is above 0 and has one element for each of a key's."""
        self._limit = limit
        self._scale = 1.0 / np.asarray(tolerance, np.float32)
        self._apart = list(zero_is_apart)
        self._keys = np.empty((limit, len(tolerance)), np.float32)
        self._used = np.zeros(limit, np.int64)
        self._held: list[tuple[Key, Patch]] = []
        self._time = 0

    def __len__(self) -> int:
        return len(self._held)

    def get(self, key: Key, draw: Callable[[Key], Patch]) -> tuple[Key, Patch]:
        """The nearest key held and its patch; `key` itself, drawn, if none is near enough."""
        self._time += 1
        at = self._nearest(key)
        if at is None:
            held = (key, draw(key))
            if len(self._held) < self._limit:
                at = len(self._held)
                self._held.append(held)
            else:
                at = int(self._used.argmin())
                self._held[at] = held
            self._keys[at] = key
        self._used[at] = self._time
        return self._held[at]

    def clear(self) -> None:
        """Drop everything."""
        self._held.clear()

    def _nearest(self, key: Key) -> int | None:
        if not self._held:
            return None
        keys = self._keys[: len(self._held)]
        off = (np.abs(keys - np.asarray(key, np.float32)) * self._scale).max(axis=1)
        for element in self._apart:
            off[(keys[:, element] == 0) != (key[element] == 0)] = np.inf
        at = int(off.argmin())
        return at if off[at] <= 1.0 else None
