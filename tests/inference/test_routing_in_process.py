"""Routes in the real inference process, with the real models."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest

from avatar_server.config import load_settings
from avatar_server.models import ModelStore, default_models
from avatar_server.protocol.messages import HistoryItem, OpenSession, Respond, SessionOpened
from tests.inference.test_inference_process import OVERRIDES, Peer, running


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def routes() -> list[dict[str, Any]]:
    return [
        {
            "name": "hours",
            "description": "asks when we are open",
            "examples": [
                "when do you open",
                "what are your opening hours",
                "are you open on sundays",
                "what time do you close",
                "何時まで開いていますか",
            ],
            "say": {"en": "From nine to five.", "ja": "九時から五時までです。"},
        },
        {
            "name": "order",
            "description": "asks where an order is",
            "examples": ["where is my order", "track my parcel", "has my order been sent"],
            "tool": {
                "url": f"http://127.0.0.1:{closed_port()}/orders",
                "arguments": {"number": {"pattern": r"(\d+)", "ask": "Which order number?"}},
                "fallback": "I can't reach the shop.",
            },
        },
    ]


@pytest.fixture
def folder(tmp_path: Path, model_store: ModelStore) -> Path:
    for name in default_models(load_settings("cpu", OVERRIDES)):
        model_store.path(name)
    return tmp_path


def test_a_conversation_takes_the_routes_that_were_meant(folder: Path) -> None:
    async def test() -> None:
        async with running(folder) as inference:
            await inference.ready()
            avatar = inference.peer("one")
            await avatar.send(
                OpenSession(
                    session="one",
                    avatar="tester",
                    persona="You are a guide.",
                    voice="piper-joe",
                    routes=routes(),
                )
            )
            opened = await avatar.receive()
            assert isinstance(opened, SessionOpened)
            history: list[HistoryItem] = []
            for number, (text, said) in enumerate(
                [
                    ("What time do you open on Saturday?", "From nine to five."),
                    ("Sorry, what did you say?", "From nine to five."),
                    ("Where is my order?", "Which order number?"),
                    ("Where is my order 4711?", "I can't reach the shop."),
                    ("Stop.", ""),
                    ("Goodbye, see you tomorrow.", None),
                ]
            ):
                end = await asked(avatar, str(number), text, history)
                assert "route" in end.stages_ms
                if said is not None:
                    assert end.text == said, text
                else:
                    assert "bye" in end.text or "soon" in end.text
                history.append(HistoryItem(role="user", text=text))
                if end.text:
                    history.append(HistoryItem(role="assistant", text=end.text))

    asyncio.run(test())


async def asked(avatar: Peer, job: str, text: str, history: list[HistoryItem]) -> Any:
    await avatar.send(Respond(session="one", job=job, text=text, history=history))
    _, end = await avatar.reply(job)
    return end
