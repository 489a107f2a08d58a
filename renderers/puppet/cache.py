"""A bounded cache of drawn patches that takes a near match for a match."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from renderers.warp import Patch

Key = tuple[int, ...]


class KeyBook:
    """Keys of whole numbers, looked up by nearness.

    A key is answered by the nearest one held, if no element differs by more than its `tolerance`.
    Where an element is 0 in one of two keys and `zero_is_apart` names it, the two do not match:
    closed lips are not nearly closed ones.
    """

    def __init__(self, tolerance: Sequence[float], zero_is_apart: Sequence[int] = ()) -> None:
        """`tolerance` is above 0 and has one element for each of a key's."""
        self._scale = 1.0 / np.asarray(tolerance, np.float32)[:, None]
        self._apart = list(zero_is_apart)
        self._held = np.empty((len(tolerance), 64), np.float32)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def keys(self) -> list[Key]:
        """The keys in the order they were added."""
        return [tuple(key) for key in self._held[:, : self._count].T.astype(int).tolist()]

    def add(self, key: Key) -> int:
        """Hold one more key; its place."""
        if self._count == self._held.shape[1]:
            self._held = np.concatenate([self._held, np.empty_like(self._held)], axis=1)
        self._count += 1
        self.put(self._count - 1, key)
        return self._count - 1

    def put(self, at: int, key: Key) -> None:
        """Replace the key at a place."""
        self._held[:, at] = key

    def nearest(self, key: Key) -> int | None:
        """The place of the nearest key that matches."""
        if not self._count:
            return None
        keys = self._held[:, : self._count]
        off = keys - np.array(key, np.float32)[:, None]
        np.abs(off, out=off)
        off *= self._scale
        off = off.max(axis=0)
        for element in self._apart:
            off[(keys[element] == 0) != (key[element] == 0)] = np.inf
        at = int(off.argmin())
        return at if off[at] <= 1.0 else None

    def clear(self) -> None:
        """Drop everything."""
        self._count = 0


class PatchCache:
    """Keeps patches drawn ahead and the `limit` most recently used others, by their keys.

    Speech goes back to the same mouths again and again, but hardly ever to precisely the same: a
    patch is taken for those near it, see `KeyBook`.
    """

    def __init__(
        self,
        limit: int,
        tolerance: Sequence[float],
        zero_is_apart: Sequence[int] = (),
        ahead: Sequence[tuple[Key, Patch]] = (),
    ) -> None:
        """`ahead` is held always, beside the `limit`."""
        self._book = KeyBook(tolerance, zero_is_apart)
        self._held = list(ahead)
        for key, _ in ahead:
            self._book.add(key)
        self._kept = len(self._held)
        self._limit = self._kept + limit
        self._used = np.zeros(limit, np.int64)
        self._time = 0

    def __len__(self) -> int:
        return len(self._held)

    def get(self, key: Key, draw: Callable[[Key], Patch]) -> tuple[Key, Patch]:
        """The nearest key held and its patch; `key` itself, drawn, if none is near enough."""
        at = self._book.nearest(key)
        if at is None:
            held = (key, draw(key))
            if len(self._held) < self._limit:
                at = self._book.add(key)
                self._held.append(held)
            else:
                at = self._kept + int(self._used.argmin())
                self._book.put(at, key)
                self._held[at] = held
        if at >= self._kept:
            self._time += 1
            self._used[at - self._kept] = self._time
        return self._held[at]

    def clear(self) -> None:
        """Drop everything."""
        self._book.clear()
        self._held.clear()
        self._kept = 0
