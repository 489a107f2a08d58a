from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import zmq
import zmq.asyncio

from avatar_server.avatar.inference_client import InferenceClient, JobEvent, JobLost
from avatar_server.avatars import AvatarSpec, VoiceSpec
from avatar_server.protocol import messages
from avatar_server.protocol.messages import (
    AskInferenceStatus,
    Buffered,
    Cancel,
    CloseSession,
    InferenceStatus,
    JobFailed,
    OpenSession,
    ReplyAudio,
    ReplyEnd,
    Respond,
    SessionOpened,
    Transcribe,
    Transcript,
)

SPEC = AvatarSpec(
    name="test",
    title="Test",
    voice=VoiceSpec(name="voice", fallbacks=["other"]),
    persona="A tester.",
    facts=["Tests pass."],
    folder=Path("."),
)


class Server:
    """An inference endpoint that knows sessions and answers as told."""

    def __init__(self, context: zmq.asyncio.Context, pid: int, endpoint: str = "") -> None:
        self.socket = context.socket(zmq.ROUTER)
        self.socket.setsockopt(zmq.LINGER, 0)
        if endpoint:
            self.socket.bind(endpoint)
        else:
            endpoint = f"tcp://127.0.0.1:{self.socket.bind_to_random_port('tcp://127.0.0.1')}"
        self.endpoint = endpoint
        self.pid = pid
        self.ready = True
        self.deaf = False
        self.received: list[messages.AnyMessage] = []
        self.sessions: set[str] = set()
        self.peer = b""
        self._task = asyncio.create_task(self._serve())

    async def _serve(self) -> None:
        while True:
            self.peer, data = await self.socket.recv_multipart()
            message = messages.decode(data)
            self.received.append(message)
            if self.deaf:
                continue
            if isinstance(message, AskInferenceStatus):
                await self.send(InferenceStatus(ready=self.ready, pid=self.pid))
            elif isinstance(message, OpenSession):
                self.sessions.add(message.session)
                await self.send(SessionOpened(session=message.session, voice="voice"))
            elif isinstance(message, Transcribe):
                if message.session in self.sessions:
                    await self.send(Transcript(job=message.job, text="hello"))
                else:
                    await self.send(
                        JobFailed(job=message.job, code="unknown_session", message="who?")
                    )

    async def send(self, message: messages.Message) -> None:
        await self.socket.send_multipart([self.peer, messages.encode(message)])

    def count(self, kind: type[messages.Message]) -> int:
        return sum(isinstance(message, kind) for message in self.received)

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self.socket.close(linger=0)


class Rig:
    def __init__(self, context: zmq.asyncio.Context, silence_s: float, keep_alive_s: float) -> None:
        self.context = context
        self.server = Server(context, pid=1)
        self.client = InferenceClient(
            context,
            self.server.endpoint,
            "s1",
            SPEC,
            interval_s=0.05,
            silence_s=silence_s,
            keep_alive_s=keep_alive_s,
        )
        self.changes: list[bool] = []
        self.client.on_available = self.changes.append
        self.events: list[JobEvent] = []

    async def until(self, condition: Callable[[], bool], limit_s: float = 15.0) -> None:
        async with asyncio.timeout(limit_s):
            while not condition():  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    def transcribe(self, job: str) -> None:
        message = Transcribe(session="s1", job=job, purpose="final", pcm=b"\0\0")
        self.client.submit(message, self.events.append)

    def respond(self, job: str) -> None:
        self.client.submit(Respond(session="s1", job=job, text="hi"), self.events.append)


@contextlib.asynccontextmanager
async def connected(silence_s: float = 30.0, keep_alive_s: float = 30.0) -> AsyncIterator[Rig]:
    context = zmq.asyncio.Context()
    rig = Rig(context, silence_s, keep_alive_s)
    running = asyncio.create_task(rig.client.run())
    try:
        await rig.until(lambda: rig.client.available)
        yield rig
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await rig.client.close()
        await rig.server.close()
        context.destroy(linger=0)


def test_the_session_is_opened_with_persona_facts_and_voice() -> None:
    async def check() -> None:
        async with connected() as rig:
            (opened,) = [m for m in rig.server.received if isinstance(m, OpenSession)]
            assert (opened.session, opened.persona, opened.facts) == (
                "s1",
                "A tester.",
                ["Tests pass."],
            )
            assert (opened.voice, opened.voice_fallbacks) == ("voice", ["other"])
            assert rig.changes == [True]

    asyncio.run(check())


def test_a_job_gets_its_result_once_and_is_gone() -> None:
    async def check() -> None:
        async with connected() as rig:
            rig.transcribe("a")
            await rig.until(lambda: bool(rig.events))
            assert isinstance(rig.events[0], Transcript)
            assert rig.client.jobs == 0
            await rig.server.send(Transcript(job="a", text="again"))
            rig.transcribe("b")
            await rig.until(lambda: len(rig.events) > 1)
            assert [e.job for e in rig.events] == ["a", "b"]

    asyncio.run(check())


def test_a_reply_streams_until_its_end() -> None:
    async def check() -> None:
        async with connected() as rig:
            rig.respond("r")
            await rig.until(lambda: rig.server.count(Respond) == 1)
            rig.client.buffered("r", 1.5)
            for piece in range(3):
                await rig.server.send(
                    ReplyAudio(job="r", clause=0, piece=piece, pcm=b"", last=piece == 2)
                )
            await rig.server.send(ReplyEnd(job="r", text="x"))
            await rig.until(lambda: rig.client.jobs == 0)
            assert [type(e) for e in rig.events] == [ReplyAudio] * 3 + [ReplyEnd]
            await rig.until(lambda: rig.server.count(Buffered) == 1)

    asyncio.run(check())


def test_a_cancelled_job_is_not_heard_of_again() -> None:
    async def check() -> None:
        async with connected() as rig:
            rig.respond("r")
            rig.client.cancel("r")
            rig.client.cancel("unknown")
            await rig.until(lambda: rig.server.count(Cancel) == 1)
            await rig.server.send(ReplyEnd(job="r", text="x"))
            rig.transcribe("after")
            await rig.until(lambda: bool(rig.events))
            assert [e.job for e in rig.events] == ["after"]
            assert rig.server.count(Cancel) == 1

    asyncio.run(check())


def test_jobs_are_lost_at_once_when_inference_dies_and_its_successor_knows_the_session() -> None:
    async def check() -> None:
        async with connected() as rig:
            rig.respond("r")
            await rig.until(lambda: rig.server.count(Respond) == 1)
            endpoint = rig.server.endpoint
            await rig.server.close()
            await rig.until(lambda: bool(rig.events))
            assert isinstance(rig.events[0], JobLost)
            assert not rig.client.available
            rig.transcribe("while away")
            await rig.until(lambda: len(rig.events) == 2)
            assert isinstance(rig.events[1], JobLost)

            rig.server = Server(rig.context, pid=2, endpoint=endpoint)
            await rig.until(lambda: rig.client.available)
            rig.transcribe("after")
            await rig.until(lambda: len(rig.events) == 3)
            assert isinstance(rig.events[2], Transcript)
            assert rig.server.count(Respond) == 0
            assert rig.changes == [True, False, True]

    asyncio.run(check())


def test_a_new_process_behind_the_same_connection_is_noticed() -> None:
    async def check() -> None:
        async with connected() as rig:
            rig.respond("r")
            rig.server.pid = 2
            await rig.until(lambda: bool(rig.events))
            assert isinstance(rig.events[0], JobLost)
            await rig.until(lambda: rig.client.available)
            assert rig.server.count(OpenSession) == 2

    asyncio.run(check())


def test_a_session_that_was_forgotten_is_opened_again() -> None:
    async def check() -> None:
        async with connected() as rig:
            rig.server.sessions.clear()
            rig.transcribe("a")
            await rig.until(lambda: bool(rig.events))
            assert isinstance(rig.events[0], JobLost)
            await rig.until(lambda: rig.client.available)
            rig.transcribe("b")
            await rig.until(lambda: len(rig.events) == 2)
            assert isinstance(rig.events[1], Transcript)

    asyncio.run(check())


def test_an_idle_session_is_kept_known_without_an_interruption() -> None:
    async def check() -> None:
        async with connected(keep_alive_s=0.1) as rig:
            await rig.until(lambda: rig.server.count(OpenSession) >= 3)
            assert rig.changes == [True]

    asyncio.run(check())


def test_inference_that_hangs_is_taken_for_gone_until_it_answers() -> None:
    async def check() -> None:
        async with connected(silence_s=0.5) as rig:
            rig.server.deaf = True
            rig.respond("r")
            await rig.until(lambda: bool(rig.events))
            assert isinstance(rig.events[0], JobLost)
            rig.server.deaf = False
            await rig.until(lambda: rig.client.available)

    asyncio.run(check())


def test_jobs_beyond_the_bound_are_refused() -> None:
    async def check() -> None:
        async with connected() as rig:
            for number in range(70):
                rig.respond(str(number))
            await rig.until(lambda: len(rig.events) == 6)
            assert {type(e) for e in rig.events} == {JobFailed}
            assert rig.client.jobs == 64

    asyncio.run(check())


def test_closing_takes_leave() -> None:
    async def check() -> None:
        async with connected() as rig:
            await rig.client.close()
            await rig.until(lambda: rig.server.count(CloseSession) == 1)

    asyncio.run(check())


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x93\x01\x02\x03"])
def test_bytes_that_are_no_message_are_dropped(data: bytes) -> None:
    async def check() -> None:
        async with connected() as rig:
            await rig.server.socket.send_multipart([rig.server.peer, data])
            rig.transcribe("a")
            await rig.until(lambda: bool(rig.events))
            assert isinstance(rig.events[0], Transcript)

    asyncio.run(check())
