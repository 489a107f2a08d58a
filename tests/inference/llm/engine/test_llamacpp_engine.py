"""llama.cpp in this process, with the embedded model."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from avatar_server.config import LlmSettings
from avatar_server.inference.llm.engine import (
    ChatMessage,
    EngineError,
    LabelRequest,
    LlmRequest,
)
from avatar_server.inference.llm.engine.llamacpp import LlamaCppEngine
from avatar_server.models import ModelStore

SYSTEM = ChatMessage("system", "You are a helpful assistant. " + "You like short answers. " * 20)
SETTINGS = LlmSettings(temperature=0.0)


@pytest.fixture(scope="module")
def model(model_store: ModelStore) -> Path:
    return model_store.path("smollm2-135m-instruct")


@contextlib.asynccontextmanager
async def engine(model: Path, sessions: int = 1) -> AsyncIterator[LlamaCppEngine]:
    made = LlamaCppEngine(model, SETTINGS, sessions)
    try:
        yield made
    finally:
        await made.close()


async def ask(made: LlamaCppEngine, text: str, session: str = "s", tokens: int = 8) -> str:
    request = LlmRequest(session, [SYSTEM, ChatMessage("user", text)], tokens)
    return "".join([piece async for piece in made.stream(request)])


def test_it_answers_and_reads_a_sessions_prompt_only_once(model: Path) -> None:
    async def run() -> None:
        async with engine(model) as made:
            assert "Paris" in await ask(made, "What is the capital of France?", tokens=16)
            first = made.metrics()
            await ask(made, "And of Spain?")
            second = made.metrics()
            assert first.prompt_tokens > 100
            assert second.prompt_tokens - first.prompt_tokens < 30
            assert second.cached_tokens - first.cached_tokens > 100

    asyncio.run(run())


def test_a_request_tells_what_it_took_also_where_its_reader_ended_it(model: Path) -> None:
    async def run() -> None:
        async with engine(model) as made:
            whole = LlmRequest("s", [SYSTEM, ChatMessage("user", "Hello!")], 6)
            pieces = [piece async for piece in made.stream(whole)]
            assert whole.used.prompt > 100
            assert whole.used.cached == 0
            assert len(pieces) <= whole.used.reply <= 6
            ended = LlmRequest("s", [SYSTEM, ChatMessage("user", "Tell me a story.")], 60)
            async with contextlib.aclosing(made.stream(ended)) as stream:
                async for _ in stream:
                    break
            assert ended.used.prompt > 100
            assert ended.used.cached > 90
            assert 0 < ended.used.reply < 60

    asyncio.run(run())


def test_a_prompt_read_ahead_is_not_read_again(model: Path) -> None:
    async def run() -> None:
        async with engine(model) as made:
            await made.prefill("s", [SYSTEM])
            for _ in range(6_000):
                if made.metrics().prompt_tokens >= 100:
                    break
                await asyncio.sleep(0.01)
            before = made.metrics().prompt_tokens
            await ask(made, "Hello!")
            assert made.metrics().prompt_tokens - before < 30

    asyncio.run(run())


def test_nothing_is_read_ahead_while_it_is_held(model: Path) -> None:
    async def run() -> None:
        async with engine(model) as made:
            long = ChatMessage("system", "You like dogs, cats and cows. " * 60)
            await made.prefill("s", [long])
            await asyncio.sleep(0.05)
            made.hold_prefill(True)
            await asyncio.sleep(0.7)  # The step that ran ends.
            used = time.process_time()
            await asyncio.sleep(0.5)
            assert time.process_time() - used < 0.2
            assert made.metrics().cancelled == 1
            made.hold_prefill(False)
            for _ in range(6_000):
                if made.metrics().prompt_tokens:
                    break
                await asyncio.sleep(0.01)
            # What was read before the break is not lost, nor is any of it read again.
            stream = made.stream(LlmRequest("s", [long, ChatMessage("user", "Hi")], 2))
            async with contextlib.aclosing(stream):
                async for _ in stream:
                    pass
            assert 300 < made.metrics().prompt_tokens < 650

    asyncio.run(run())


def test_closing_a_stream_stops_the_decoding_and_frees_the_slot(model: Path) -> None:
    async def run() -> None:
        async with engine(model) as made:
            request = LlmRequest("s", [ChatMessage("user", "Tell a very long story.")], 1_500)
            stream = made.stream(request)
            for _ in range(3):
                await anext(stream)
            await stream.aclose()
            await asyncio.sleep(0.3)  # The step that ran ends.
            used = time.process_time()
            await asyncio.sleep(0.5)
            assert time.process_time() - used < 0.2
            assert made.metrics().cancelled == 1
            assert await ask(made, "Hello!")

    asyncio.run(run())


def test_a_cancelled_reader_stops_it_while_the_prompt_is_still_being_read(model: Path) -> None:
    async def run() -> None:
        async with engine(model) as made:
            long = ChatMessage("user", "This is a sentence about dogs and cats. " * 150)
            request = LlmRequest("s", [long], 5)

            async def read() -> None:
                async for _ in made.stream(request):
                    pass

            reading = asyncio.create_task(read())
            await asyncio.sleep(0.2)
            reading.cancel()
            await asyncio.wait([reading])
            await asyncio.sleep(1.0)
            used = time.process_time()
            await asyncio.sleep(0.5)
            assert time.process_time() - used < 0.2
            assert made.metrics().prompt_tokens == 0

    asyncio.run(run())


def test_two_sessions_are_answered_at_once_without_mixing(model: Path) -> None:
    async def run() -> None:
        async with engine(model, sessions=2) as made:
            france, italy = await asyncio.gather(
                ask(made, "What is the capital of France?", "one", 16),
                ask(made, "What is the capital of Italy?", "two", 16),
            )
            assert "Paris" in france
            assert "Rome" in italy

    asyncio.run(run())


def test_a_prompt_longer_than_the_context_is_an_error_in_words(model: Path) -> None:
    async def run() -> None:
        async with engine(model) as made:
            request = LlmRequest("s", [ChatMessage("user", "word " * 5_000)], 5)
            with pytest.raises(EngineError, match="context size"):
                await anext(made.stream(request))
            assert made.metrics().failed == 1
            assert await ask(made, "Hello!")

    asyncio.run(run())


QUESTION = ChatMessage(
    "user", "Answer with one letter. What colour is the sky? A) blue B) red C) green"
)


def test_labels_are_scored_in_one_step_and_the_prompt_is_kept(model: Path) -> None:
    async def run() -> None:
        async with engine(model) as made:
            request = LabelRequest("router", [SYSTEM, QUESTION], ("A", "B", "C"))
            scores = await made.score_labels(request)
            assert scores.exact
            assert scores.best == "A"
            assert 0.1 < scores.mass <= 1.0
            assert sum(scores.probabilities().values()) == pytest.approx(1.0)
            first = made.metrics()
            assert (first.labelled, first.reply_tokens) == (1, 1)
            again = await made.score_labels(request)
            assert again.logprobs == pytest.approx(dict(scores.logprobs), abs=0.05)
            assert made.metrics().prompt_tokens - first.prompt_tokens < 8

    asyncio.run(run())


def test_a_label_is_as_likely_as_the_model_says_it(model: Path) -> None:
    async def run() -> None:
        async with engine(model) as made:
            request = LabelRequest("router", [SYSTEM, QUESTION], ("A", "The"))
            likelier = (await made.score_labels(request)).best
            assert (await ask(made, QUESTION.content, tokens=1)).strip() == likelier

    asyncio.run(run())


def test_labels_that_begin_alike_are_told_apart_by_writing_one(model: Path) -> None:
    async def run() -> None:
        async with engine(model) as made:
            labels = ("the sky is blue", "the sky is red")
            scores = await made.score_labels(LabelRequest("router", [SYSTEM, QUESTION], labels))
            assert not scores.exact
            assert scores.best in labels
            assert max(scores.logprobs.values()) == 0.0

    asyncio.run(run())


def test_label_requests_leave_the_sessions_prompts_alone(model: Path) -> None:
    async def run() -> None:
        async with engine(model) as made:
            await ask(made, "Hello!")
            await made.score_labels(LabelRequest("router", [QUESTION], ("A", "B")))
            before = made.metrics().prompt_tokens
            await ask(made, "Hello again!")
            assert made.metrics().prompt_tokens - before < 30

    asyncio.run(run())


@pytest.mark.parametrize("labels", [(), ("A",), ("A", "A"), ("A", "")])
def test_labels_nothing_can_be_chosen_among_are_refused(
    model: Path, labels: tuple[str, ...]
) -> None:
    async def run() -> None:
        async with engine(model) as made:
            with pytest.raises(ValueError, match="two or more different"):
                await made.score_labels(LabelRequest("router", [QUESTION], labels))

    asyncio.run(run())


def test_it_tells_what_memory_it_takes(model: Path) -> None:
    size = model.stat().st_size

    async def run() -> None:
        async with engine(model) as made:
            figure = made.memory()
            assert figure.device == "cpu"
            assert figure.weights == size
            assert figure.total >= figure.weights

    asyncio.run(run())


def test_a_closed_engine_says_so(model: Path) -> None:
    async def run() -> None:
        async with engine(model) as made:
            pass
        with pytest.raises(EngineError, match="shut down"):
            await ask(made, "Hello!")
        await made.close()

    asyncio.run(run())


def test_a_file_that_is_no_model_is_an_error_in_words(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="is not a file"):
        LlamaCppEngine(tmp_path, SETTINGS, 1)
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"no model")
    with pytest.raises(EngineError, match="cannot load"):
        LlamaCppEngine(broken, SETTINGS, 1)


def test_nothing_is_printed(model: Path, capfd: pytest.CaptureFixture[str]) -> None:
    async def run() -> None:
        async with engine(model) as made:
            await ask(made, "Hello!", tokens=2)

    asyncio.run(run())
    captured = capfd.readouterr()
    assert captured.out + captured.err == ""


def test_more_sessions_than_a_step_of_the_prompt_has_tokens_are_served(model: Path) -> None:
    async def run() -> None:
        settings = SETTINGS.model_copy(update={"context_tokens": 512})
        made = LlamaCppEngine(model, settings, 40)
        try:
            assert await ask(made, "Hello", tokens=2)
        finally:
            await made.close()

    asyncio.run(run())
