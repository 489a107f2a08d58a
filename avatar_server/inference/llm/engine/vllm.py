"""vLLM in this process: one engine for all sessions, on a GPU.

The engine itself runs in a child process of vLLM's, which may end by itself (a fault of the GPU,
the system out of memory). All requests then fail at once, with the reason, and it is started again
in the background; until it is there, new requests fail, too, rather than wait for minutes.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import multiprocessing
import time
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any

from avatar_server.config import LlmSettings
from avatar_server.inference.available import llm_lacks
from avatar_server.inference.llm.engine.contract import (
    ChatMessage,
    EngineDeadError,
    EngineError,
    EngineMetrics,
    LabelRequest,
    LlmRequest,
    MetricsTally,
    Priority,
)
from avatar_server.inference.llm.engine.labels import LabelScores, check_labels, chosen
from avatar_server.inference.llm.engine.vllm_setup import (
    make_arguments,
    set_environment,
)
from avatar_server.inference.llm.engine.vllm_stats import VllmStats
from avatar_server.inference.memory import (
    MemoryFigure,
    files_bytes,
    gpu_used_bytes,
    process_bytes,
)

log = logging.getLogger(__name__)

WATCH_S = 0.5
"""How often the engine is asked whether it lives; requests that run learn of its end at once."""
RESTART_PAUSES_S = (0.0, 5.0, 20.0, 60.0)
"""Before each attempt to start it again; the last is kept to."""
SESSION_SHARE = 4
"""Requests that one session may have in the engine: a reply, a speculative one, a decision about
the route, a prompt read ahead."""


class VllmEngine:
    """An `LlmEngine` over vLLM's `AsyncLLM`.

    Takes minutes to make (a large model is read, and its kernels are prepared), so make it off the
    event loop. Raises `EngineError` where vLLM is not installed or cannot load the model.
    """

    def __init__(self, model: Path | str, settings: LlmSettings, sessions: int) -> None:
        if why := llm_lacks(settings):
            raise EngineError(why)
        set_environment()
        self._model = model
        self._settings = settings
        self._arguments = make_arguments(model, settings)
        self._stats = VllmStats()
        self._tally = MetricsTally()
        self._ids = itertools.count(1)
        self._running = 0
        self._reading: dict[str, asyncio.Task[None]] = {}
        self._watching: asyncio.Task[None] | None = None
        self._closed = False
        self._died: str | None = None
        self._memory = MemoryFigure("cpu")
        self._engine: Any = self._start()
        self.description = f"{Path(model).name}, vLLM"
        self._check_room(sessions)

    @property
    def kv_tokens(self) -> int:
        """Tokens of all sessions that fit into the key-value cache together."""
        return int(getattr(self._engine.vllm_config.cache_config, "kv_cache_size_tokens", 0) or 0)

    @property
    def pids(self) -> list[int]:
        """vLLM's own processes."""
        return [p.pid for p in multiprocessing.active_children() if p.pid is not None]

    async def stream(self, request: LlmRequest) -> AsyncGenerator[str, None]:
        if (reading := self._reading.pop(request.session, None)) is not None:
            reading.cancel()
        params = self._sampling(request.max_tokens, list(request.stop))
        ids = self._tokens(request.messages, params)
        async with contextlib.aclosing(self._run(ids, params, request.priority)) as outputs:
            async for output in outputs:
                used = request.used
                used.prompt, used.cached = len(ids), output.num_cached_tokens or used.cached
                used.reply += len(output.outputs[0].token_ids)
                if text := output.outputs[0].text:
                    yield text

    async def score_labels(self, request: LabelRequest) -> LabelScores:
        check_labels(request.labels)
        self._tally.add(labelled=1)
        tokenizer = self._alive().get_tokenizer()
        labels = {
            label: tokenizer.encode(label, add_special_tokens=False) for label in request.labels
        }
        single = {label: ids[0] for label, ids in labels.items() if len(ids) == 1}
        if len(single) == len(labels) == len(set(single.values())):
            params = self._sampling(1, [], temperature=0.0, logprob_token_ids=[*single.values()])
            output = await self._last(request, params)
            told = output.outputs[0].logprobs[0]
            return LabelScores({label: told[token].logprob for label, token in single.items()})
        # The model may spell a label in other, shorter tokens than the tokeniser would.
        longest = max(len(label.encode()) for label in labels)
        params = self._sampling(longest + 1, [], temperature=0.0, choice=list(request.labels))
        text = (await self._last(request, params)).outputs[0].text
        if text in labels:
            return chosen(request.labels, text)
        raise EngineError(f"the model answered {text!r}, which is none of the labels")

    async def prefill(self, session: str, messages: Sequence[ChatMessage]) -> None:
        """Reads ahead behind everything else; one token is the least that is generated."""
        if (reading := self._reading.pop(session, None)) is not None:
            reading.cancel()
        if self._closed or self._died is not None:
            return
        self._reading[session] = asyncio.create_task(
            self._read(session, messages), name=f"llm-read-ahead-{session}"
        )

    def hold_prefill(self, held: bool) -> None:
        """Nothing to do: on a GPU a prompt is read within some milliseconds, in small steps."""
        del held

    def forget(self, session: str) -> None:
        if (reading := self._reading.pop(session, None)) is not None:
            reading.cancel()

    async def warm_up(self) -> None:
        """Goes through all that a turn needs: the first log-probabilities and the first choice
        take seconds, in which everybody would wait."""
        self._watch()
        hello = [ChatMessage("user", "Hello")]
        async for _ in self.stream(LlmRequest("", hello, 2, priority=Priority.BACKGROUND)):
            pass
        for labels in (("A", "B"), ("a long answer", "another long answer")):
            await self.score_labels(LabelRequest("", hello, labels, Priority.BACKGROUND))

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        tasks = [*self._reading.values(), *([self._watching] if self._watching else [])]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        engine, self._engine = self._engine, None
        if engine is not None:
            await asyncio.get_running_loop().run_in_executor(None, engine.shutdown)

    def metrics(self) -> EngineMetrics:
        return self._tally.snapshot(
            running=self._running,
            waiting=self._stats.waiting,
            cache_used=self._stats.cache_used,
        )

    def memory(self) -> MemoryFigure:
        return self._memory

    # --- one request ------------------------------------------------------------------------

    def _sampling(
        self,
        max_tokens: int,
        stop: list[str],
        *,
        temperature: float | None = None,
        logprob_token_ids: list[int] | None = None,
        choice: list[str] | None = None,
    ) -> Any:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams

        whole = temperature is not None
        # The model's makers say how it samples best; temperature is the operator's.
        values = {} if whole else self._alive().model_config.get_diff_sampling_param()
        values |= {
            "max_tokens": max_tokens,
            "temperature": self._settings.temperature if temperature is None else temperature,
            "output_kind": RequestOutputKind.FINAL_ONLY if whole else RequestOutputKind.DELTA,
        }
        if stop:
            values["stop"] = stop
        if logprob_token_ids:
            values["logprob_token_ids"] = logprob_token_ids
        if choice:
            values["structured_outputs"] = StructuredOutputsParams(choice=choice)
        return SamplingParams(**values)

    def _tokens(self, messages: Sequence[ChatMessage], params: Any) -> list[int]:
        """The prompt; `params.max_tokens` is cut to what the context has room for."""
        engine = self._alive()
        encoded = engine.get_tokenizer().apply_chat_template(
            [{"role": m.role, "content": m.content} for m in messages],
            add_generation_prompt=True,
            tokenize=True,
            return_dict=True,
            enable_thinking=False,
        )
        ids = list(encoded["input_ids"])
        room = engine.model_config.max_model_len - len(ids)
        if room < 1:
            self._tally.add(failed=1)
            raise EngineError(
                f"the prompt is {len(ids)} tokens long, and the context size is "
                f"{engine.model_config.max_model_len} (llm.context_tokens)"
            )
        params.max_tokens = min(params.max_tokens, room)
        return ids

    async def _last(self, request: LabelRequest, params: Any) -> Any:
        """The only output of a request that is not streamed."""
        last = None
        ids = self._tokens(request.messages, params)
        async with contextlib.aclosing(self._run(ids, params, request.priority)) as outputs:
            async for output in outputs:
                last = output
        if last is None or not last.outputs:
            raise EngineError("vLLM gave no answer")
        return last

    async def _run(self, ids: list[int], params: Any, priority: int) -> AsyncGenerator[Any, None]:
        """Outputs of one request. Closing it, or cancelling its reader, ends the request."""
        engine = self._alive()
        self._watch()
        began, first_at, tokens, cached = time.monotonic(), None, 0, 0
        self._tally.add(requests=1)
        self._running += 1
        outcome = "cancelled"
        outputs = engine.generate(
            {"prompt_token_ids": ids}, params, f"avatar-{next(self._ids)}", priority=int(priority)
        )
        try:
            async with contextlib.aclosing(outputs):
                while True:
                    async with asyncio.timeout(self._settings.timeout_s):
                        output = await anext(outputs, None)
                    if output is None:
                        break
                    first_at = first_at or time.monotonic()
                    tokens += len(output.outputs[0].token_ids)
                    cached = output.num_cached_tokens or cached
                    yield output
            outcome = ""
        except TimeoutError as error:
            outcome = "failed"
            raise EngineError(
                f"{self.description} was silent for llm.timeout_s = {self._settings.timeout_s:g} s"
            ) from error
        except Exception as error:
            outcome = "failed"
            if engine.errored:
                self._note_death()
                raise EngineDeadError(self._why_dead()) from error
            raise EngineError(f"vLLM refused the request: {_reason(error)}") from error
        finally:
            self._running -= 1
            now = time.monotonic()
            if outcome:
                self._tally.add(**{outcome: 1})
            if first_at is not None:
                self._tally.add(
                    prompt_tokens=len(ids) - cached,
                    cached_tokens=cached,
                    reply_tokens=tokens,
                    prompt_s=first_at - began,
                    reply_s=now - first_at,
                )

    async def _read(self, session: str, messages: Sequence[ChatMessage]) -> None:
        try:
            request = LlmRequest(session, messages, 1, priority=Priority.BACKGROUND)
            params = self._sampling(1, [], temperature=0.0)
            ids = self._tokens(request.messages, params)
            async for _ in self._run(ids, params, request.priority):
                pass
        except EngineError as error:
            log.warning("cannot read the prompt of session %s ahead: %s", session, error)
        finally:
            if self._reading.get(session) is asyncio.current_task():
                del self._reading[session]

    # --- the engine's life ------------------------------------------------------------------

    def _start(self) -> Any:
        """Blocking, for minutes. Raises `EngineError`."""
        from vllm.v1.engine.async_llm import AsyncLLM

        before = gpu_used_bytes()
        others = set(self.pids)
        try:
            engine = AsyncLLM.from_engine_args(self._arguments, stat_loggers=[self._stats])
        except Exception as error:
            raise EngineError(f"vLLM cannot load {self._model}: {_reason(error)}") from error
        if self._closed:
            engine.shutdown()
            raise EngineError("the language model is being shut down")
        self._memory = self._figure(engine, before, set(self.pids) - others)
        return engine

    def _figure(self, engine: Any, before: int | None, pids: set[int]) -> MemoryFigure:
        weights = 0
        if isinstance(self._model, Path):
            weights = files_bytes(self._model, "*.safetensors")
        cache = int(engine.vllm_config.cache_config.kv_cache_memory_bytes or 0)
        after = gpu_used_bytes()
        if before is not None and after is not None:
            device, total = "cuda:0", after - before
        else:
            device, total = "cpu", sum(process_bytes(pid) for pid in pids)
        working = max(0, total - weights - cache)
        return MemoryFigure(device, weights, cache, working, measured=True)

    def _check_room(self, sessions: int) -> None:
        """Requests that run are never stopped for more urgent ones, so all must have room."""
        config = self._engine.vllm_config
        seqs, tokens = config.scheduler_config.max_num_seqs, self.kv_tokens
        if seqs < sessions * SESSION_SHARE:
            log.warning(
                "llm.options.max_num_seqs is %d; %d sessions may ask for %d at once, and what is "
                "urgent would wait",
                seqs,
                sessions,
                sessions * SESSION_SHARE,
            )
        if tokens and tokens < sessions * self._settings.context_tokens:
            log.warning(
                "the key-value cache holds %d tokens, and %d sessions of %d need more: raise "
                "llm.options.kv_cache_memory_bytes or lower llm.context_tokens",
                tokens,
                sessions,
                self._settings.context_tokens,
            )

    def _alive(self) -> Any:
        """The engine; raises where there is none."""
        if self._closed:
            raise EngineError("the language model is being shut down")
        if self._died is None and self._engine.errored:
            self._note_death()
        if self._died is not None:
            raise EngineDeadError(self._why_dead())
        return self._engine

    def _why_dead(self) -> str:
        return f"the language model's engine has ended ({self._died}) and is being started again"

    def _note_death(self) -> None:
        if self._died is not None or self._closed:
            return
        self._died = "its process is gone; its last messages are in the log"
        self._tally.add(restarts=1)
        log.error("vLLM's engine has ended; it is started again")
        self._watch()

    def _watch(self) -> None:
        if self._watching is None and not self._closed:
            self._watching = asyncio.create_task(self._keep_alive(), name="llm-keep-alive")

    async def _keep_alive(self) -> None:
        while True:
            await asyncio.sleep(WATCH_S)
            if self._died is None and self._engine.errored:
                self._note_death()
            if self._died is not None:
                await self._start_again()

    async def _start_again(self) -> None:
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, self._engine.shutdown)
        for pause in itertools.chain(RESTART_PAUSES_S, itertools.repeat(RESTART_PAUSES_S[-1])):
            await asyncio.sleep(pause)
            try:
                engine = await loop.run_in_executor(None, self._start)
            except EngineError as error:
                self._died = str(error)
                log.error("vLLM's engine cannot be started again: %s", error)
                continue
            self._engine, self._died = engine, None
            log.info("vLLM's engine is there again")
            return


def _reason(error: BaseException) -> str:
    """The cause at the bottom, in one line: vLLM wraps its errors."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = str(error).strip().splitlines()
    return lines[0][:300] if lines else type(error).__name__
