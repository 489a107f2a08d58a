"""Which session has which slot of an engine's prompt cache."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator


class SlotTable:
    """`size` slots, numbered from 0. A session keeps its slot; the longest unused one is taken
    over when there are more sessions than slots. A slot serves one request at a time, in order.
    """

    def __init__(self, size: int) -> None:
        if size < 1:
            raise ValueError(f"an engine needs at least one slot, not {size}")
        self._size = size
        self._locks = [asyncio.Lock() for _ in range(size)]
        self._owners: dict[str, int] = {}
        self._free = list(range(size))

    @property
    def size(self) -> int:
        return self._size

    def slot_of(self, session: str) -> int | None:
        """The session's slot, where it has one."""
        return self._owners.get(session)

    @contextlib.asynccontextmanager
    async def hold(self, session: str) -> AsyncIterator[int]:
        """The session's slot, for one request."""
        slot = self._assign(session)
        async with self._locks[slot]:
            yield slot

    def forget(self, session: str) -> None:
        """Give the session's slot to whoever comes next."""
        if (slot := self._owners.pop(session, None)) is not None:
            self._free.append(slot)

    def _assign(self, session: str) -> int:
        slot = self._owners.pop(session, None)
        if slot is None:
            # Owners are in order of last use; an idle one is robbed before a busy one.
            if not self._free:
                idle = [s for s, n in self._owners.items() if not self._locks[n].locked()]
                self.forget(idle[0] if idle else next(iter(self._owners)))
            slot = self._free.pop(0)
        self._owners[session] = slot
        return slot
