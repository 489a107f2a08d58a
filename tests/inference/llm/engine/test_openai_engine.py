"""An OpenAI-compatible endpoint, against a small server of our own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from avatar_server.config import LlmSettings
from avatar_server.inference.llm.engine import (
    ChatMessage,
    EngineError,
    LabelRequest,
    LabelScores,
    LlmRequest,
    Priority,
)
from avatar_server.inference.llm.engine.openai import OpenAiEngine

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


LABELS = LabelRequest("router", [ChatMessage("user", "A, B or C?")], ("A", "B", "C"))


def first_token(token: str, **top: float) -> bytes:
    listed = [{"token": name, "logprob": value} for name, value in top.items()]
    told = {"content": [{"token": token, "logprob": top.get(token, 0), "top_logprobs": listed}]}
    choice = {"delta": {"content": token}, "logprobs": told}
    return f"data: {json.dumps({'choices': [choice]})}\n\n".encode()


async def ask_label(
    answer: Callable[[Endpoint, asyncio.StreamWriter], Awaitable[None]],
    request: LabelRequest = LABELS,
    times: int = 1,
) -> tuple[LabelScores, Endpoint]:
    async with Endpoint(answer).serve() as endpoint:
        made = engine(endpoint)
        try:
            for _ in range(times):
                scores = await made.score_labels(request)
            return scores, endpoint
        finally:
            await made.close()


def test_labels_are_scored_from_the_first_tokens_logprobs() -> None:
    async def scored(endpoint: Endpoint, writer: asyncio.StreamWriter) -> None:
        await send(writer, head(), first_token("B", B=-0.5, A=-1.0, x=-3.0, C=-9999.0))
        await send(writer, b"data: [DONE]\n\n")

    scores, endpoint = asyncio.run(ask_label(scored))
    assert scores.exact
    assert scores.best == "B"
    # C was ruled out by the endpoint, or below all that it lists.
    assert dict(scores.logprobs) == {"A": -1.0, "B": -0.5, "C": -3.0}
    (body,) = endpoint.requests
    assert body["structured_outputs"] == {"choice": ["A", "B", "C"]}
    assert (body["logprobs"], body["top_logprobs"], body["max_tokens"]) == (True, 20, 1)
    assert (body["temperature"], body["priority"]) == (0.0, Priority.ROUTE)


def test_an_endpoint_without_logprobs_tells_the_choice_alone() -> None:
    async def plain(endpoint: Endpoint, writer: asyncio.StreamWriter) -> None:
        await send(writer, head(), chunk(" b"), chunk(") the second"), b"data: [DONE]\n\n")

    scores, _ = asyncio.run(ask_label(plain))
    assert not scores.exact
    assert scores.best == "B"
    assert scores.probabilities() == {"A": 0.0, "B": 1.0, "C": 0.0}


def test_a_reply_that_is_no_label_is_an_error() -> None:
    async def other(endpoint: Endpoint, writer: asyncio.StreamWriter) -> None:
        await send(writer, head(), chunk("I think"), b"data: [DONE]\n\n")

    with pytest.raises(EngineError, match="none of the labels"):
        asyncio.run(ask_label(other))


def test_what_the_endpoint_refuses_is_left_out_from_then_on() -> None:
    async def strict(endpoint: Endpoint, writer: asyncio.StreamWriter) -> None:
        body = endpoint.requests[-1]
        for name in ("priority", "structured_outputs"):
            if name in body:
                said = f'{{"error": "Unrecognized request argument: {name}"}}'.encode()
                await send(writer, head("400 Bad Request"), said)
                return
        await send(writer, head(), first_token("A", A=-0.1, B=-3.0, C=-4.0), b"data: [DONE]\n\n")

    scores, endpoint = asyncio.run(ask_label(strict, times=2))
    assert scores.exact
    # Twice refused, once answered, and the second time answered at once.
    assert len(endpoint.requests) == 4
    assert not {"priority", "structured_outputs"} & set(endpoint.requests[-1])
    assert "logprobs" in endpoint.requests[-1]
    assert "chat_template_kwargs" in endpoint.requests[-1]


def test_models_that_only_take_the_newer_fields_are_asked_with_those() -> None:
    async def newer(endpoint: Endpoint, writer: asyncio.StreamWriter) -> None:
        body = endpoint.requests[-1]
        if "max_tokens" in body:
            said = b"Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."
            await send(writer, head("400 Bad Request"), said)
        elif "temperature" in body:
            said = b"Unsupported value: 'temperature' does not support 0.3 with this model."
            await send(writer, head("400 Bad Request"), said)
        else:
            await good(endpoint, writer)

    async def run() -> None:
        async with Endpoint(newer).serve() as endpoint:
            made = engine(endpoint)
            for _ in range(2):
                assert [piece async for piece in made.stream(REQUEST)] == ["Hel", "lo."]
            assert len(endpoint.requests) == 4
            assert endpoint.requests[-1]["max_completion_tokens"] == 7
            assert endpoint.requests[-1]["priority"] == Priority.REPLY
            await made.close()

    asyncio.run(run())


def test_a_refusal_for_another_reason_costs_no_feature() -> None:
    async def too_long(endpoint: Endpoint, writer: asyncio.StreamWriter) -> None:
        if len(endpoint.requests) <= 2:
            said = b'{"error": "the context is too long"}'
            await send(writer, head("400 Bad Request"), said)
        else:
            await good(endpoint, writer)

    async def run() -> None:
        async with Endpoint(too_long).serve() as endpoint:
            made = engine(endpoint)
            with pytest.raises(EngineError, match="context is too long"):
                await anext(made.stream(REQUEST))
            assert len(endpoint.requests) == 2
            assert "priority" not in endpoint.requests[-1]
            assert [piece async for piece in made.stream(REQUEST)] == ["Hel", "lo."]
            assert "priority" in endpoint.requests[-1]
            await made.close()

    asyncio.run(run())


def test_the_endpoints_own_count_of_tokens_is_taken() -> None:
    async def counts(endpoint: Endpoint, writer: asyncio.StreamWriter) -> None:
        usage = {
            "prompt_tokens": 100,
            "completion_tokens": 9,
            "prompt_tokens_details": {"cached_tokens": 80},
        }
        told = f"data: {json.dumps({'choices': [], 'usage': usage})}\n\n".encode()
        await send(writer, head(), chunk("Hel"), chunk("lo."), told, b"data: [DONE]\n\n")

    async def run() -> None:
        async with Endpoint(counts).serve() as endpoint:
            made = engine(endpoint)
            assert [piece async for piece in made.stream(REQUEST)] == ["Hel", "lo."]
            metrics = made.metrics()
            assert (metrics.prompt_tokens, metrics.cached_tokens) == (20, 80)
            assert metrics.reply_tokens == 9
            assert metrics.cached_share == 0.8
            assert metrics.running == 0
            assert (REQUEST.used.prompt, REQUEST.used.cached, REQUEST.used.reply) == (100, 80, 9)
            await made.close()

    asyncio.run(run())
