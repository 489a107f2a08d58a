"""The routers that `eval router` knows by name."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack

from avatar_server.config import Settings
from avatar_server.eval.router import Elsewhere
from avatar_server.inference.llm.router import Decision, LlmRouter, Router, Turn

Build = Callable[[Settings, ExitStack], Router]
"""Makes a router; what must be ended again goes on the stack."""


class Waiting(Elsewhere):
    """A language model's router, for callers that wait for it."""

    def __init__(self, router: LlmRouter, loop: asyncio.AbstractEventLoop) -> None:
        self._router = router
        self._loop = loop

    def decide(self, text: str, history: Sequence[Turn] = ()) -> Decision:
        return self._loop.run_until_complete(self._router.decide(text, history))


def _embedding(settings: Settings, stack: ExitStack) -> Router:
    from avatar_server.inference.llm.retrieval import SentenceEncoder
    from avatar_server.inference.llm.router import EmbeddingRouter
    from avatar_server.models import ModelStore

    return EmbeddingRouter.shipped(SentenceEncoder(), ModelStore().path("multilingual-e5-small"))


def _head(settings: Settings, stack: ExitStack) -> Router:
    from avatar_server.inference.llm.retrieval import SentenceEncoder
    from avatar_server.inference.llm.router import EmbeddingRouter

    return EmbeddingRouter.shipped(SentenceEncoder())


def _language_model(engine: str) -> Build:
    def build(settings: Settings, stack: ExitStack) -> Router:
        from avatar_server.inference.loading import build_engine
        from avatar_server.models import ModelStore

        llm = settings.llm.model_copy(update={"engine": engine})
        loop = asyncio.new_event_loop()
        stack.callback(loop.close)

        async def ready() -> LlmRouter:
            made = build_engine(llm, 1, ModelStore())
            stack.callback(lambda: loop.run_until_complete(made.close()))
            await made.warm_up()
            return LlmRouter(made)

        return Waiting(loop.run_until_complete(ready()), loop)

    return build


ENGINES: Mapping[str, Build] = {
    "embedding": _embedding,
    "head": _head,
    "llamacpp": _language_model("llamacpp"),
    "openai": _language_model("openai"),
    "vllm": _language_model("vllm"),
}
