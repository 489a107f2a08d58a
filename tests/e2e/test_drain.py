"""A server that is drained while its viewers are in mid-turn: every turn is answered."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import httpx
import pytest

from avatar_server.loadtest.server import ServerProcess
from avatar_server.loadtest.viewer import SyntheticViewer, ViewerError
from avatar_server.models import ModelStore
from avatar_server.protocol import events

DEADLINE_S = 1.0
GRACE_S = 60.0
"""For turns on a machine that has other work; a turn takes some seconds."""
QUESTIONS = ("What is your name?", "Tell me something about yourself.")


def state(viewer: SyntheticViewer) -> str:
    states = [event.state for _, event in viewer.events if isinstance(event, events.State)]
    return states[-1] if states else ""


async def until_idle(viewer: SyntheticViewer) -> None:
    deadline = time.monotonic() + 60
    while state(viewer) != "idle":
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)


def test_a_drain_under_load_loses_no_turn(model_store: ModelStore, tmp_path: Path) -> None:
    arguments = ["--sessions", "2", "--set", f"sessions.turn_grace_s={GRACE_S}"]
    with ServerProcess(arguments, log=tmp_path / "log") as server:
        asyncio.run(asyncio.wait_for(drained_in_mid_turn(server), 200))
        assert server.process is not None
        assert server.process.wait(10) == 0
        assert "Traceback" not in server.output()


async def drained_in_mid_turn(server: ServerProcess) -> None:
    viewers = [SyntheticViewer(server.url, video="none") for _ in QUESTIONS]
    for viewer in viewers:
        await viewer.join()
    for viewer in viewers:
        await viewer.wait_for(events.TurnDone, timeout_s=60)
        await until_idle(viewer)
    async with httpx.AsyncClient(base_url=server.url, timeout=20) as http:
        asked = time.monotonic()
        for viewer, question in zip(viewers, QUESTIONS, strict=True):
            viewer.send(events.Text(text=question))
        drain = await http.post("/v1/drain", json={"deadline_s": DEADLINE_S})
        assert drain.status_code == 202
        refused = await http.post("/v1/sessions", json={"avatar": "theo"})
        assert refused.status_code == 503
        assert "being replaced" in refused.json()["detail"]
        with pytest.raises(ViewerError, match="being replaced"):
            await SyntheticViewer(server.url).join()
        done = await asyncio.gather(
            *(v.wait_for(events.TurnDone, since=asked, timeout_s=GRACE_S) for v in viewers)
        )
        told = await asyncio.gather(
            *(v.wait_for(events.Notice, since=asked, timeout_s=GRACE_S) for v in viewers)
        )
    for viewer, turn, notice in zip(viewers, done, told, strict=True):
        since = [event for when, event in viewer.events if when > asked]
        said = [e for e in since if isinstance(e, events.Caption) and e.turn == turn.turn]
        assert said[-1].spoken == said[-1].text, "its last clause was said to its end"
        assert not [event for event in since if isinstance(event, events.Interrupted)]
        assert viewer.received.first_audible_after(asked) is not None
        assert notice.code in ("ending", "stopped")
    await asyncio.gather(*(viewer.leave() for viewer in viewers))
