"""A whole load test: a server, one run or several, figures and verdict."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from rich.console import Console

from avatar_server.config import Settings
from avatar_server.loadtest.cli import MOST_SESSIONS
from avatar_server.loadtest.document import document
from avatar_server.loadtest.find_max import find_max
from avatar_server.loadtest.live import LiveProgress
from avatar_server.loadtest.plan import LoadPlan
from avatar_server.loadtest.run import LoadRun
from avatar_server.loadtest.server import ServerProcess
from avatar_server.loadtest.target import Target
from avatar_server.loadtest.verdict import verdict

_READY_TIMEOUT_S = 180.0
"""Loading models and measuring the machine takes some ten seconds, much more on a busy one."""


class LoadTest:
    """Plans, runs, and turns runs into figures."""

    def __init__(
        self, target: Target, settings: Settings, plan: LoadPlan, progress: LiveProgress
    ) -> None:
        self._target, self._settings, self._plan = target, settings, plan
        self._progress = progress

    async def run(self, sessions: int | None = None) -> dict[str, Any]:
        """The figures of one run, of `sessions` where that is not the plan's number."""
        plan, settings = self._plan, self._settings
        if sessions is not None:
            plan = replace(plan, sessions=sessions, talkers=sessions)
        self._progress.begin()
        record = await LoadRun(self._target, plan, settings.loadtest, self._progress).run()
        figures = document(record, settings.loadtest)
        detail = figures.pop("detail")
        figures["verdict"] = verdict(figures, settings.loadtest, settings.turns.budget_ms)
        figures["detail"] = detail
        return figures


def run_load(
    *,
    settings: Settings,
    arguments: Sequence[str],
    url: str | None,
    plan: LoadPlan,
    find_most: bool,
    console: Console,
) -> dict[str, Any]:
    """Run the load test and return its figures. Without `url` a server is started.

    `arguments` are those of `serve`. Raises `LoadError`, `CrewError` and `ServerFailed`.
    """
    with ExitStack() as stack:
        gateway_pid = None
        if url is None:
            console.print("starting a server")
            given = list(arguments)
            configured = settings.sessions.max_sessions
            if not find_most and (configured == "auto" or configured < plan.sessions):
                given += ["--set", f"sessions.max_sessions={plan.sessions}"]
            server = stack.enter_context(ServerProcess(given, ready_timeout_s=_READY_TIMEOUT_S))
            url = server.url
            assert server.process is not None
            gateway_pid = server.process.pid
        progress = stack.enter_context(LiveProgress(console, plan.duration_s))
        return asyncio.run(_run(url, gateway_pid, settings, plan, progress, find_most))


async def _run(
    url: str,
    gateway_pid: int | None,
    settings: Settings,
    plan: LoadPlan,
    progress: LiveProgress,
    find_most: bool,
) -> dict[str, Any]:
    async with Target(url, gateway_pid) as target:
        test = LoadTest(target, settings, plan, progress)
        if not find_most:
            return await test.run()
        return await find_max(test.run, plan.sessions, MOST_SESSIONS)
