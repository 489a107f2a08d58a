"""An OpenAI-compatible endpoint, against a small server of our own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from avatar_server.config import LlmSettings
from avatar_server.inference.llm.engine import ChatMessage, EngineError, LlmRequest
from avatar_server.inference.llm.openai import OpenAiEngine
from avatar_server.inference.loading import build_engine

KEY = "key-that-must-not-be-logged"


class Endpoint:
    """An HTTP server that hands each request to `answer`, and keeps what it was sent."""

    def __init__(self, answer: Callable[[Endpoint, asyncio.StreamWriter], Awaitable[None]]) -> None:
        self._answer = answer
        self.requests: list[dict[str, object]] = []
        self.headers: list[str] = []
        self.gone = asyncio.Event()
        self.port = 0

    @contextlib.asynccontextmanager
    async def serve(self) -> AsyncIterator[Endpoint]:
        server = await asyncio.start_server(self._handle, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            self.headers.append(head)
            size = next(
                int(line.split(":")[1])
                for line in head.lower().splitlines()
                if line.startswith("content-length")
            )
            self.requests.append(json.loads(await reader.readexactly(size)))
            await self._answer(self, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            self.gone.set()
        finally:
            writer.close()


def head(status: str = "200 OK") -> bytes:
    kind = "Content-Type: text/event-stream"
    return f"HTTP/1.1 {status}\r\n{kind}\r\nConnection: close\r\n\r\n".encode()


def chunk(text: str) -> bytes:
    return f"data: {json.dumps({'choices': [{'delta': {'content': text}}]})}\n\n".encode()


async def send(writer: asyncio.StreamWriter, *parts: bytes) -> None:
    for part in parts:
        writer.write(part)
        await writer.drain()


async def good(endpoint: Endpoint, writer: asyncio.StreamWriter) -> None:
    role = b'data: {"choices":[{"delta":{"role":"assistant","content":null}}]}\n\n'
    await send(writer, head(), b": a comment\n\n", role, chunk("Hel"), chunk("lo."))
    await send(writer, b'data: {"choices":[]}\n\n', b"data: [DONE]\n\n")


def engine(endpoint: Endpoint, **options: object) -> OpenAiEngine:
    values = {
        "engine": "openai",
        "model": "some-model",
        "base_url": f"http://127.0.0.1:{endpoint.port}/v1",
        "api_key": KEY,
        "timeout_s": 5.0,
        **options,
    }
    return OpenAiEngine(LlmSettings(**values))  # type: ignore[arg-type]


REQUEST = LlmRequest("s", [ChatMessage("user", "Hi")], max_tokens=7, stop=("\n\n",))


async def ask(
    answer: Callable[[Endpoint, asyncio.StreamWriter], Awaitable[None]], **options: object
) -> tuple[list[str], Endpoint]:
    async with Endpoint(answer).serve() as endpoint:
        made = engine(endpoint, **options)
        try:
            return [piece async for piece in made.stream(REQUEST)], endpoint
        finally:
            await made.close()


def test_pieces_come_as_they_are_sent() -> None:
    pieces, endpoint = asyncio.run(ask(good, options={"top_p": 0.5}))
    assert pieces == ["Hel", "lo."]
    (body,) = endpoint.requests
    assert body["messages"] == [{"role": "user", "content": "Hi"}]
    assert (body["model"], body["max_tokens"], body["stop"]) == ("some-model", 7, ["\n\n"])
    assert body["stream"] is True
    assert body["top_p"] == 0.5
    assert endpoint.headers[0].startswith("POST /v1/chat/completions ")
    assert f"Bearer {KEY}" in endpoint.headers[0]


def test_a_busy_endpoint_is_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    async def busy_once(endpoint: Endpoint, writer: asyncio.StreamWriter) -> None:
        if len(endpoint.requests) == 1:
            await send(writer, head("503 Service Unavailable"), b"loading")
        else:
            await good(endpoint, writer)

    with caplog.at_level(logging.DEBUG):
        pieces, endpoint = asyncio.run(ask(busy_once))
    assert pieces == ["Hel", "lo."]
    assert len(endpoint.requests) == 2
    assert KEY not in caplog.text


def test_an_endpoint_that_stays_busy_is_an_error_with_its_words() -> None:
    async def busy(endpoint: Endpoint, writer: asyncio.StreamWriter) -> None:
        await send(writer, head("503 Service Unavailable"), b"no room left")

    with pytest.raises(EngineError, match="503: no room left"):
        asyncio.run(ask(busy))


def test_what_was_said_is_not_said_again_when_the_connection_breaks() -> None:
    asked = []

    async def breaks(endpoint: Endpoint, writer: asyncio.StreamWriter) -> None:
        asked.append(1)
        sized = head().replace(b"Connection", b"Content-Length: 9999\r\nConnection")
        await send(writer, sized, chunk("Hel"))

    async def run() -> list[str]:
        async with Endpoint(breaks).serve() as endpoint:
            made, got = engine(endpoint), []
            try:
                async for piece in made.stream(REQUEST):
                    got.append(piece)
            except EngineError:
                return got
            finally:
                await made.close()
        raise AssertionError("a broken connection must be reported")

    assert asyncio.run(run()) == ["Hel"]
    assert asked == [1]


@pytest.mark.parametrize(("status", "hint"), [("401 No", "api_key"), ("404 No", "base_url")])
def test_a_refusal_says_which_setting_to_check_and_is_not_repeated(status: str, hint: str) -> None:
    seen: list[Endpoint] = []

    async def refuse(endpoint: Endpoint, writer: asyncio.StreamWriter) -> None:
        seen.append(endpoint)
        await send(writer, head(status), b"go away")

    with pytest.raises(EngineError, match=hint) as caught:
        asyncio.run(ask(refuse))
    assert KEY not in str(caught.value)
    assert len(seen) == 1


def test_a_silent_endpoint_is_given_up_after_the_timeout() -> None:
    async def silent(endpoint: Endpoint, writer: asyncio.StreamWriter) -> None:
        await send(writer, head())
        await asyncio.sleep(5)

    with pytest.raises(EngineError, match=r"timeout_s|silent"):
        asyncio.run(ask(silent, timeout_s=0.3))


def test_what_is_no_chat_chunk_is_an_error() -> None:
    async def nonsense(endpoint: Endpoint, writer: asyncio.StreamWriter) -> None:
        await send(writer, head(), b"data: <html>\n\n")

    with pytest.raises(EngineError, match="no chat chunk"):
        asyncio.run(ask(nonsense))


def test_an_error_inside_the_stream_is_an_error() -> None:
    async def fails(endpoint: Endpoint, writer: asyncio.StreamWriter) -> None:
        await send(writer, head(), b'data: {"error":{"message":"out of memory"}}\n\n')

    with pytest.raises(EngineError, match="out of memory"):
        asyncio.run(ask(fails))


def test_closing_the_stream_drops_the_connection() -> None:
    async def endless(endpoint: Endpoint, writer: asyncio.StreamWriter) -> None:
        await send(writer, head())
        while True:
            await send(writer, chunk("more "))
            await asyncio.sleep(0.005)

    async def run() -> None:
        async with Endpoint(endless).serve() as endpoint:
            made = engine(endpoint)
            stream = made.stream(REQUEST)
            assert await anext(stream) == "more "
            await stream.aclose()
            await asyncio.wait_for(endpoint.gone.wait(), 5)
            assert made.metrics().cancelled == 1
            await made.close()

    asyncio.run(run())


def test_nobody_listening_is_an_error_and_no_obstacle_to_warming_up() -> None:
    async def run() -> None:
        endpoint = Endpoint(good)
        async with endpoint.serve():
            pass
        made = engine(endpoint)
        await made.warm_up()
        with pytest.raises(EngineError, match="connection failed"):
            await anext(made.stream(REQUEST))
        await made.close()

    asyncio.run(run())


def test_vllm_says_what_to_do_instead() -> None:
    with pytest.raises(EngineError, match="not part of this version"):
        build_engine(LlmSettings(engine="vllm"), 1, None)
