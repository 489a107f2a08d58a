"""A reply begun before it is decided that it is wanted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest

from avatar_server.inference.early import MOST_PIECES, EarlyReply


class Model:
    """Gives numbered words; knows how many were taken and whether it was ended."""

    def __init__(self, count: int, fails: bool = False) -> None:
        self.count, self.fails = count, fails
        self.given, self.ended = 0, False

    async def words(self) -> AsyncGenerator[str, None]:
        try:
            for number in range(self.count):
                await asyncio.sleep(0)
                self.given += 1
                yield str(number)
            if self.fails:
                raise RuntimeError("the model is gone")
        finally:
            self.ended = True


def test_words_generated_before_they_are_wanted_are_kept() -> None:
    async def test() -> None:
        model = Model(3)
        early = EarlyReply(model.words())
        await asyncio.sleep(0.05)
        assert model.given == 3
        assert [word async for word in early.words()] == ["0", "1", "2"]

    asyncio.run(test())


def test_a_reply_that_is_not_wanted_ends_at_once() -> None:
    async def test() -> None:
        model = Model(10_000)
        early = EarlyReply(model.words())
        await asyncio.sleep(0.05)
        assert model.given <= MOST_PIECES + 1, "the model waits, too"
        await early.drop()
        assert model.ended
        await early.drop()

    asyncio.run(test())


def test_what_goes_wrong_is_told_where_the_words_are_wanted() -> None:
    async def test() -> None:
        early = EarlyReply(Model(1, fails=True).words())
        with pytest.raises(RuntimeError, match="gone"):
            assert [word async for word in early.words()]

    asyncio.run(test())
