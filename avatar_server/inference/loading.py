"""Loading the models, one after the other, saying which."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from avatar_server.config import LlmSettings, Settings
from avatar_server.inference.available import llm_lacks
from avatar_server.inference.llm.engine import EngineError, LlmEngine
from avatar_server.inference.llm.retrieval import Encoder, FactIndex
from avatar_server.inference.llm.router import LearningRouter, LlmRouter, Turn
from avatar_server.inference.memory import MemoryFigure
from avatar_server.inference.tts.contract import Synthesizer
from avatar_server.models.catalogue import CATALOGUE

log = logging.getLogger(__name__)


class Recogniser(Protocol):
    """Speech to text; see `avatar_server.inference.stt`."""

    def transcribe(self, pcm: NDArray[np.int16], language: str | None) -> Any: ...

    def warm_up(self) -> None: ...

    def memory(self) -> MemoryFigure: ...


class EndOfTurnCheck(Protocol):
    """Has the speaker finished? See `avatar_server.inference.endpoint`."""

    def probability(self, pcm: NDArray[np.int16]) -> float: ...

    def warm_up(self) -> None: ...


@dataclass(slots=True)
class Models:
    """Everything that answers."""

    recogniser: Recogniser
    end_of_turn: EndOfTurnCheck
    synthesizer: Synthesizer
    encoder: Encoder
    llm: LlmEngine
    small_talk: FactIndex | None
    names: dict[str, str]
    router: LearningRouter | LlmRouter | None = None
    rtf_tts: float = 0.0
    load_s: float = 0.0
    memory: dict[str, MemoryFigure] = field(default_factory=dict)
    """What each part holds, by its name: stt, tts, llm."""


def load_models(settings: Settings, phase: Callable[[str], None]) -> Models:
    """All models of `settings`; blocking, some seconds. Raises the stages' own errors.

    `phase` is told what is being loaded, in words for the viewer's waiting page.
    """
    # Imported here: these libraries start threads, which must inherit the process's priority.
    from avatar_server.inference.endpoint import EndOfTurnModel
    from avatar_server.inference.llm.retrieval import SentenceEncoder
    from avatar_server.inference.llm.router import EmbeddingRouter
    from avatar_server.inference.llm.small_talk import load_small_talk
    from avatar_server.inference.stt import Transcriber
    from avatar_server.inference.tts import build_synthesizer
    from avatar_server.models import ModelStore

    began = time.monotonic()
    store = ModelStore()
    sessions = settings.sessions.at_most()
    phase("loading speech recognition")
    recogniser = Transcriber(store.path(settings.stt.model), settings.stt)
    end_of_turn = EndOfTurnModel(store.path("smart-turn-v3.2"))
    phase("loading the voice")
    synthesizer = build_synthesizer(store, settings.tts, sessions)
    phase("loading the language model")
    encoder = SentenceEncoder()
    small_talk = load_small_talk(encoder) if settings.llm.small_talk else None
    llm = build_engine(settings.llm, sessions, store)
    router: LearningRouter | LlmRouter | None = None
    if settings.router.engine == "llm":
        router = LlmRouter(llm)
    elif settings.router.engine == "embedding":
        phase("loading the router")
        router = EmbeddingRouter.shipped(encoder, reader_weights(store))
    phase("warming up")
    # The first use of each takes up to a second more, which the first viewers would wait for.
    recogniser.warm_up()
    end_of_turn.warm_up()
    if router is not None and not isinstance(router, LlmRouter):
        router.decide("Hello there", [Turn("user", "Hi"), Turn("assistant", "Hello")])
    memory = {"stt": recogniser.memory(), "tts": synthesizer.memory(), "llm": llm.memory()}
    log.info("memory: %s", ", ".join(f"{part} {figure}" for part, figure in memory.items()))
    return Models(
        recogniser=recogniser,
        end_of_turn=end_of_turn,
        synthesizer=synthesizer,
        encoder=encoder,
        llm=llm,
        small_talk=small_talk,
        names={
            "stt": settings.stt.model,
            "tts": synthesizer.name,
            "llm": llm.description,
        },
        router=router,
        rtf_tts=synthesizer.measure_rtf(),
        load_s=time.monotonic() - began,
        memory=memory,
    )


def reader_weights(store: Any) -> Path | None:
    """The weights of the router's reader; none where they cannot be had: it decides without."""
    from avatar_server.models import ModelError

    try:
        path: Path = store.path("multilingual-e5-small")
    except ModelError as error:
        log.warning("the router decides without its reader, and less often right: %s", error)
        return None
    return path


def build_engine(settings: LlmSettings, sessions: int, store: Any) -> LlmEngine:
    """The engine that `settings.engine` names. Raises `EngineError`."""
    if settings.engine == "llamacpp":
        from avatar_server.inference.llm.engine.llamacpp import LlamaCppEngine
        from avatar_server.inference.llm.engine.quicker import quick_copy

        return LlamaCppEngine(quick_copy(store.path(settings.model)), settings, sessions)
    if settings.engine == "openai":
        from avatar_server.inference.llm.engine.openai import OpenAiEngine

        return OpenAiEngine(settings)
    if why := llm_lacks(settings):
        raise EngineError(why)
    from avatar_server.inference.llm.engine.vllm import VllmEngine

    # What is neither of the catalogue nor a path is a name that vLLM's own hub client may know.
    known = settings.model in CATALOGUE or Path(settings.model).expanduser().exists()
    return VllmEngine(store.path(settings.model) if known else settings.model, settings, sessions)
