"""The real inference process, over its real socket, with the embedded models."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import zmq
import zmq.asyncio

from avatar_server.config import load_settings
from avatar_server.models import ModelStore, default_models
from avatar_server.processes import Bootstrap, bootstrap_line, plain_settings
from avatar_server.protocol.messages import (
    AskInferenceStatus,
    Cancel,
    CheckEndOfTurn,
    CloseSession,
    EndOfTurn,
    InferenceStatus,
    JobFailed,
    Message,
    OpenSession,
    ReplyAudio,
    ReplyEnd,
    Respond,
    Say,
    SessionOpened,
    Transcribe,
    Transcript,
    decode,
    encode,
)

OVERRIDES: dict[str, Any] = {"tts": {"engine": "piper"}}
FACT = "Q: Where do you live? A: I live in a little house by the sea."
START_S = 120.0


class Peer:
    """An avatar, or the gateway, as the process sees it."""

    def __init__(self, context: zmq.asyncio.Context, endpoint: str, name: str) -> None:
        self.name = name
        self._socket = context.socket(zmq.DEALER)
        self._socket.set(zmq.IDENTITY, name.encode())
        self._socket.set(zmq.LINGER, 0)
        self._socket.connect(endpoint)

    async def send(self, *messages: Message) -> None:
        for message in messages:
            await self._socket.send(encode(message))

    async def send_bytes(self, *frames: bytes) -> None:
        await self._socket.send_multipart(list(frames))

    async def receive(self, timeout_s: float = 60.0) -> Any:
        return decode(await asyncio.wait_for(self._socket.recv(), timeout_s))

    async def until(self, found: Callable[[Any], bool], timeout_s: float = 60.0) -> list[Any]:
        """Everything received up to the message wanted, which is the last."""
        got: list[Any] = []
        while not got or not found(got[-1]):
            got.append(await self.receive(timeout_s))
        return got

    async def quiet(self, seconds: float) -> list[Any]:
        """What comes within `seconds`."""
        got = []
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while True:
                    got.append(await self.receive())
        return got

    async def open(self) -> None:
        await self.send(
            OpenSession(
                session=self.name,
                avatar="tester",
                persona="You are a friendly guide.",
                facts=[FACT],
                voice="piper-joe",
            )
        )
        opened = await self.receive()
        assert isinstance(opened, SessionOpened)
        assert opened.voice == "piper-joe"

    async def reply(self, job: str) -> tuple[list[ReplyAudio], ReplyEnd]:
        got = await self.until(lambda m: isinstance(m, ReplyEnd | JobFailed))
        assert isinstance(got[-1], ReplyEnd), got[-1]
        assert all(m.job == job for m in got)
        return got[:-1], got[-1]

    def close(self) -> None:
        self._socket.close()


class Running:
    """The process, and peers connected to it."""

    def __init__(self, process: asyncio.subprocess.Process, endpoint: str) -> None:
        self.process = process
        self._endpoint = endpoint
        self._context = zmq.asyncio.Context()
        self._peers: list[Peer] = []
        self._logs: list[str] = []
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self.process.stderr is not None
        while line := await self.process.stderr.readline():
            self._logs.append(line.decode())

    def peer(self, name: str) -> Peer:
        made = Peer(self._context, self._endpoint, name)
        self._peers.append(made)
        return made

    async def ready(self) -> list[InferenceStatus]:
        gateway = self.peer("gateway-wait")
        await gateway.send(AskInferenceStatus())
        return await gateway.until(lambda m: m.ready, START_S)

    async def log(self) -> str:
        """All that the process wrote to standard error; it must have ended."""
        await asyncio.wait_for(self._reading, 10)
        return "".join(self._logs)

    async def close(self) -> None:
        for peer in self._peers:
            peer.close()
        self._context.destroy(linger=0)
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()
        self._reading.cancel()
        await asyncio.wait([self._reading])


@contextlib.asynccontextmanager
async def running(folder: Path) -> AsyncIterator[Running]:
    endpoint = f"ipc://{folder}/i"
    settings = load_settings("cpu", OVERRIDES)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "avatar_server.inference.process"),
        stdin=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    bootstrap = Bootstrap(role="inference", settings=plain_settings(settings), inference=endpoint)
    process.stdin.write(bootstrap_line(bootstrap))
    made = Running(process, endpoint)
    try:
        yield made
    finally:
        await made.close()


@pytest.fixture
def folder(tmp_path: Path, model_store: ModelStore) -> Path:
    for name in default_models(load_settings("cpu", OVERRIDES)):
        model_store.path(name)
    return tmp_path


def samples(pieces: list[ReplyAudio]) -> np.ndarray[Any, Any]:
    return np.frombuffer(b"".join(piece.pcm for piece in pieces), np.int16)


def as_heard(pieces: list[ReplyAudio]) -> bytes:
    """The speech at 16 kHz, with a second of silence before and after."""
    sound = samples(pieces).astype(np.float32).reshape(1, -1)
    short = cv2.resize(sound, (sound.shape[1] // 3, 1), interpolation=cv2.INTER_AREA)
    silence = np.zeros(16_000, np.int16)
    return np.concatenate([silence, short[0].astype(np.int16), silence]).tobytes()


def test_a_conversation_with_the_embedded_models(folder: Path) -> None:
    async def test() -> None:
        async with running(folder) as inference:
            phases = await inference.ready()
            assert phases[-1].models.keys() >= {"stt", "tts", "llm"}
            assert phases[-1].pid == inference.process.pid
            assert any("loading" in status.phase for status in phases[:-1])
            avatar = inference.peer("one")

            await avatar.send(Say(session="one", job="0", text="Hello."))
            failed = await avatar.receive()
            assert isinstance(failed, JobFailed)
            assert failed.code == "unknown_session"
            await avatar.open()

            # A fact is spoken, and recognised again.
            await avatar.send(Respond(session="one", job="1", text="Where do you live?"))
            pieces, end = await avatar.reply("1")
            assert end.text == "I live in a little house by the sea."
            assert "llm_first_token" not in end.stages_ms
            assert 1.5 < len(samples(pieces)) / 48_000 < 6
            assert np.abs(samples(pieces)).max() > 2_000
            assert all(p.words and p.visemes for p in pieces if p.piece == 0)
            pcm = as_heard(pieces)
            await avatar.send(
                CheckEndOfTurn(session="one", job="2", pcm=pcm[:-16_000]),
                Transcribe(session="one", job="3", purpose="final", pcm=pcm),
            )
            results = {m.job: m for m in [await avatar.receive(), await avatar.receive()]}
            assert isinstance(results["2"], EndOfTurn)
            assert 0 <= results["2"].probability <= 1
            assert isinstance(results["3"], Transcript)
            assert "little house" in results["3"].text

            # The model answers.
            await avatar.send(Respond(session="one", job="4", text="What is the sun made of?"))
            pieces, end = await avatar.reply("4")
            assert end.text
            assert end.stages_ms["llm_first_token"] > 0
            assert " ".join(p.text for p in pieces if p.piece == 0) == end.text

            # A reply is interrupted.
            story = Respond(session="one", job="5", text="Tell me a story about a dog and a cat.")
            await avatar.send(story)
            await avatar.receive()
            await avatar.send(Cancel(session="one", job="5"))
            await avatar.send(Say(session="one", job="6", text="Yes?"))
            late = await avatar.until(lambda m: getattr(m, "job", "") == "6")
            assert len(late) <= 3
            await avatar.until(lambda m: isinstance(m, ReplyEnd))
            assert await avatar.quiet(0.5) == []

            # What is no message harms nobody.
            await avatar.send_bytes(b"\xffgarbage")
            await avatar.send_bytes(b"two", b"frames")
            await avatar.send(JobFailed(job="x", code="engine", message="not for you"))

            # Two sessions at once, unmixed.
            other = inference.peer("two")
            await other.open()
            await asyncio.gather(
                avatar.send(Say(session="one", job="7", text="This is one. It goes on.")),
                other.send(Say(session="two", job="7", text="Here is two. It goes on.")),
            )
            (_, one), (_, two) = await asyncio.gather(avatar.reply("7"), other.reply("7"))
            assert one.text == "This is one. It goes on."
            assert two.text == "Here is two. It goes on."

            await other.send(CloseSession(session="two"), Say(session="two", job="8", text="Hm."))
            assert (await other.receive()).code == "unknown_session"

            gateway = inference.peer("gateway")
            await gateway.send(AskInferenceStatus())
            status = await gateway.receive()
            assert status.sessions == 1
            assert status.jobs_done["stt"] == 1
            assert status.jobs_done["reply"] >= 4
            assert status.rss_bytes > 100_000_000

            began = time.monotonic()
            inference.process.send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(inference.process.wait(), 10) == 0
            assert time.monotonic() - began < 5
            log = await inference.log()
            assert "Traceback" not in log
            assert log.count("dropped") == 3

    asyncio.run(test())


def test_it_ignores_ctrl_c_and_ends_with_its_parent_while_still_loading(folder: Path) -> None:
    async def test() -> None:
        async with running(folder) as inference:
            gateway = inference.peer("gateway")
            await gateway.send(AskInferenceStatus())
            assert not (await gateway.receive(START_S)).ready
            inference.process.send_signal(signal.SIGINT)
            await gateway.send(AskInferenceStatus())
            await gateway.receive(START_S)
            assert inference.process.stdin is not None
            inference.process.stdin.close()
            assert await asyncio.wait_for(inference.process.wait(), 10) == 0
            assert "Traceback" not in await inference.log()

    asyncio.run(test())


@pytest.mark.skipif(sys.platform != "linux", reason="scheduling classes are Linux's")
def test_every_thread_steps_back_behind_the_processes_that_draw_frames(folder: Path) -> None:
    """Also those that the models' libraries start, and only once they have work."""

    async def test() -> None:
        async with running(folder) as inference:
            gateway = inference.peer("gateway")
            await gateway.send(AskInferenceStatus())
            await gateway.receive(START_S)
            early = threads_of(inference.process.pid)
            await inference.ready()
            avatar = inference.peer("one")
            await avatar.open()
            await avatar.send(Respond(session="one", job="1", text="Where do you live?"))
            pieces, _ = await avatar.reply("1")
            pcm = as_heard(pieces)
            await avatar.send(
                CheckEndOfTurn(session="one", job="2", pcm=pcm[:-16_000]),
                Transcribe(session="one", job="3", purpose="final", pcm=pcm),
                Respond(session="one", job="4", text="What is the sun made of?"),
            )
            await avatar.until(lambda m: isinstance(m, ReplyEnd))
            threads = threads_of(inference.process.pid)
            assert len(threads) > len(early), "the libraries have threads of their own"
            own = os.getpriority(os.PRIO_PROCESS, 0)
            for thread in threads:
                assert thread.nice == min(19, own + 10), thread
                assert thread.policy == os.SCHED_BATCH, thread
            # With autogroups, priorities count only within an operating system's session.
            assert os.getsid(inference.process.pid) == os.getsid(0)
            # One thread a stage works; a pool on every core would show here.
            busy = sorted(thread.cpu_s for thread in threads)[::-1]
            assert sum(busy[:6]) > 0.9 * sum(busy), threads

    asyncio.run(test())


@dataclass(frozen=True)
class Thread:
    name: str
    nice: int
    policy: int
    cpu_s: float


def threads_of(pid: int) -> list[Thread]:
    """All threads of a process, from /proc (proc_pid_stat(5))."""
    found = []
    for folder in Path(f"/proc/{pid}/task").iterdir():
        name, _, rest = (folder / "stat").read_text().partition("(")[2].rpartition(")")
        values = rest.split()
        ticks = int(values[11]) + int(values[12])
        cpu_s = ticks / os.sysconf("SC_CLK_TCK")
        found.append(Thread(name, int(values[16]), int(values[38]), cpu_s))
    return found
