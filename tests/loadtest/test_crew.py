"""Viewers' processes that cannot go on are told in words."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from avatar_server.loadtest.crew import Crew, CrewError
from avatar_server.loadtest.results import ANY_REPORT, Order, Refused


def run(order: Order, until: type[object]) -> list[ANY_REPORT]:
    """The reports of one process, until one of a kind has come."""
    reports: list[ANY_REPORT] = []

    async def start() -> None:
        came = asyncio.Event()

        def on_report(report: ANY_REPORT) -> None:
            reports.append(report)
            if isinstance(report, until):
                came.set()

        async def wait() -> None:
            await came.wait()

        async with Crew(on_report) as crew:
            await crew.start(order)
            await asyncio.wait_for(crew.wait(wait()), 60)

    asyncio.run(start())
    return reports


def test_a_server_that_is_not_there_is_a_refusal_with_a_reason() -> None:
    refused, *_ = run(
        Order(url="http://127.0.0.1:1", session=3, avatar="theo", talks=False), Refused
    )
    assert isinstance(refused, Refused)
    assert (refused.session, refused.viewer, refused.status) == (3, 0, None)
    assert refused.message


def test_speech_that_cannot_be_read_ends_the_test(tmp_path: Path) -> None:
    with pytest.raises(CrewError, match=r"no \.wav"):
        run(
            Order(url="http://127.0.0.1:1", session=0, avatar="theo", speech=str(tmp_path)), Refused
        )
