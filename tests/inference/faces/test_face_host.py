"""Drawing the faces of several sessions together, with a real network and its engine's thread."""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from avatar_server.avatars import load_avatar
from avatar_server.clock import Clock, ManualClock, MonotonicClock
from avatar_server.config import FaceSettings, settings_from_values
from avatar_server.inference.faces import FaceHost, host
from avatar_server.inference.host import host_workers
from avatar_server.protocol.face_ring import FaceReader
from avatar_server.protocol.messages import (
    DrawFace,
    FacesOpened,
    FacesRefused,
    Message,
    OpenFaces,
)
from renderers.neural import FaceJob
from tests.renderers.neural.tiny_network import COLOUR, loudness, network_bytes, write_avatar

WAIT_S = 20.0


def mel_of(level: float) -> NDArray[np.float32]:
    return np.full((80, 16), level, np.float32)


class Avatar:
    """A session's other end."""

    def __init__(self, faces: FaceHost, name: str, folder: Path, pid: int | None = None) -> None:
        self.name, self.folder, self.pid = name, folder, pid or os.getpid()
        self.ring = FaceReader()
        self._host = faces
        self._replies: asyncio.Queue[Message] = asyncio.Queue()

    async def open(self) -> Message:
        message = OpenFaces(
            session=self.name,
            folder=str(self.folder),
            width=1280,
            height=720,
            fps=30.0,
            ring=self.ring.path,
            pid=self.pid,
        )
        self._host.begin(message, self._replies.put_nowait)
        return await asyncio.wait_for(self._replies.get(), WAIT_S)

    def ask(self, number: int, level: float = 0.0, left_s: float = 5.0, index: int = 0) -> None:
        self._host.draw(
            DrawFace(
                session=self.name,
                number=number,
                index=index,
                mel=mel_of(level).tobytes(),
                left_s=left_s,
            )
        )

    def shows(self, number: int, level: float) -> bool:
        found = self.ring.take(number)
        if found is None or found.number != number:
            return False
        expected = np.array(COLOUR[::-1]) * loudness(mel_of(level)) * 255
        return bool(np.abs(found.face[80, 48] - expected).max() <= 1)


async def until(met: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not met():  # noqa: ASYNC110 (what a thread counts has no event)
            await asyncio.sleep(0.005)


@asynccontextmanager
async def hosting(clock: Clock | None = None) -> AsyncIterator[FaceHost]:
    clock = clock or MonotonicClock()
    workers = host_workers(settings_from_values({}), clock)
    faces = FaceHost(FaceSettings(device="cpu"), workers, clock)
    try:
        yield faces
    finally:
        faces.close()
        workers.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_avatar(tmp_path_factory.mktemp("avatars") / "tester")


def slowed(
    monkeypatch: pytest.MonkeyPatch, network: Any, seconds: Callable[[], float]
) -> list[int]:
    """Make the network's steps take longer; the sizes of its batches as they come."""
    run, batches = network.run, list[int]()

    def slowly(jobs: Sequence[FaceJob]) -> Any:
        batches.append(len(jobs))
        time.sleep(seconds())
        return run(jobs)

    monkeypatch.setattr(network, "run", slowly)
    return batches


def test_two_sessions_frames_of_a_tick_are_one_step(folder: Path) -> None:
    async def test() -> None:
        clock = ManualClock(100.001)
        async with hosting(clock) as faces:
            one, two = Avatar(faces, "one", folder), Avatar(faces, "two", folder)
            opened = [await one.open(), await two.open()]
            assert all(isinstance(m, FacesOpened) and m.size == 96 for m in opened)
            one.ask(10, 3.0)
            clock.advance(0.02)
            two.ask(44, -2.0)
            await until(lambda: faces.counts.drawn == 2)
            assert faces.counts.steps == 1
            assert one.shows(10, 3.0)
            assert two.shows(44, -2.0)
            assert one.ring.take(9) is None
            # A frame that cannot wait for the tick takes along who is there.
            one.ask(11, 1.0)
            assert faces._tick.at == pytest.approx(100.0 + 1 / 30)
            two.ask(45, 1.0, left_s=0.005)
            assert faces._tick.at == pytest.approx(clock.now(), abs=0.005)
            await until(lambda: faces.counts.drawn == 4)
            assert faces.counts.steps == 2

    asyncio.run(test())


def test_frames_that_gather_while_the_network_is_busy_are_one_step(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        async with hosting() as faces:
            avatars = [Avatar(faces, f"s{n}", folder) for n in range(6)]
            for each in avatars:
                await each.open()
            network = faces.networks.any()
            batches = slowed(monkeypatch, network, lambda: 0.3)
            avatars[0].ask(1, 1.0)
            await until(lambda: batches == [1])
            for n, each in enumerate(avatars):
                each.ask(2, float(n) - 3)
            await until(lambda: faces.counts.drawn == 7)
            assert batches == [1, 6]
            assert all(each.shows(2, float(n) - 3) for n, each in enumerate(avatars))

    asyncio.run(test())


def test_a_face_that_comes_too_late_is_dropped_and_counted(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        async with hosting() as faces:
            avatar = Avatar(faces, "one", folder)
            await avatar.open()
            took_s = [1.5]
            slowed(monkeypatch, faces.networks.any(), lambda: took_s[0])
            avatar.ask(1, 1.0, left_s=1.0)
            await until(lambda: faces.counts.late == 1)
            assert avatar.ring.take(100) is None
            # What cannot be in time is not begun,
            monkeypatch.setattr(host, "TRY_S", 60.0)
            faces._tried_at = faces._clock.now()
            avatar.ask(2, 1.0, left_s=0.1)
            await until(lambda: faces.counts.dropped == 1)
            assert faces.counts.steps == 1
            # but tried now and then: the network may have become faster.
            monkeypatch.setattr(host, "TRY_S", 0.0)
            took_s[0] = 0.0
            numbers = itertools.count(3)

            def drawn() -> bool:
                avatar.ask(next(numbers), 1.0, left_s=0.5)
                return faces.counts.drawn > 3

            await until(drawn)
            assert avatar.ring.take(100) is not None

    asyncio.run(test())


def test_a_frame_that_waits_behind_a_step_past_its_time_is_not_drawn(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        async with hosting() as faces:
            avatar = Avatar(faces, "one", folder)
            await avatar.open()
            batches = slowed(monkeypatch, faces.networks.any(), lambda: 0.5)
            monkeypatch.setattr(host, "TRY_S", 60.0)
            faces._tried_at = faces._clock.now()
            avatar.ask(1, 1.0)
            await until(lambda: batches == [1])
            avatar.ask(2, 1.0, left_s=0.1)
            await until(lambda: faces.counts.dropped == 1)
            await until(lambda: faces.counts.drawn == 1)
            assert batches == [1]
            assert avatar.ring.take(2).number == 1  # type: ignore[union-attr]

    asyncio.run(test())


def test_a_network_that_cannot_be_used_is_refused_by_name_and_harms_nobody(
    folder: Path, tmp_path: Path
) -> None:
    async def test() -> None:
        wrong = write_avatar(tmp_path / "wrong", network_bytes(face_channels=3))
        gone = write_avatar(tmp_path / "gone")
        (gone / "lips.onnx").unlink()
        async with hosting() as faces:
            for bad, says in ((wrong, "[N, 6, size, size]"), (gone, "there is no")):
                refused = await Avatar(faces, bad.name, bad).open()
                assert isinstance(refused, FacesRefused)
                assert "lips.onnx" in refused.message
                assert says in refused.message
            avatar = Avatar(faces, "one", folder)
            assert isinstance(await avatar.open(), FacesOpened)
            avatar.ask(1, 0.5)
            await until(lambda: avatar.shows(1, 0.5))

    asyncio.run(test())


def test_networks_are_loaded_once_before_they_are_needed(
    folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        wrong = write_avatar(tmp_path / "wrong", b"nothing")
        async with hosting() as faces:
            await faces.preload([load_avatar(folder), load_avatar(wrong)])
            assert "avatar wrong: its mouth will not move" in caplog.text
            loaded = faces.networks.any()
            assert loaded is not None
            assert faces.networks.memory().weights == (folder / "lips.onnx").stat().st_size  # type: ignore[union-attr]
            await Avatar(faces, "one", folder).open()
            await Avatar(faces, "two", folder).open()
            assert faces.networks.any() is loaded

    asyncio.run(test())


def test_weights_that_were_replaced_are_loaded_anew(tmp_path: Path) -> None:
    async def test() -> None:
        folder = write_avatar(tmp_path / "a")
        async with hosting() as faces:
            first = await Avatar(faces, "one", folder).open()
            (folder / "lips.onnx").write_bytes(network_bytes(size=128))
            second = await Avatar(faces, "two", folder).open()
            assert (first.size, second.size) == (96, 128)  # type: ignore[attr-defined]

    asyncio.run(test())


def test_what_is_no_frame_is_dropped(folder: Path) -> None:
    async def test() -> None:
        async with hosting() as faces:
            avatar = Avatar(faces, "one", folder)
            avatar.ask(1)
            await avatar.open()
            avatar.ask(1, index=7)
            avatar.ask(-1)
            avatar.ask(1, left_s=float("nan"))
            faces.draw(DrawFace(session="one", number=1, index=0, mel=b"abc", left_s=1.0))
            assert faces.counts.dropped == 5
            faces.close_session("one")
            avatar.ask(1)
            assert faces.counts.dropped == 6

    asyncio.run(test())


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_the_memory_of_an_avatar_that_was_killed_is_let_go(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "WATCH_S", 0.05)

    def held() -> int:
        return Path("/proc/self/maps").read_text(encoding="utf-8").count("memfd:avatar-faces")

    async def test() -> None:
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-c", "input()", stdin=asyncio.subprocess.PIPE
        )
        async with hosting() as faces:
            before = held()
            avatar = Avatar(faces, "one", folder, pid=child.pid)
            await avatar.open()
            avatar.ring.close()
            assert held() == before + 1
            await asyncio.sleep(0.2)
            assert faces.sessions == ["one"]
            child.kill()
            await child.wait()
            await until(lambda: not faces.sessions)
            assert held() == before

    asyncio.run(test())
