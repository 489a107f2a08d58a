"""The engine for endpoints, against vLLM's own OpenAI-compatible server."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from avatar_server.config import LlmSettings
from avatar_server.inference.llm.engine import ChatMessage, LabelRequest, LlmRequest, Priority
from avatar_server.inference.llm.engine.openai import OpenAiEngine

Run = Callable[[Coroutine[Any, Any, Any]], Any]

START_S = 300.0
# Of a prompt only the state at its last whole block of 128 tokens is kept (at 1,024 here), so what
# two prompts share must reach beyond that.
LONG = "You are a helpful assistant. You like short answers, as short as they can be. " * 43


@dataclass
class Server:
    process: subprocess.Popen[bytes]
    url: str
    log: Path


@pytest.fixture(scope="module")
def server(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = tmp_path_factory.mktemp("server") / "log"
    command = [
        *(sys.executable, "-m", "vllm.entrypoints.openai.api_server"),
        *("--model", str(tiny_model), "--served-model-name", "tiny"),
        *("--host", "127.0.0.1", "--port", str(port)),
        *("--max-model-len", "2048", "--max-num-seqs", "4", "--max-num-batched-tokens", "1024"),
        *("--kv-cache-memory-bytes", str(256 << 20), "--enforce-eager", "--language-model-only"),
        *("--scheduling-policy", "priority", "--enable-prompt-tokens-details"),
    ]
    environment = os.environ | {
        "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
        # Its engine is then guarded like our own.
        "AVATAR_SERVER_VLLM": "1",
    }
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, env=environment, stdout=output, stderr=output, stdin=subprocess.DEVNULL
        )
    made = Server(process, f"http://127.0.0.1:{port}/v1", log)
    try:
        _wait(made)
        yield made
    finally:
        process.kill()
        process.wait()


def _wait(server: Server) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        if server.process.poll() is not None:
            break
        try:
            with urllib.request.urlopen(server.url + "/models", timeout=2):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    pytest.fail(f"the server did not start:\n{server.log.read_text(errors='replace')[-3000:]}")


@pytest.fixture
def engine(server: Server, run: Run) -> Iterator[OpenAiEngine]:
    made = OpenAiEngine(
        LlmSettings(
            engine="openai", model="tiny", base_url=server.url, temperature=0.0, timeout_s=120.0
        )
    )
    yield made
    run(made.close())


def test_a_reply_is_streamed_and_nothing_is_refused(engine: OpenAiEngine, run: Run) -> None:
    async def check() -> None:
        request = LlmRequest("s", [ChatMessage("user", "Hello!")], 24, priority=Priority.REPLY)
        pieces = [piece async for piece in engine.stream(request)]
        assert len(pieces) > 5
        again = [piece async for piece in engine.stream(request)]
        assert "".join(again) == "".join(pieces)
        assert not engine._refused
        metrics = engine.metrics()
        assert metrics.reply_tokens == 48
        assert (metrics.failed, metrics.running) == (0, 0)

    run(check())


def test_what_was_read_before_is_counted_as_cached(engine: OpenAiEngine, run: Run) -> None:
    async def check() -> None:
        for text in ("Hello!", "Hello again!"):
            chat = [ChatMessage("system", LONG), ChatMessage("user", text)]
            async for _ in engine.stream(LlmRequest("s", chat, 2)):
                pass
        assert engine.metrics().cached_tokens == 1_024

    run(check())


def test_labels_are_scored_by_the_servers_logprobs(engine: OpenAiEngine, run: Run) -> None:
    async def check() -> None:
        request = LabelRequest("router", [ChatMessage("user", "A, B or C?")], ("A", "B", "C"))
        scores = await engine.score_labels(request)
        assert scores.exact
        assert not engine._refused
        # The server scores among the labels only.
        assert scores.mass == pytest.approx(1.0, abs=0.01)
        assert dict(scores.probabilities()) == pytest.approx(
            dict((await engine.score_labels(request)).probabilities()), abs=0.02
        )

    run(check())


def test_long_labels_are_chosen_by_the_servers_structured_outputs(
    engine: OpenAiEngine, run: Run
) -> None:
    async def check() -> None:
        labels = ("turn on", "turn off")
        request = LabelRequest("router", [ChatMessage("user", "Which?")], labels)
        scores = await engine.score_labels(request)
        assert scores.best in labels
        assert not engine._refused

    run(check())


def test_a_closed_stream_ends_the_servers_request(engine: OpenAiEngine, run: Run) -> None:
    async def check() -> None:
        stream = engine.stream(LlmRequest("s", [ChatMessage("user", "A story")], 1_500))
        await anext(stream)
        await stream.aclose()
        assert engine.metrics().cancelled == 1
        for _ in range(100):
            if not await asyncio.to_thread(_running, engine):
                return
            await asyncio.sleep(0.2)
        raise AssertionError("the server goes on with a request that nobody reads")

    run(check())


def _running(engine: OpenAiEngine) -> float:
    root = str(engine._client.base_url).removesuffix("/v1/")
    with urllib.request.urlopen(root + "/metrics", timeout=5) as answer:
        lines = answer.read().decode().splitlines()
    return sum(
        float(line.split()[-1]) for line in lines if line.startswith("vllm:num_requests_running{")
    )


def test_an_engine_does_not_outlive_a_server_that_was_killed(server: Server) -> None:
    """The last test of this module. vLLM alone leaves its engine behind, with the GPU's memory."""
    children = psutil.Process(server.process.pid).children(recursive=True)
    assert any("EngineC" in child.name() or child.memory_info().rss > 3e8 for child in children)
    os.kill(server.process.pid, signal.SIGKILL)
    server.process.wait()
    gone, alive = psutil.wait_procs(children, timeout=15)
    assert gone
    assert not alive
