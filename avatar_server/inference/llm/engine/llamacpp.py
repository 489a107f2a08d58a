"""GGUF models with llama.cpp's server, in this process, through `xllamacpp`.

Every session has a slot of its own, so that the prompt it shares with its last request (persona,
examples, history) is read once and not again for each reply: on a CPU reading costs some 6-10 ms
a token, and would be most of the time to the first token.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
import secrets
import shutil
import tempfile
import threading
from collections.abc import AsyncGenerator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from avatar_server.config import LlmSettings
from avatar_server.inference.llm.engine.contract import (
    ChatMessage,
    EngineError,
    EngineMetrics,
    LabelRequest,
    LlmRequest,
    MetricsTally,
)
from avatar_server.inference.llm.engine.labels import (
    LabelScores,
    check_labels,
    chosen,
    from_top,
)
from avatar_server.inference.llm.engine.slots import SlotTable
from avatar_server.inference.memory import MemoryFigure
from avatar_server.inference.resources import rss_bytes

log = logging.getLogger(__name__)

BATCH_TOKENS = 32
"""Prompt tokens read in one step. A cancelled request ends at the next step (0.15 s of one core),
and a reply that is being written gets a token with each; 128 are read a fifth faster."""

TOP_TOKENS = 1_000
"""First tokens among which labels are looked for; telling of them takes some 2 ms."""

REPEAT_PENALTY = 1.05
"""Small models fall into loops without one; more makes them avoid the names they should say."""


@dataclass(slots=True, eq=False)
class _Call:
    """One request on its worker thread, and its way back to the event loop."""

    body: dict[str, Any]
    loop: asyncio.AbstractEventLoop
    pieces: asyncio.Queue[str | BaseException | None] = field(default_factory=asyncio.Queue)
    cancelled: threading.Event = field(default_factory=threading.Event)
    timings: dict[str, float] = field(default_factory=dict)
    first_tokens: list[tuple[str, float]] = field(default_factory=list)
    """The likeliest first tokens with their log-probabilities, where they were asked for."""
    text: str = ""

    def put(self, item: str | BaseException | None) -> None:
        # The loop is closed where the process ends while a request is being torn down.
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self.pieces.put_nowait, item)


class LlamaCppEngine:
    """An `LlmEngine` over a GGUF file.

    Takes a few seconds to make (it reads the weights), so make it off the event loop. Raises
    `EngineError` where the file cannot be used.
    """

    def __init__(self, model: Path, settings: LlmSettings, sessions: int) -> None:
        # Imported here: the library starts its own threads, after the process set its priority.
        import xllamacpp

        if not model.is_file():
            raise EngineError(f"{model} is not a file: llm.model must be, or name, a GGUF model")
        self._settings = settings
        # One more for label requests, whose prompts share nothing with the sessions', and one so
        # that a session which comes robs none that is about to go.
        self._slots = SlotTable(sessions + 2)
        self._threads = ThreadPoolExecutor(sessions + 2, thread_name_prefix="llm")
        self._tally = MetricsTally()
        self._calls: set[_Call] = set()
        self._streams = 0
        self._unread: dict[str, Sequence[ChatMessage]] = {}
        self._reading: asyncio.Task[None] | None = None
        self._held = False
        self._closed = False
        self._server: Any = None
        self._seeds = itertools.count(1)
        self.description = f"{model.stem}, llama.cpp, {settings.threads} thread(s)"
        resident = rss_bytes()
        # The library always opens an HTTP server, which nobody needs. It gets a socket file in a
        # private folder, which is gone again before anybody could find it, and a random key.
        folder = Path(tempfile.mkdtemp(prefix="avatar-llm-"))
        try:
            self._server = xllamacpp.Server(self._parameters(xllamacpp, model, folder))
        except Exception as error:
            self._release()
            raise EngineError(f"llama.cpp cannot load {model}: {error}") from error
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        weights = model.stat().st_size
        # The weights are mapped, and counted as far as they were read; the rest is allocated.
        allocated = max(0, rss_bytes() - resident - weights)
        self._memory = MemoryFigure("cpu", weights, cache=allocated, measured=True)

    def _parameters(self, xllamacpp: Any, model: Path, folder: Path) -> Any:
        params = xllamacpp.CommonParams()
        params.model.path = str(model)
        params.n_parallel = self._slots.size
        params.n_ctx = self._settings.context_tokens * self._slots.size
        # A step holds a token of every slot, or the library aborts the process.
        params.n_batch = params.n_ubatch = max(BATCH_TOKENS, self._slots.size)
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = self._settings.threads
        params.n_threads_http = 1
        params.verbosity = -1
        params.warmup = False
        # Slots keep their own cache; a second copy in RAM would only cost.
        params.cache_ram_mib = 0
        params.hostnames = [str(folder / "http.sock")]
        params.api_keys = [secrets.token_hex(16)]
        params.endpoint_slots = False
        params.endpoint_metrics = True
        return params

    async def stream(self, request: LlmRequest) -> AsyncGenerator[str, None]:
        self._unread.pop(request.session, None)
        self._streams += 1
        try:
            await self._stop_reading()
            async with self._slots.hold(request.session) as slot:
                body = self._body(request.messages, request.max_tokens, slot, list(request.stop))
                call = _Call(body, asyncio.get_running_loop())
                try:
                    async with contextlib.aclosing(self._run(call)) as pieces:
                        async for piece in pieces:
                            yield piece
                finally:
                    # Also of a request that its reader ends: a reply of enough sentences does.
                    read, cached = call.timings.get("prompt_n", 0), call.timings.get("cache_n", 0)
                    request.used.prompt, request.used.cached = int(read + cached), int(cached)
                    request.used.reply = int(call.timings.get("predicted_n", 0))
        finally:
            self._streams -= 1
            self._read_ahead()

    async def score_labels(self, request: LabelRequest) -> LabelScores:
        check_labels(request.labels)
        self._tally.add(labelled=1)
        first = {"logprobs": True, "top_logprobs": TOP_TOKENS, "temperature": 0.0}
        call = await self._ask(request, 1, first)
        if (scores := from_top(request.labels, call.first_tokens)) is not None:
            return scores
        # The labels begin alike: they are told apart by letting the model write one of them.
        written = " | ".join(json.dumps(label, ensure_ascii=False) for label in request.labels)
        longest = max(len(label.encode()) for label in request.labels)
        call = await self._ask(
            request, longest, {"temperature": 0.0, "grammar": f"root ::= {written}"}
        )
        if call.text in request.labels:
            return chosen(request.labels, call.text)
        raise EngineError(f"the model answered {call.text!r}, which is none of the labels")

    async def _ask(self, request: LabelRequest, max_tokens: int, extra: dict[str, Any]) -> _Call:
        """A short request, to its end."""
        self._streams += 1
        try:
            await self._stop_reading()
            async with self._slots.hold(request.session) as slot:
                body = self._body(request.messages, max_tokens, slot, [])
                call = _Call({**body, "repeat_penalty": 1.0, **extra}, asyncio.get_running_loop())
                async with contextlib.aclosing(self._run(call)) as pieces:
                    call.text = "".join([piece async for piece in pieces])
                return call
        finally:
            self._streams -= 1
            self._read_ahead()

    async def prefill(self, session: str, messages: Sequence[ChatMessage]) -> None:
        self._unread[session] = messages
        self._read_ahead()

    def hold_prefill(self, held: bool) -> None:
        self._held = held
        if not held:
            self._read_ahead()
        elif self._reading is not None:
            self._reading.cancel()

    def forget(self, session: str) -> None:
        self._unread.pop(session, None)
        self._slots.forget(session)

    def _read_ahead(self) -> None:
        """Read prompts ahead, but only while nobody waits for a reply: the steps of one request
        hold up those of all others."""
        busy = self._held or self._streams or self._reading is not None
        if self._unread and not busy and not self._closed:
            self._reading = asyncio.create_task(self._read_all(), name="llm-read-ahead")

    async def _read_all(self) -> None:
        try:
            while self._unread:
                session, messages = next(iter(self._unread.items()))
                try:
                    async with self._slots.hold(session) as slot:
                        # One token is the least that the server generates.
                        body = self._body(messages, 1, slot, [])
                        async for _ in self._run(_Call(body, asyncio.get_running_loop())):
                            pass
                except EngineError as error:
                    log.warning("cannot read the prompt of session %s ahead: %s", session, error)
                if self._unread.get(session) is messages:
                    del self._unread[session]
        finally:
            self._reading = None
            # Held and released while a step ended, there may be time again already.
            self._read_ahead()

    async def _stop_reading(self) -> None:
        """What was read stays in the cache, and the rest is read when there is time again."""
        if (task := self._reading) is not None:
            task.cancel()
            await asyncio.wait([task])

    async def warm_up(self) -> None:
        request = LlmRequest("", [ChatMessage("user", "Hello")], max_tokens=2)
        async for _ in self.stream(request):
            pass
        self.forget("")

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        await self._stop_reading()
        for call in list(self._calls):
            call.cancelled.set()
        await asyncio.get_running_loop().run_in_executor(None, self._release)

    def metrics(self) -> EngineMetrics:
        return self._tally.snapshot(running=len(self._calls))

    def memory(self) -> MemoryFigure:
        return self._memory

    def _release(self) -> None:
        self._threads.shutdown(wait=True)
        server, self._server = self._server, None
        if server is not None and not self._tally.values.get("requests"):
            # Ended before its loop has begun, it would wait for that loop for ever. The answer
            # to anything shows that it has.
            server.handle_metrics()
        # The native server ends with its last reference, at the end of this method.

    def _body(
        self, messages: Sequence[ChatMessage], max_tokens: int, slot: int, stop: list[str]
    ) -> dict[str, Any]:
        return {
            "messages": [{"role": m.role, "content": m.content} for m in messages],
            "max_tokens": max_tokens,
            "stop": stop,
            "id_slot": slot,
            "cache_prompt": True,
            "temperature": self._settings.temperature,
            "repeat_penalty": REPEAT_PENALTY,
            "seed": next(self._seeds),
            "stream": True,
            # A chunk after each step of the prompt, which is where a request can be stopped.
            "return_progress": True,
            "timings_per_token": True,
            **self._settings.options,
        }

    async def _run(self, call: _Call) -> AsyncGenerator[str, None]:
        if self._closed:
            raise EngineError("the language model is being shut down")
        self._calls.add(call)
        self._tally.add(requests=1)
        # Not a task of the loop: a cancelled await would lose the thread's end, and with it the
        # certainty that the slot is free.
        future = self._threads.submit(self._work, call)
        finished = False
        try:
            while (item := await call.pieces.get()) is not None:
                if isinstance(item, BaseException):
                    finished = True
                    self._tally.add(failed=1)
                    raise item
                yield item
            finished = True
            self._account(call)
        finally:
            call.cancelled.set()
            self._calls.discard(call)
            if not finished:
                self._tally.add(cancelled=1)
                future.cancel()

    def _account(self, call: _Call) -> None:
        timings = call.timings
        self._tally.add(
            prompt_tokens=timings.get("prompt_n", 0),
            cached_tokens=timings.get("cache_n", 0),
            reply_tokens=timings.get("predicted_n", 0),
            prompt_s=timings.get("prompt_ms", 0) / 1e3,
            reply_s=timings.get("predicted_ms", 0) / 1e3,
        )

    def _work(self, call: _Call) -> None:
        server = self._server
        try:
            if server is not None and not call.cancelled.is_set():
                server.handle_chat_completions(call.body, lambda chunk: _take(call, chunk))
            call.put(None)
        except Exception as error:
            call.put(EngineError(f"llama.cpp failed: {error}"))


def _take(call: _Call, chunk: dict[str, Any]) -> bool:
    """Pass on what came; true ends the request."""
    if call.cancelled.is_set():
        return True
    if (error := chunk.get("error")) is not None:
        call.put(EngineError(f"llama.cpp refused the request: {error.get('message', error)}"))
        return True
    if "timings" in chunk:
        call.timings = chunk["timings"]
    for choice in chunk.get("choices", ()):
        if not call.first_tokens and (told := (choice.get("logprobs") or {}).get("content")):
            top = told[0].get("top_logprobs", ())
            call.first_tokens = [(token["token"], token["logprob"]) for token in top]
        if text := choice.get("delta", {}).get("content"):
            call.put(text)
    return False
