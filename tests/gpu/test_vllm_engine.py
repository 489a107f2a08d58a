"""The real engine behind the product's interface, with a tiny random model of its class."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from avatar_server.config import LlmSettings
from avatar_server.inference.llm.engine import (
    ChatMessage,
    EngineDeadError,
    EngineError,
    LabelRequest,
    LlmRequest,
    Priority,
)

Run = Callable[[Coroutine[Any, Any, Any]], Any]

SEQS = 4
OPTIONS = {
    "enforce_eager": True,
    "kv_cache_memory_bytes": 256 << 20,
    "max_num_seqs": SEQS,
    "max_num_batched_tokens": 1_024,
    "max_logprobs": -1,
}
SETTINGS = LlmSettings(
    engine="vllm", context_tokens=2_048, temperature=0.0, timeout_s=120.0, options=OPTIONS
)
# Of a prompt only the state at its last whole block of 128 tokens is kept (at 1,024 here), so what
# two prompts share must reach beyond that.
LONG = "You are a helpful assistant. You like short answers, as short as they can be. " * 43


@pytest.fixture(scope="module")
def engine(tiny_model: Path, run: Run) -> Iterator[Any]:
    from avatar_server.inference.llm.engine.vllm import VllmEngine

    # As the inference process makes it: on a thread, while the loop goes on.
    made = run(asyncio.to_thread(VllmEngine, tiny_model, SETTINGS, 1))
    run(made.warm_up())
    yield made
    run(made.close())


def request(
    text: str = "What is the capital of France?",
    tokens: int = 12,
    session: str = "s",
    priority: int = Priority.REPLY,
    system: str = "",
) -> LlmRequest:
    chat = [ChatMessage("system", system)] if system else []
    return LlmRequest(session, [*chat, ChatMessage("user", text)], tokens, priority=priority)


async def ask(engine: Any, asked: LlmRequest) -> list[str]:
    return [piece async for piece in engine.stream(asked)]


async def until(true: Callable[[], bool], seconds: float = 60.0) -> None:
    for _ in range(int(seconds / 0.02)):
        if true():
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"not within {seconds:g} s")


def test_the_engine_is_set_up_as_it_was_told(engine: Any) -> None:
    config = engine._engine.vllm_config
    assert config.model_config.architecture == "Qwen3_5MoeForConditionalGeneration"
    assert config.scheduler_config.policy == "priority"
    assert config.scheduler_config.max_num_seqs == SEQS
    assert config.scheduler_config.max_num_batched_tokens == 1_024
    assert config.cache_config.enable_prefix_caching
    assert config.cache_config.kv_cache_memory_bytes == 256 << 20
    assert config.model_config.max_model_len == 2_048
    assert config.model_config.multimodal_config.language_model_only
    assert engine.kv_tokens > 2_048


def test_pieces_come_one_by_one_and_in_order(engine: Any, run: Run) -> None:
    async def check() -> None:
        tokenizer = engine._engine.get_tokenizer()
        pieces = await ask(engine, request(tokens=24))
        assert len(pieces) > 5
        again = await ask(engine, request(tokens=24))
        assert "".join(again) == "".join(pieces)
        shorter = await ask(engine, request(tokens=6))
        assert "".join(pieces).startswith("".join(shorter).rstrip("\ufffd"))
        assert len(tokenizer.encode("".join(shorter))) >= 1

    run(check())


def test_the_model_is_told_not_to_think(engine: Any) -> None:
    from vllm import SamplingParams

    ids = engine._tokens([ChatMessage("user", "Hi")], SamplingParams())
    text = engine._engine.get_tokenizer().decode(ids)
    assert text == (
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
    )


def test_two_sessions_are_answered_at_once(engine: Any, run: Run) -> None:
    async def check() -> None:
        order: list[str] = []

        async def listen(name: str, text: str) -> None:
            async for _ in engine.stream(request(text, tokens=40, session=name)):
                order.append(name)

        before = engine.metrics()
        await asyncio.gather(listen("one", "What is one?"), listen("two", "And what is two?"))
        # Neither waited for the other to end.
        assert "two" in order[: len(order) // 2]
        assert "one" in order[: len(order) // 2]
        assert engine.metrics().reply_tokens - before.reply_tokens == 80

    run(check())


def test_whoever_is_more_urgent_is_served_first(engine: Any, run: Run) -> None:
    async def check() -> None:
        served: list[str] = []

        async def one(name: str, priority: int, tokens: int) -> None:
            asked = request(name, tokens, name, priority)
            async for _ in engine.stream(asked):
                if name not in served:
                    served.append(name)

        # All places are taken, by replies of very different length: one place is free at a time.
        full = [
            asyncio.create_task(one(f"busy {n}", Priority.REPLY, 60 * n))
            for n in range(1, SEQS + 1)
        ]
        await until(lambda: len(served) == SEQS)
        waiting = []
        for name, priority in (
            ("read ahead", Priority.BACKGROUND),
            ("speculative", Priority.SPECULATIVE),
            ("reply", Priority.REPLY),
            ("route", Priority.ROUTE),
        ):
            waiting.append(asyncio.create_task(one(name, priority, 40)))
            await asyncio.sleep(0.05)
        await asyncio.gather(*full, *waiting)
        assert served[SEQS:] == ["route", "reply", "speculative", "read ahead"]

    run(check())


def test_a_closed_stream_gives_its_place_to_the_next(engine: Any, run: Run) -> None:
    async def check() -> None:
        before = engine.metrics()
        streams = [engine.stream(request(f"story {n}", 1_500, f"story {n}")) for n in range(SEQS)]
        for stream in streams:
            await anext(stream)
        fifth = asyncio.create_task(ask(engine, request("short", 4, "short")))
        await asyncio.sleep(0.5)
        assert not fifth.done()
        await streams[0].aclose()
        assert len(await asyncio.wait_for(fifth, 30)) >= 1
        for stream in streams[1:]:
            await stream.aclose()
        assert engine.metrics().cancelled - before.cancelled == SEQS
        await until(lambda: engine._stats.running == 0 and engine.metrics().running == 0)

    run(check())


def test_a_cancelled_reader_ends_its_request(engine: Any, run: Run) -> None:
    async def check() -> None:
        reading = asyncio.create_task(ask(engine, request("a story", 1_500, "story")))
        await until(lambda: engine._stats.running == 1)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        await ask(engine, request(tokens=2))
        await until(lambda: engine._stats.running == 0)

    run(check())


def test_labels_scored_in_one_step_are_those_of_the_whole_vocabulary(engine: Any, run: Run) -> None:
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    async def check() -> None:
        labels = ("A", "B", "C", "D")
        asked = LabelRequest("router", request("A, B, C or D?", system=LONG).messages, labels)
        before = engine.metrics()
        scores = await engine.score_labels(asked)
        assert scores.exact
        after = engine.metrics()
        assert (after.labelled - before.labelled, after.reply_tokens - before.reply_tokens) == (
            1,
            1,
        )
        params = SamplingParams(
            max_tokens=1, temperature=0, logprobs=-1, output_kind=RequestOutputKind.FINAL_ONLY
        )
        ids = engine._tokens(asked.messages, params)
        async for output in engine._engine.generate({"prompt_token_ids": ids}, params, "full"):
            told = output.outputs[0].logprobs[0]
        assert len(told) == engine._engine.model_config.get_vocab_size()
        tokenizer = engine._engine.get_tokenizer()
        whole = {label: told[tokenizer.encode(label)[0]].logprob for label in labels}
        assert dict(scores.logprobs) == pytest.approx(whole, abs=0.02)
        assert scores.best == max(whole, key=lambda label: whole[label])

    run(check())


def test_labels_of_several_tokens_are_chosen_by_constrained_decoding(engine: Any, run: Run) -> None:
    async def check() -> None:
        labels = ("turn on the light", "turn off the light", "what is the capital")
        scores = await engine.score_labels(LabelRequest("router", request().messages, labels))
        assert not scores.exact
        assert scores.best in labels
        with pytest.raises(ValueError, match="two or more different"):
            await engine.score_labels(LabelRequest("router", request().messages, ("A",)))

    run(check())


def test_a_prompt_that_was_read_is_not_read_again(engine: Any, run: Run) -> None:
    async def check() -> None:
        system = "Persona of this test. " + LONG
        first = request("Hello!", 2, "cached", system=system)
        before = engine.metrics()
        await ask(engine, first)
        read = engine.metrics()
        await ask(engine, request("And hello again!", 2, "cached", system=system))
        again = engine.metrics()
        length = read.prompt_tokens - before.prompt_tokens
        assert length > 1_024
        assert again.cached_tokens - read.cached_tokens == 1_024
        assert again.prompt_tokens - read.prompt_tokens < length // 2
        assert 0 < again.cached_share < 1

    run(check())


def test_a_prompt_read_ahead_is_cached_for_the_reply(engine: Any, run: Run) -> None:
    async def check() -> None:
        system = "Another persona. " + LONG
        await engine.prefill("ahead", [ChatMessage("system", system)])
        await until(lambda: not engine._reading)
        before = engine.metrics()
        await ask(engine, request("Hello!", 2, "ahead", system=system))
        assert engine.metrics().cached_tokens - before.cached_tokens == 1_024

    run(check())


def test_metrics_and_memory_are_told(engine: Any) -> None:
    metrics = engine.metrics()
    assert metrics.requests > 10
    assert metrics.failed == metrics.restarts == 0
    assert metrics.prompt_s > 0
    assert metrics.reply_tokens_per_s > 1
    assert 0.0 <= metrics.cache_used <= 1.0
    figure = engine.memory()
    assert figure.measured
    assert figure.cache == 256 << 20
    assert 1 << 20 < figure.weights < 8 << 20
    assert figure.total > figure.weights + figure.cache


def test_a_prompt_longer_than_the_context_is_an_error_in_words(engine: Any, run: Run) -> None:
    async def check() -> None:
        failed = engine.metrics().failed
        with pytest.raises(EngineError, match="context size"):
            await ask(engine, request("word " * 3_000))
        assert engine.metrics().failed - failed == 1
        assert await ask(engine, request(tokens=2))

    run(check())


def test_an_unknown_option_is_an_error_in_words(tiny_model: Path) -> None:
    from avatar_server.inference.llm.engine.vllm import VllmEngine

    wrong = SETTINGS.model_copy(update={"options": {"max_sequences": 3}})
    with pytest.raises(EngineError, match="vLLM knows no max_sequences"):
        VllmEngine(tiny_model, wrong, sessions=1)


def test_a_dead_engine_is_reported_at_once_and_started_again(engine: Any, run: Run) -> None:
    """The last test of this module, as it takes the time of a second start."""

    async def check() -> None:
        stream = engine.stream(request("a story", 1_500, "story"))
        await anext(stream)
        for pid in engine.pids:
            os.kill(pid, signal.SIGKILL)
        died_at = time.monotonic()
        with pytest.raises(EngineDeadError, match="being started again"):
            async for _ in stream:
                pass
        assert time.monotonic() - died_at < 15
        with pytest.raises(EngineDeadError, match="being started again"):
            await ask(engine, request())
        async with asyncio.timeout(300):
            while True:
                with contextlib.suppress(EngineDeadError):
                    answer = await ask(engine, request())
                    break
                await asyncio.sleep(1)
        assert answer
        assert engine.metrics().restarts == 1

    run(check())
