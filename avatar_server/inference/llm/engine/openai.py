"""Any endpoint that speaks the OpenAI chat API: one's own vLLM, llama.cpp, a hosted service."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Any

import httpx
import msgspec

from avatar_server.config import LlmSettings
from avatar_server.inference.llm.engine.contract import (
    ChatMessage,
    EngineError,
    EngineMetrics,
    LabelRequest,
    LlmRequest,
    MetricsTally,
    Priority,
    TokenCount,
)
from avatar_server.inference.llm.engine.labels import LabelScores, check_labels, from_text, from_top
from avatar_server.inference.memory import MemoryFigure

log = logging.getLogger(__name__)

CONNECT_TIMEOUT_S = 3.0
"""An endpoint that does not even accept a connection by then is down."""
ATTEMPTS = 3
PAUSE_S = 0.2
"""Before the second attempt; doubled before each further one."""
RETRIED_STATUSES = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
MAX_LINE_BYTES = 1_000_000
"""An event longer than this is no chat chunk; reading on would only fill memory."""
TOP_LOGPROBS = 20
"""The most that the API allows."""
LABEL_TOKENS = 64
"""Bound for a label that had to be written out; one token tells of most."""
OPTIONAL_FIELDS: dict[str, Any] = {
    # Engines that think first would be silent for seconds.
    "chat_template_kwargs": {"enable_thinking": False},
    "stream_options": {"include_usage": True},
}
"""Sent until the endpoint refuses them. Besides: `priority`, `structured_outputs`, `logprobs`."""
_DROPPABLE = frozenset(
    {*OPTIONAL_FIELDS, "priority", "structured_outputs", "logprobs", "top_logprobs"}
)
_DROPPED_BY_NAME = frozenset({"temperature", "stop"})
"""What all endpoints know, but not for all of their models: left out only where it is named."""
_IMPOSSIBLE = -1_000.0
"""Log-probability of a token that was ruled out, where the endpoint lists it all the same."""


class _Retry(Exception):
    """This attempt failed in a way that another may not."""


class _Refused(Exception):
    """The endpoint does not like the request's form."""


@dataclass(frozen=True, slots=True)
class _Piece:
    """What one event of the stream tells."""

    text: str = ""
    top: tuple[tuple[str, float], ...] = ()
    """The likeliest tokens for the first place of `text`, with their log-probabilities."""
    usage: dict[str, Any] | None = None


class OpenAiEngine:
    """An `LlmEngine` over HTTP, with streaming. The endpoint caches prompts by itself.

    What only some endpoints know (`priority`, `structured_outputs`, `logprobs`, switching thinking
    off) is sent until the endpoint refuses it, and left out from then on. The key goes into the
    request's header and nowhere else.
    """

    def __init__(
        self, settings: LlmSettings, *, transport: httpx.AsyncBaseTransport | None = None
    ) -> None:
        if not settings.base_url:
            raise EngineError("llm.engine is 'openai': set llm.base_url to the endpoint's address")
        headers = {}
        if settings.api_key is not None:
            headers["Authorization"] = f"Bearer {settings.api_key.get_secret_value()}"
        self._settings = settings
        self._client = httpx.AsyncClient(
            base_url=settings.base_url.rstrip("/") + "/",
            headers=headers,
            timeout=httpx.Timeout(settings.timeout_s, connect=CONNECT_TIMEOUT_S),
            transport=transport,
        )
        self._tally = MetricsTally()
        self._running = 0
        self._refused: set[str] = set()
        self._limit = "max_tokens"
        self.description = f"{settings.model} at {self._client.base_url.host}"

    async def stream(self, request: LlmRequest) -> AsyncGenerator[str, None]:
        body = self._body(request.messages, request.max_tokens, request.priority)
        if request.stop:
            # The API takes at most four.
            body["stop"] = list(request.stop)[:4]
        async with contextlib.aclosing(self._run(body, request.used)) as pieces:
            async for piece in pieces:
                if piece.text:
                    yield piece.text

    async def score_labels(self, request: LabelRequest) -> LabelScores:
        """Exact where the endpoint gives `logprobs`; with vLLM among the labels alone, whose
        probabilities then sum to one. Else the label that the reply begins with.
        """
        check_labels(request.labels)
        self._tally.add(labelled=1)
        longest = max(len(label.encode()) for label in request.labels)
        body = self._body(request.messages, min(longest, LABEL_TOKENS), request.priority)
        body["temperature"] = 0.0
        body |= {
            "structured_outputs": {"choice": list(request.labels)},
            "logprobs": True,
            "top_logprobs": TOP_LOGPROBS,
        }
        text = ""
        async with contextlib.aclosing(self._run(body)) as pieces:
            async for piece in pieces:
                if not text and (scores := from_top(request.labels, piece.top)) is not None:
                    return scores
                text += piece.text
                if (choice := from_text(request.labels, text, whole=False)) is not None:
                    return choice
        if (choice := from_text(request.labels, text)) is not None:
            return choice
        raise EngineError(f"{self.description} answered {text!r}, which is none of the labels")

    async def _run(
        self, body: dict[str, Any], used: TokenCount | None = None
    ) -> AsyncGenerator[_Piece, None]:
        """The answer's pieces, with what there is to say about it counted."""
        used = used or TokenCount()
        self._tally.add(requests=1)
        self._running += 1
        began = time.monotonic()
        deadline = asyncio.get_running_loop().time() + self._settings.timeout_s
        finished = False
        pieces_seen = 0
        try:
            async with contextlib.aclosing(self._attempts(body)) as pieces:
                while True:
                    # Only around our own wait: the reader's time is not the endpoint's.
                    async with asyncio.timeout_at(deadline):
                        piece = await anext(pieces, None)
                    if piece is None:
                        break
                    if piece.usage is not None:
                        self._account(piece.usage, pieces_seen, used)
                        continue
                    pieces_seen += 1
                    used.reply = pieces_seen
                    self._tally.add(reply_tokens=1)
                    yield piece
            finished = True
        except TimeoutError as error:
            finished = True
            self._tally.add(failed=1)
            raise EngineError(
                f"{self.description} did not finish within llm.timeout_s = "
                f"{self._settings.timeout_s:g} s"
            ) from error
        except EngineError:
            finished = True
            self._tally.add(failed=1)
            raise
        finally:
            self._running -= 1
            self._tally.add(reply_s=time.monotonic() - began)
            if not finished:
                self._tally.add(cancelled=1)

    def _account(self, usage: dict[str, Any], counted: int, used: TokenCount) -> None:
        """The endpoint's own count, where it gives one; ours are pieces, not tokens."""
        details = usage.get("prompt_tokens_details") or {}
        used.cached = int(details.get("cached_tokens") or 0)
        used.prompt = int(usage.get("prompt_tokens") or 0)
        used.reply = int(usage.get("completion_tokens") or counted)
        self._tally.add(
            prompt_tokens=used.prompt - used.cached,
            cached_tokens=used.cached,
            reply_tokens=used.reply - counted,
        )

    async def prefill(self, session: str, messages: Sequence[ChatMessage]) -> None:
        del session, messages

    def hold_prefill(self, held: bool) -> None:
        del held

    def forget(self, session: str) -> None:
        del session

    async def warm_up(self) -> None:
        """Open a connection. An endpoint that is down now may be up when it is needed."""
        request = LlmRequest(
            "", [ChatMessage("user", "Hello")], max_tokens=1, priority=Priority.BACKGROUND
        )
        try:
            async for _ in self.stream(request):
                pass
        except EngineError as error:
            log.warning("the language model does not answer yet: %s", error)

    async def close(self) -> None:
        await self._client.aclose()

    def metrics(self) -> EngineMetrics:
        return self._tally.snapshot(running=self._running)

    def memory(self) -> MemoryFigure:
        return MemoryFigure(self._client.base_url.host)

    async def _attempts(self, body: dict[str, Any]) -> AsyncGenerator[_Piece, None]:
        """Tries again where nothing was received yet; what was said cannot be said again."""
        attempt, dropped = 1, set[str]()
        body = {name: value for name, value in body.items() if name not in self._refused}
        while True:
            received = False
            try:
                async with contextlib.aclosing(self._attempt(body)) as pieces:
                    async for piece in pieces:
                        if not received and dropped:
                            self._note_refused(dropped)
                        received = True
                        yield piece
                return
            except _Refused as error:
                if received:
                    raise EngineError(str(error)) from error
                if "max_completion_tokens" in str(error) and "max_tokens" in body:
                    self._limit = "max_completion_tokens"
                    body = {**body, self._limit: body["max_tokens"]}
                    del body["max_tokens"]
                    continue
                names = self._to_drop(body, str(error))
                if not names:
                    raise EngineError(str(error)) from error
                dropped |= names
                body = {name: value for name, value in body.items() if name not in names}
            except _Retry as error:
                if received or attempt == ATTEMPTS:
                    raise EngineError(f"{self.description}: {error}") from error
                log.warning("%s: %s; trying again", self.description, error)
                await asyncio.sleep(PAUSE_S * 2 ** (attempt - 1))
                attempt += 1

    def _to_drop(self, body: dict[str, Any], said: str) -> set[str]:
        """The fields that a refusal is about: those it names, else all that may be left out."""
        ours = set(body) - set(self._settings.options)
        fields = ours & _DROPPABLE
        named = {name for name in fields | (ours & _DROPPED_BY_NAME) if name in said}
        if "logprobs" in named or "top_logprobs" in named:
            named |= fields & {"logprobs", "top_logprobs"}
        return named or fields

    def _note_refused(self, names: set[str]) -> None:
        """Without them it went well: they are not sent again."""
        if new := names - self._refused:
            log.warning("%s does not take %s", self.description, ", ".join(sorted(new)))
        self._refused |= names

    async def _attempt(self, body: dict[str, Any]) -> AsyncGenerator[_Piece, None]:
        try:
            async with self._client.stream("POST", "chat/completions", json=body) as response:
                await self._check(response)
                async for line in _lines(response):
                    if not line.startswith("data:"):
                        continue
                    data = line.removeprefix("data:").strip()
                    if data == "[DONE]":
                        return
                    piece = self._piece(data)
                    if piece.text or piece.top or piece.usage is not None:
                        yield piece
        except httpx.ConnectTimeout as error:
            raise _Retry(f"no connection within {CONNECT_TIMEOUT_S:g} s") from error
        except httpx.TimeoutException as error:
            raise _Retry(f"silent for {self._settings.timeout_s:g} s") from error
        except httpx.TransportError as error:
            raise _Retry(f"the connection failed ({error})") from error

    def _body(
        self, messages: Sequence[ChatMessage], max_tokens: int, priority: int
    ) -> dict[str, Any]:
        optional = {**OPTIONAL_FIELDS, "priority": int(priority)}
        return {
            "model": self._settings.model,
            "messages": [{"role": m.role, "content": m.content} for m in messages],
            self._limit: max_tokens,
            "temperature": self._settings.temperature,
            "stream": True,
            **optional,
            **self._settings.options,
        }

    async def _check(self, response: httpx.Response) -> None:
        if response.status_code == httpx.codes.OK:
            return
        await response.aread()
        said = response.text[:300].strip()
        if response.status_code in RETRIED_STATUSES:
            raise _Retry(f"status {response.status_code}: {said}")
        hints = {
            401: "check llm.api_key",
            403: "check llm.api_key",
            404: "check llm.base_url (it usually ends in /v1) and llm.model",
        }
        hint = hints.get(response.status_code, "check llm.model and llm.options")
        refusal = (
            f"{self.description} refused the request with status {response.status_code}: "
            f"{said} ({hint})"
        )
        if response.status_code in (httpx.codes.BAD_REQUEST, httpx.codes.UNPROCESSABLE_ENTITY):
            raise _Refused(refusal)
        raise EngineError(refusal)

    def _piece(self, data: str) -> _Piece:
        try:
            chunk = msgspec.json.decode(data)
            if error := chunk.get("error"):
                raise EngineError(f"{self.description}: {error}")
            if not (choices := chunk.get("choices")):
                return _Piece(usage=chunk.get("usage"))
            text = (choices[0].get("delta") or {}).get("content")
            told = (choices[0].get("logprobs") or {}).get("content") or [{}]
            top = told[0].get("top_logprobs") or ()
            listed = [(token["token"], float(token["logprob"])) for token in top]
        except (msgspec.DecodeError, AttributeError, KeyError, IndexError, TypeError) as error:
            raise EngineError(
                f"{self.description} sent what is no chat chunk ({error}): {data[:100]!r}"
            ) from error
        return _Piece(
            text if isinstance(text, str) else "",
            tuple(token for token in listed if token[1] > _IMPOSSIBLE),
        )


async def _lines(response: httpx.Response) -> AsyncGenerator[str, None]:
    """Lines of the body, of bounded length."""
    rest = b""
    async for part in response.aiter_bytes():
        *lines, rest = (rest + part).split(b"\n")
        for line in lines:
            yield line.decode("utf-8", "replace").rstrip("\r")
        if len(rest) > MAX_LINE_BYTES:
            raise EngineError(f"the endpoint sent a line of more than {MAX_LINE_BYTES} bytes")
    if rest:
        yield rest.decode("utf-8", "replace")
