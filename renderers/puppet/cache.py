"""A bounded cache of drawn patches."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable

from renderers.warp import Patch


class PatchCache:
    """Keeps the `limit` most recently used patches."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._patches: OrderedDict[Hashable, Patch] = OrderedDict()

    def __len__(self) -> int:
        return len(self._patches)

    def get(self, key: Hashable, draw: Callable[[], Patch]) -> Patch:
        """The patch for `key`, drawn if it is not held."""
        patch = self._patches.get(key)
        if patch is not None:
            self._patches.move_to_end(key)
            return patch
        patch = draw()
        self._patches[key] = patch
        if len(self._patches) > self._limit:
            self._patches.popitem(last=False)
        return patch

    def clear(self) -> None:
        """Drop everything."""
        self._patches.clear()
