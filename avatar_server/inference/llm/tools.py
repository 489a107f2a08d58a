"""HTTP calls that an operator allowed, and what is said of their answers."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx
import msgspec

from avatar_server.avatar_routes import Tool, in_language

log = logging.getLogger(__name__)

MAX_ANSWER_BYTES = 65_536
"""More is no sentence to be spoken, and would only fill memory."""
MAX_SPOKEN_CHARS = 600
"""About forty seconds of speech."""
MAX_ARGUMENT_CHARS = 200

_FIELD = re.compile(r"\{(\w+(?:\.\w+)*)\}")

Value = str | int | float | bool


class ToolError(RuntimeError):
    """A call did not give what can be spoken; the message is for the log."""


@dataclass(frozen=True, slots=True)
class Missing:
    """A required argument that the viewer did not say; `ask` is what to say then."""

    name: str
    ask: str


def arguments(tool: Tool, text: str, resolved: str, language: str) -> dict[str, Value] | Missing:
    """The tool's arguments out of the viewer's words.

    `text` comes before `resolved`, the whole request, so that a change counts and not what it
    changes. Nothing that the operator did not allow is in the result.
    """
    found: dict[str, Value] = {}
    for name, argument in tool.arguments.items():
        value = argument.find(text)
        if value is None:
            value = argument.find(resolved)
        if value is not None:
            found[name] = value[:MAX_ARGUMENT_CHARS] if isinstance(value, str) else value
        elif argument.required:
            ask = argument.ask or {
                "en": f"Which {name.replace('_', ' ')}, please?",
                "ja": "もう少し詳しく教えてください。",
            }
            return Missing(name, in_language(ask, language))
    return found


class ToolCaller:
    """Calls tools. One for a process: it keeps connections open."""

    def __init__(self, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._client = httpx.AsyncClient(
            transport=transport, follow_redirects=False, trust_env=False, timeout=None
        )

    async def speak(self, tool: Tool, values: Mapping[str, Any], language: str) -> str:
        """Call it, and return what is to be said: its answer in words, or its fallback.

        Never raises for what the other side does, and never takes longer than its timeout.
        """
        try:
            body = await self._call(tool, values)
            return _spoken(in_language(tool.speak, language), body)
        except (ToolError, httpx.HTTPError, httpx.InvalidURL, TimeoutError) as error:
            # Without the arguments: they are a viewer's words.
            log.warning("the tool at %s failed: %r", tool.url.host, error)
            return in_language(tool.fallback, language)

    async def close(self) -> None:
        await self._client.aclose()

    async def _call(self, tool: Tool, values: Mapping[str, Any]) -> Any:
        request = self._client.build_request(
            tool.method,
            str(tool.url),
            params={**tool_query(tool), **values} if tool.method == "GET" else None,
            json=dict(values) if tool.method == "POST" else None,
            headers=tool.sent_headers(),
        )
        async with asyncio.timeout(tool.timeout_s):
            response = await self._client.send(request, stream=True)
            try:
                if response.status_code != httpx.codes.OK:
                    raise ToolError(f"it answered {response.status_code}")
                data = b""
                async for part in response.aiter_bytes():
                    data += part
                    if len(data) > MAX_ANSWER_BYTES:
                        raise ToolError(f"its answer is longer than {MAX_ANSWER_BYTES} bytes")
            finally:
                await response.aclose()
        if "json" in response.headers.get("content-type", ""):
            try:
                return msgspec.json.decode(data)
            except msgspec.DecodeError as error:
                raise ToolError(f"its answer is no JSON: {error}") from error
        return {"text": data.decode(response.encoding or "utf-8", "replace")}


def tool_query(tool: Tool) -> dict[str, str]:
    """The query that the configured address has by itself."""
    return dict(tool.url.query_params())


def _spoken(words: str, body: Any) -> str:
    """`words` with its fields filled from `body`. Raises `ToolError` where one is missing."""

    def fill(match: re.Match[str]) -> str:
        value = body
        for key in match[1].split("."):
            value = value.get(key) if isinstance(value, dict) else None
        if value is None or isinstance(value, dict | list):
            raise ToolError(f"its answer has no field {match[1]!r}")
        return str(value)

    said = " ".join(_FIELD.sub(fill, words).split())
    if not said:
        raise ToolError("its answer is empty")
    return said[:MAX_SPOKEN_CHARS]
