"""A run of the load test against real avatars, without models: joining, watching, killing."""

from __future__ import annotations

import asyncio
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from rich.console import Console

from avatar_server.config import load_settings
from avatar_server.loadtest.conduct import LoadTest
from avatar_server.loadtest.live import LiveProgress
from avatar_server.loadtest.plan import KillOrder, LoadPlan
from avatar_server.loadtest.server import free_port
from avatar_server.loadtest.target import LoadError, Target
from avatar_server.paths import assets_dir

QUIET_SERVER = Path(__file__).with_name("quiet_server.py")
START_TIMEOUT_S = 60.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int]]:
    """Address and process id of a server with room for two."""
    folder = tmp_path_factory.mktemp("avatars")
    shutil.copytree(assets_dir() / "avatars" / "vox", folder / "mute")
    spec = (folder / "mute" / "avatar.yaml").read_text(encoding="utf-8")
    quiet = "\n".join(line for line in spec.splitlines() if not line.startswith("greeting"))
    (folder / "mute" / "avatar.yaml").write_text(quiet, encoding="utf-8")
    port = free_port()
    arguments = ["--port", str(port), "--sessions", "2", "--set", "capacity.admission=fixed"]
    arguments += ["--set", "capacity.overload.enabled=false"]
    process = subprocess.Popen(
        [sys.executable, QUIET_SERVER, "serve", *arguments, "--set", f"avatar_dirs=[{folder}]"],
        stdout=subprocess.DEVNULL,
    )
    url = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            assert process.poll() is None
            assert time.monotonic() < deadline
            try:
                if httpx.get(f"{url}/readyz", timeout=2).status_code == 200:
                    break
            except httpx.HTTPError:
                pass
            time.sleep(0.1)
        yield url, process.pid
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(10)


def run(server: tuple[str, int], plan: LoadPlan) -> dict[str, Any]:
    url, pid = server

    async def conduct() -> dict[str, Any]:
        with LiveProgress(Console(file=sys.stderr), plan.duration_s) as progress:
            async with Target(url, pid) as target:
                return await LoadTest(target, load_settings(), plan, progress).run()

    return asyncio.run(asyncio.wait_for(conduct(), 150))


def plan_of(sessions: int, **more: Any) -> LoadPlan:
    return LoadPlan(
        sessions=sessions,
        talkers=0,
        speech=Path("/none"),
        avatars=["mute"],
        **{"viewers": 1, "duration_s": 3.0, **more},
    )


def test_viewers_of_a_killed_avatar_come_back_and_others_go_on(server: tuple[str, int]) -> None:
    kills = [KillOrder("avatar", 1, 1.0)]
    figures = run(server, plan_of(2, viewers=2, duration_s=9.0, kills=kills))
    assert figures["joins"] == figures["joins"] | {"accepted": 2, "rejected": 0}
    seen = figures["detail"]["viewers"]
    assert {(v["session"], v["viewer"]) for v in seen} == {(0, 0), (0, 1), (1, 0), (1, 1)}
    # How many of the 30 a second come is the machine's matter here.
    assert 5 < figures["video"]["fps_p50"] < 31
    (kill,) = figures["kills"]
    assert kill["process"] == "avatar 2"
    assert 3 < kill["back_after_s"] < 30
    assert kill["others"]["sessions"] == 1
    assert kill["own_longest_still_ms"] > 3_000
    events = [(e["session"], e["what"]) for e in figures["detail"]["events"]]
    assert (1, "connection lost") in events
    assert (1, "joined again") in events
    assert not [event for event in events if event[0] == 0]
    cpu = figures["cpu_ms_per_s"]
    assert cpu["avatar"] > 0
    assert cpu["load"] > 0
    assert figures["turns"]["count"] == 0


def test_sessions_beyond_the_servers_limit_are_rejected_and_the_rest_is_measured(
    server: tuple[str, int],
) -> None:
    figures = run(server, plan_of(3, kills=[KillOrder("avatar", 2, 1.0)]))
    assert figures["joins"]["accepted"] == 2
    assert figures["joins"]["rejected"] == 1
    assert figures["verdict"]["binding"] in ("admission", "load", "foreign")
    reasons = figures["verdict"]["reasons"]
    assert "avatar 3 was not killed: its session was refused" in reasons
    assert len(figures["detail"]["viewers"]) == 2
    # Its places are free again at once.
    assert httpx.get(f"{server[0]}/v1/sessions", timeout=10).json() == []


def test_an_avatar_that_the_server_does_not_have_is_told(server: tuple[str, int]) -> None:
    plan = plan_of(1)
    plan.avatars[:] = ["nobody"]
    with pytest.raises(LoadError, match="no avatar 'nobody'; it has: mute, theo, vox, yuna, zora"):
        run(server, plan)


def test_a_server_that_is_no_avatar_server_is_told() -> None:
    async def ask(url: str) -> None:
        async with Target(url) as target:
            await target.avatars([])

    with pytest.raises(LoadError, match="cannot be reached"):
        asyncio.run(ask("http://127.0.0.1:1"))
    for wrong in ("127.0.0.1:80", "ftp://host", "http://"):
        with pytest.raises(LoadError, match="no address of a server"):
            Target(wrong)
