"""A server whose avatar is changed, and that is drained, while viewers talk: no turn is lost."""

from __future__ import annotations

import asyncio
import shutil
import time
from pathlib import Path

import httpx
import pytest

from avatar_server.loadtest.server import ServerProcess
from avatar_server.loadtest.viewer import SyntheticViewer, ViewerError
from avatar_server.models import ModelStore
from avatar_server.paths import assets_dir
from avatar_server.protocol import events

DEADLINE_S = 1.0
GRACE_S = 60.0
"""For turns on a machine that has other work; a turn takes some seconds."""
NEW_WORDS = "We are open from ten to six."
QUESTIONS = ("What is your name?", "Tell me something about yourself.")


def state(viewer: SyntheticViewer) -> str:
    states = [event.state for _, event in viewer.events if isinstance(event, events.State)]
    return states[-1] if states else ""


async def until_idle(viewer: SyntheticViewer) -> None:
    deadline = time.monotonic() + 60
    while state(viewer) != "idle":
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)


def test_a_changed_avatar_and_a_drain_lose_no_turn(model_store: ModelStore, tmp_path: Path) -> None:
    shutil.copytree(assets_dir() / "avatars" / "vox", tmp_path / "avatars" / "desk")
    arguments = ["--sessions", "2", "--set", f"sessions.turn_grace_s={GRACE_S}"]
    arguments += ["--set", f"avatar_dirs=[{tmp_path / 'avatars'}]"]
    with ServerProcess(arguments, log=tmp_path / "log") as server:
        asyncio.run(asyncio.wait_for(operated(server, tmp_path / "avatars" / "desk"), 240))
        assert server.process is not None
        assert server.process.wait(30) == 0
        assert "Traceback" not in server.output()


async def operated(server: ServerProcess, avatar: Path) -> None:
    viewers = [SyntheticViewer(server.url, avatar="desk", video="none") for _ in QUESTIONS]
    for viewer in viewers:
        await viewer.join()
    for viewer in viewers:
        await viewer.wait_for(events.TurnDone, timeout_s=60)
        await until_idle(viewer)
    await changed_under_viewers(server, avatar, viewers[0])
    await drained_in_mid_turn(server, viewers)
    await asyncio.gather(*(viewer.leave() for viewer in viewers))


async def changed_under_viewers(
    server: ServerProcess, avatar: Path, viewer: SyntheticViewer
) -> None:
    with (avatar / "avatar.yaml").open("a", encoding="utf-8") as file:
        file.write(
            "\nroutes:\n- name: hours\n  examples: [when are you open, what are your opening hours,"
            f" until when is the shop open]\n  say: {NEW_WORDS}\n"
        )
    async with httpx.AsyncClient(base_url=server.url, timeout=20) as http:
        session = f"/v1/sessions/{viewer.session}"
        before = (await http.get(session)).json()
        told = await http.post("/v1/reload")
        assert told.status_code == 200, told.text
        assert told.json()["sessions_told"] == len(QUESTIONS)
        deadline = time.monotonic() + 60
        while True:
            # The routes are learnt in the background, which takes a second.
            asked = time.monotonic()
            viewer.send(events.Text(text="What are your opening hours?"))
            done = await viewer.wait_for(events.TurnDone, since=asked, timeout_s=60)
            clauses = [e.text for _, e in viewer.events if _is_caption_of(e, done.turn)]
            said = " ".join(dict.fromkeys(clauses))
            if said == NEW_WORDS:
                break
            assert time.monotonic() < deadline, said
            await until_idle(viewer)
        after = (await http.get(session)).json()
        assert (after["pid"], after["restarts"]) == (before["pid"], 0)
    await until_idle(viewer)


def _is_caption_of(event: events.Event, turn: int) -> bool:
    return isinstance(event, events.Caption) and event.turn == turn


async def drained_in_mid_turn(server: ServerProcess, viewers: list[SyntheticViewer]) -> None:
    async with httpx.AsyncClient(base_url=server.url, timeout=20) as http:
        asked = time.monotonic()
        for viewer, question in zip(viewers, QUESTIONS, strict=True):
            viewer.send(events.Text(text=question))
        drain = await http.post("/v1/drain", json={"deadline_s": DEADLINE_S})
        assert drain.status_code == 202
        with pytest.raises(ViewerError, match="being replaced") as refused:
            async with SyntheticViewer(server.url, avatar="desk"):
                pass
        assert refused.value.status == 503
        done = await asyncio.gather(
            *(v.wait_for(events.TurnDone, since=asked, timeout_s=GRACE_S) for v in viewers)
        )
        told = await asyncio.gather(
            *(v.wait_for(events.Notice, since=asked, timeout_s=GRACE_S) for v in viewers)
        )
    for viewer, turn, notice in zip(viewers, done, told, strict=True):
        since = [event for when, event in viewer.events if when > asked]
        said = [e for e in since if _is_caption_of(e, turn.turn)]
        last = said[-1]
        assert last.spoken.rstrip(" .!?") == last.text.rstrip(" .!?"), "it was said to its end"
        assert not [event for event in since if isinstance(event, events.Interrupted)]
        assert viewer.received.first_audible_after(asked) is not None
        assert notice.code in ("ending", "stopped")
