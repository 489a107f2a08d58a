"""Faces that a network draws, through the real processes to a viewer's decoded pictures."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from avatar_server.loadtest.server import ServerProcess
from avatar_server.loadtest.viewer import SyntheticViewer, ViewerError
from avatar_server.models import ModelStore
from avatar_server.protocol import events
from tests.renderers.neural.tiny_network import network_bytes, write_avatar

MOUTH = (0.56, 0.69, 0.46, 0.54)
"""Top, bottom, left and right, as shares of the picture."""
FACTS = (
    "What are you? What can you tell me about yourself? I am a test of faces that a network draws, "
    "and I talk for a while.\n"
)


@pytest.fixture(scope="module")
def server(
    model_store: ModelStore, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("avatars")
    write_avatar(folder / "painted")
    write_avatar(folder / "broken", network_bytes(face_channels=3))
    for name in ("painted", "broken"):
        (folder / name / "facts.md").write_text(FACTS, encoding="utf-8")
    arguments = ["--sessions", "4", "--set", f"avatar_dirs=[{folder}]"]
    arguments += ["--set", "sessions.idle_timeout_s=5", "--set", "tts.engine=piper"]
    # What is tested is the way, not whether a busy machine keeps the time: as much of it as may be.
    arguments += ["--set", "faces.ahead_frames=6"]
    arguments += ["--set", "inference.nice=0", "--set", "inference.sched=normal"]
    with ServerProcess(arguments) as running:
        yield running


class Look:
    """The mouth of every picture that came: when, and its U of YUV (the network's is blue)."""

    def __init__(self) -> None:
        self.seen: list[tuple[float, float]] = []

    def __call__(self, frame: Any) -> None:
        plane = frame.planes[1]
        u = np.frombuffer(plane, np.uint8).reshape(-1, plane.line_size)
        # A slow link, or machine, is sent a smaller picture.
        rows = slice(*(round(share * plane.height) for share in MOUTH[:2]))
        columns = slice(*(round(share * plane.width) for share in MOUTH[2:]))
        self.seen.append((time.monotonic(), float(u[rows, columns].mean())))

    def drawn(self, since: float = 0.0) -> list[float]:
        """When the network's mouth was seen."""
        return [at for at, u in self.seen if at >= since and u > 140]


def metrics(server: ServerProcess) -> dict[str, float]:
    text = httpx.get(server.url + "/metrics", timeout=10).text
    return {m[1]: float(m[2]) for m in re.finditer(r"^(\S+) ([0-9.e+-]+)$", text, re.MULTILINE)}


def faces(server: ServerProcess, kind: str) -> float:
    return metrics(server).get(f'avatar_faces{{kind="{kind}"}}', 0.0)


def missed(server: ServerProcess, session: str | None) -> float:
    return metrics(server).get(f'avatar_missed_faces{{session="{session}"}}', 0.0)


def ask(server: ServerProcess, path: str) -> Any:
    return httpx.get(server.url + path, timeout=10).json()


def memory_held(server: ServerProcess) -> int:
    """How many sessions' faces the inference process has memory for."""
    pid = ask(server, "/v1/status")["inference_pid"]
    return Path(f"/proc/{pid}/maps").read_text(encoding="utf-8").count("avatar-faces")


def run(test: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(test, 120)

    asyncio.run(bounded())


async def until(condition: Callable[[], Any], timeout_s: float, what: str) -> None:
    started = time.monotonic()
    while not condition():
        if time.monotonic() - started > timeout_s:
            pytest.fail(f"{what}: not within {timeout_s} s")
        await asyncio.sleep(0.05)


async def say(viewer: SyntheticViewer) -> float:
    """Have the avatar tell of itself; when it began to be heard."""
    since = time.monotonic()
    viewer.send(events.Text(text="What can you tell me about yourself?"))
    await until(lambda: viewer.received.first_audible_after(since), 40, "an answer")
    heard = viewer.received.first_audible_after(since)
    assert heard is not None
    return heard


async def come_back(server: ServerProcess, session: str | None, look: Look) -> SyntheticViewer:
    """A viewer of a session whose process has just been killed."""
    killed = time.monotonic()
    while True:
        viewer = SyntheticViewer(server.url, session=session, video="decode", on_picture=look)
        try:
            await viewer.join()
        except (ViewerError, httpx.HTTPError):
            await viewer.leave()
            assert time.monotonic() - killed < 30, "no way back in"
            await asyncio.sleep(0.2)
        else:
            return viewer


def test_two_sessions_mouths_move_while_they_speak_and_share_the_networks_steps(
    server: ServerProcess,
) -> None:
    async def talk() -> None:
        looks = [Look(), Look()]
        viewers = [
            SyntheticViewer(server.url, avatar="painted", video="decode", on_picture=look)
            for look in looks
        ]
        try:
            for viewer in viewers:
                await viewer.join()
            assert len({viewer.session for viewer in viewers}) == 2
            await until(lambda: all(len(look.seen) > 20 for look in looks), 30, "pictures")
            # Nothing is said: the photograph's own mouth, and no work for the network.
            assert not [at for look in looks for at in look.drawn()]
            assert faces(server, "drawn") == 0
            began = await asyncio.gather(*map(say, viewers))
            await asyncio.gather(*(v.wait_for(events.TurnDone, timeout_s=60) for v in viewers))
            await asyncio.sleep(1.5)
            for viewer, look, heard in zip(viewers, looks, began, strict=True):
                drawn, last = look.drawn(), viewer.received.last_audible()
                assert last is not None
                # When exactly is tested elsewhere, by media time: here both are seen when a busy
                # machine gets to it.
                assert len(drawn) > 10
                assert heard - 1.5 < drawn[0]
                assert drawn[-1] < last + 2.5
                assert look.seen[-1][1] < 130
            await until(lambda: faces(server, "drawn") > 20, 5, "the count of faces")
            # Ticks in which both spoke were one step.
            assert faces(server, "steps") < faces(server, "drawn")
            name = 'avatar_model_memory_bytes{device="cpu",kind="weights",stage="faces"}'
            assert metrics(server)[name] == len(network_bytes())
        finally:
            for viewer in viewers:
                await viewer.leave()

    run(talk())
    # The avatar whose network cannot be used is told of at the start, by name.
    text = server.output()
    assert "avatar broken: its mouth will not move" in text
    assert "a lip-sync network takes a mel-spectrogram [N, 1, 80, 16]" in text


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_a_stopped_network_is_not_waited_for_and_a_killed_avatar_leaves_no_memory(
    server: ServerProcess,
) -> None:
    async def talk() -> None:
        await until(lambda: memory_held(server) == 0, 20, "the end of the sessions before")
        look = Look()
        viewer = SyntheticViewer(server.url, avatar="painted", video="decode", on_picture=look)
        async with viewer:
            await until(lambda: look.seen, 30, "pictures")
            await until(lambda: memory_held(server) == 1, 10, "the session's memory")
            await say(viewer)
            await until(look.drawn, 10, "a drawn mouth")
            before = missed(server, viewer.session)
            inference = ask(server, "/v1/status")["inference_pid"]
            os.kill(inference, signal.SIGSTOP)
            stopped = time.monotonic()
            try:
                await asyncio.sleep(1.5)
            finally:
                os.kill(inference, signal.SIGCONT)
            assert len([at for at, _ in look.seen if at > stopped]) > 15
            await until(lambda: missed(server, viewer.session) > before, 5, "missed faces")

            session = viewer.session
            pid = ask(server, f"/v1/sessions/{session}")["pid"]
            os.kill(pid, signal.SIGKILL)
            again = await come_back(server, session, look)
            since = time.monotonic()
            try:
                await until(lambda: memory_held(server) == 1, 20, "the memory of the new one alone")
                await say(again)
                await until(lambda: look.drawn(since), 20, "a drawn mouth")
            finally:
                await again.leave()
        await until(lambda: memory_held(server) == 0, 30, "no memory after the session")
        assert not [name for name in os.listdir("/dev/shm") if "faces" in name]

    run(talk())
