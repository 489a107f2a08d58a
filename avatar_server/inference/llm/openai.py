"""Any endpoint that speaks the OpenAI chat API: one's own vLLM, llama.cpp, a hosted service."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import httpx
import msgspec

from avatar_server.config import LlmSettings
from avatar_server.inference.llm.engine import (
    ChatMessage,
    EngineError,
    EngineMetrics,
    LlmRequest,
    MetricsTally,
)

log = logging.getLogger(__name__)

CONNECT_TIMEOUT_S = 3.0
"""An endpoint that does not even accept a connection by then is down."""
ATTEMPTS = 3
PAUSE_S = 0.2
"""Before the second attempt; doubled before each further one."""
RETRIED_STATUSES = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
MAX_LINE_BYTES = 1_000_000
"""An event longer than this is no chat chunk; reading on would only fill memory."""


class _Retry(Exception):
    """This attempt failed in a way that another may not."""


class OpenAiEngine:
    """An `LlmEngine` over HTTP, with streaming. The endpoint caches prompts by itself.

    The key goes into the request's header and nowhere else.
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
        self.description = f"{settings.model} at {self._client.base_url.host}"

    async def stream(self, request: LlmRequest) -> AsyncGenerator[str, None]:
        self._tally.add(requests=1)
        began = time.monotonic()
        deadline = asyncio.get_running_loop().time() + self._settings.timeout_s
        finished = False
        try:
            async with contextlib.aclosing(self._attempts(request)) as pieces:
                while True:
                    # Only around our own wait: the reader's time is not the endpoint's.
                    async with asyncio.timeout_at(deadline):
                        piece = await anext(pieces, None)
                    if piece is None:
                        break
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
            self._tally.add(reply_s=time.monotonic() - began)
            if not finished:
                self._tally.add(cancelled=1)

    async def prefill(self, session: str, messages: Sequence[ChatMessage]) -> None:
        del session, messages

    def forget(self, session: str) -> None:
        del session

    async def warm_up(self) -> None:
        """Open a connection. An endpoint that is down now may be up when it is needed."""
        request = LlmRequest("", [ChatMessage("user", "Hello")], max_tokens=1)
        try:
            async for _ in self.stream(request):
                pass
        except EngineError as error:
            log.warning("the language model does not answer yet: %s", error)

    async def close(self) -> None:
        await self._client.aclose()

    def metrics(self) -> EngineMetrics:
        return self._tally.snapshot()

    async def _attempts(self, request: LlmRequest) -> AsyncGenerator[str, None]:
        """Tries again where nothing was received yet; what was said cannot be said again."""
        for attempt in range(1, ATTEMPTS + 1):
            received = False
            try:
                async with contextlib.aclosing(self._attempt(request)) as pieces:
                    async for piece in pieces:
                        received = True
                        yield piece
                return
            except _Retry as error:
                if received or attempt == ATTEMPTS:
                    raise EngineError(f"{self.description}: {error}") from error
                log.warning("%s: %s; trying again", self.description, error)
                await asyncio.sleep(PAUSE_S * 2 ** (attempt - 1))

    async def _attempt(self, request: LlmRequest) -> AsyncGenerator[str, None]:
        body = self._body(request)
        try:
            async with self._client.stream("POST", "chat/completions", json=body) as response:
                await self._check(response)
                async for line in _lines(response):
                    if not line.startswith("data:"):
                        continue
                    data = line.removeprefix("data:").strip()
                    if data == "[DONE]":
                        return
                    if piece := self._piece(data):
                        yield piece
        except httpx.ConnectTimeout as error:
            raise _Retry(f"no connection within {CONNECT_TIMEOUT_S:g} s") from error
        except httpx.TimeoutException as error:
            raise _Retry(f"silent for {self._settings.timeout_s:g} s") from error
        except httpx.TransportError as error:
            raise _Retry(f"the connection failed ({error})") from error

    def _body(self, request: LlmRequest) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self._settings.model,
            "messages": [{"role": m.role, "content": m.content} for m in request.messages],
            "max_tokens": request.max_tokens,
            "temperature": self._settings.temperature,
            "stream": True,
            **self._settings.options,
        }
        if request.stop:
            # The API takes at most four.
            body["stop"] = list(request.stop)[:4]
        return body

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
        raise EngineError(
            f"{self.description} refused the request with status {response.status_code}: "
            f"{said} ({hint})"
        )

    def _piece(self, data: str) -> str:
        try:
            chunk = msgspec.json.decode(data)
            if error := chunk.get("error"):
                raise EngineError(f"{self.description}: {error}")
            choices = chunk.get("choices") or [{}]
            text = (choices[0].get("delta") or {}).get("content")
        except (msgspec.DecodeError, AttributeError, KeyError, IndexError, TypeError) as error:
            raise EngineError(
                f"{self.description} sent what is no chat chunk ({error}): {data[:100]!r}"
            ) from error
        return text if isinstance(text, str) else ""


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
