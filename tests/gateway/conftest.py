"""Fixtures: gateways with real processes and sockets, but fake avatars and models."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from tests.gateway.serving import StartServer, serving
from tests.gateway.support import Gateway, GatewayFactory, SharedRunner, running_gateway


@pytest.fixture(scope="session", autouse=True)
def _figures_apart(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What fake avatars cost must not be recalled by a real server of the same user."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("avatar_server.capacity.figures.cache_dir", lambda: folder)
        yield


@pytest.fixture
def gateway(tmp_path: Path) -> GatewayFactory:
    """A gateway of the test's own: `async with gateway({"sessions": {…}}) as g:`."""
    return functools.partial(running_gateway, tmp_path)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedRunner]:
    """Runs scenarios one after the other on one gateway of default settings."""
    with asyncio.Runner() as runner:
        manager = running_gateway(tmp_path_factory.mktemp("shared"))
        gateway = runner.run(manager.__aenter__())

        async def one(scenario: Callable[[Gateway], Awaitable[None]]) -> None:
            try:
                await scenario(gateway)
            finally:
                for session in gateway.control.registry.sessions():
                    gateway.control.end(session.id)

        yield lambda scenario: runner.run(one(scenario))
        runner.run(manager.__aexit__(None, None, None))


@pytest.fixture
def start(tmp_path: Path) -> Iterator[StartServer]:
    """Starts real servers with fake children: `start("--sessions", "3")`."""
    yield from serving(tmp_path)
