"""A reply begun before it is decided that it is wanted."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator

MOST_PIECES = 64
"""Words that may wait for the decision; then the model waits, too."""


class EarlyReply:
    """Generates at once; the words wait until they are asked for, or are dropped."""

    def __init__(self, pieces: AsyncGenerator[str, None]) -> None:
        self._waiting: asyncio.Queue[str | Exception | None] = asyncio.Queue(MOST_PIECES)
        self._task = asyncio.create_task(self._read(pieces), name="early-reply")

    async def words(self) -> AsyncGenerator[str, None]:
        """The pieces in order; raises what generating raised. Closing it ends generating."""
        try:
            while (piece := await self._waiting.get()) is not None:
                if isinstance(piece, Exception):
                    raise piece
                yield piece
        finally:
            await self.drop()

    async def drop(self) -> None:
        """It is not wanted, or not any more."""
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _read(self, pieces: AsyncGenerator[str, None]) -> None:
        try:
            async with contextlib.aclosing(pieces):
                async for piece in pieces:
                    await self._waiting.put(piece)
        except Exception as error:
            await self._waiting.put(error)
        else:
            await self._waiting.put(None)
