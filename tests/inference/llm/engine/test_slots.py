"""Which session has which slot of the prompt cache."""

from __future__ import annotations

import asyncio

import pytest

from avatar_server.inference.llm.engine.slots import SlotTable


async def use(table: SlotTable, session: str) -> int:
    async with table.hold(session) as slot:
        return slot


def test_a_session_keeps_its_slot() -> None:
    async def run() -> None:
        table = SlotTable(3)
        first = await use(table, "a")
        assert await use(table, "b") != first
        assert await use(table, "a") == first

    asyncio.run(run())


def test_with_more_sessions_than_slots_the_longest_unused_one_is_taken_over() -> None:
    async def run() -> None:
        table = SlotTable(2)
        a, b = await use(table, "a"), await use(table, "b")
        await use(table, "a")
        assert await use(table, "c") == b
        assert table.slot_of("b") is None
        assert table.slot_of("a") == a

    asyncio.run(run())


def test_a_busy_slot_is_not_taken_over_while_another_is_idle() -> None:
    async def run() -> None:
        table = SlotTable(2)
        async with table.hold("a") as a:
            idle = await use(table, "b")
            assert await use(table, "c") == idle != a

    asyncio.run(run())


def test_requests_of_one_session_wait_for_each_other() -> None:
    async def run() -> None:
        table = SlotTable(2)
        order = []

        async def request(name: str) -> None:
            async with table.hold("a"):
                order.append(name + " begins")
                await asyncio.sleep(0)
                order.append(name + " ends")

        await asyncio.gather(request("one"), request("two"))
        assert order == ["one begins", "one ends", "two begins", "two ends"]

    asyncio.run(run())


def test_a_forgotten_session_frees_its_slot() -> None:
    async def run() -> None:
        table = SlotTable(1)
        await use(table, "a")
        table.forget("a")
        table.forget("a")
        assert await use(table, "b") == 0
        assert table.slot_of("a") is None

    asyncio.run(run())


def test_no_slots_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="at least one slot"):
        SlotTable(0)
