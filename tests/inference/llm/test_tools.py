"""Tool calls: what is sent, what is spoken, and what happens when the other side misbehaves."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from avatar_server.avatar_routes import Tool
from avatar_server.inference.llm.tools import MAX_ANSWER_BYTES, Missing, ToolCaller, arguments

ORDERS = Tool.model_validate(
    {
        "url": "https://shop.example/v1/orders?shop=3",
        "arguments": {
            "number": {"pattern": r"\b(\d{3,6})\b", "ask": {"en": "Which number?"}},
            "lang": {"value": "en"},
            "speed": {"choices": ["express", "normal"], "required": False},
        },
        "speak": {"en": "Order {number} is {state.name}.", "ja": "{number}番は{state.name}です。"},
        "fallback": "I can't reach the shop.",
        "timeout_s": 0.2,
    }
)


def test_arguments_are_those_that_the_operator_allowed_and_no_others() -> None:
    text = "where is order 4711 set admin=true and shop to 9"
    assert arguments(ORDERS, text, text, "en") == {"number": "4711", "lang": "en"}


def test_the_change_counts_before_what_it_changes() -> None:
    found = arguments(ORDERS, "and 815", "where is order 4711, and 815", "en")
    assert isinstance(found, dict)
    assert found["number"] == "815"
    found = arguments(ORDERS, "by express", "where is order 4711, by express", "en")
    assert found == {"number": "4711", "lang": "en", "speed": "express"}


def test_a_missing_argument_is_asked_for() -> None:
    assert arguments(ORDERS, "where is it", "where is it", "en") == Missing(
        "number", "Which number?"
    )


def speak(
    tool: Tool,
    handler: Callable[[httpx.Request], Any],
    values: dict[str, Any],
    language: str = "en",
) -> str:
    async def run() -> str:
        caller = ToolCaller(httpx.MockTransport(handler))
        try:
            return await caller.speak(tool, values, language)
        finally:
            await caller.close()

    return asyncio.run(run())


def test_a_get_sends_its_arguments_as_a_query_and_the_answer_is_spoken() -> None:
    asked: list[httpx.Request] = []

    def handler(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return httpx.Response(200, json={"number": 4711, "state": {"name": "on its way"}})

    values = {"number": "4711&shop=9#/../x"}
    assert speak(ORDERS, handler, values) == "Order 4711 is on its way."
    assert speak(ORDERS, handler, values, "ja") == "4711番はon its wayです。"
    url = asked[0].url
    assert (url.scheme, url.host, url.path) == ("https", "shop.example", "/v1/orders")
    assert dict(url.params) == {"shop": "3", "number": "4711&shop=9#/../x"}


def test_a_post_sends_them_as_json_and_plain_text_is_spoken() -> None:
    tool = Tool.model_validate({"url": "http://lamp.example/", "method": "POST"})

    def handler(request: httpx.Request) -> httpx.Response:
        assert json.loads(request.content) == {"room": "hall"}
        return httpx.Response(200, text="  The hall\n is lit. ")

    assert speak(tool, handler, {"room": "hall"}) == "The hall is lit."


async def _slow(request: httpx.Request) -> httpx.Response:
    await asyncio.sleep(30)
    return httpx.Response(200)


def _unreachable(request: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError("refused", request=request)


@pytest.mark.parametrize(
    "handler",
    [
        _slow,
        _unreachable,
        lambda request: httpx.Response(500, json={"number": 1, "state": {"name": "x"}}),
        lambda request: httpx.Response(302, headers={"Location": "http://169.254.169.254/"}),
        lambda request: httpx.Response(200, json={"number": 1}),
        lambda request: httpx.Response(200, json={"number": 1, "state": {"name": {"deep": 1}}}),
        lambda request: httpx.Response(200, content=b"{", headers={"Content-Type": "text/json"}),
        lambda request: httpx.Response(200, content=b"x" * (MAX_ANSWER_BYTES + 1)),
    ],
)
def test_whatever_goes_wrong_the_fallback_is_spoken(handler: Any) -> None:
    assert speak(ORDERS, handler, {"number": "4711"}) == "I can't reach the shop."


def test_a_redirect_is_not_followed() -> None:
    hosts: list[str] = []

    def handler(request: httpx.Request) -> httpx.Response:
        hosts.append(request.url.host)
        return httpx.Response(307, headers={"Location": "https://evil.example/"})

    speak(ORDERS, handler, {"number": "4711"})
    assert hosts == ["shop.example"]
