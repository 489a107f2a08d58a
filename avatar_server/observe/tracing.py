"""OpenTelemetry traces of turns, by the semantic conventions for generative AI.

A turn is over when its spans are made: nothing is added while somebody waits. Needs the extra
`otel`; see `avatar_server.observe.otel`.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from typing import TYPE_CHECKING

from opentelemetry import trace as api
from opentelemetry.util.types import AttributeValue

import avatar_server
from avatar_server.config import Settings
from avatar_server.protocol.messages import StageSpan, TurnTrace

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

log = logging.getLogger(__name__)

SERVICE = "avatar-server"
PROVIDERS = {"llamacpp": "llama.cpp", "vllm": "vllm", "openai": "openai"}
"""`gen_ai.provider.name`: `openai` also stands for whatever speaks OpenAI's protocol."""
_LLM_STAGE = "llm"
_CLOSE_S = 1.0
"""What an endpoint that does not answer may hold up the server's end."""


class TurnTracer:
    """Makes a trace of each finished turn. `close` at the end."""

    def __init__(self, provider: TracerProvider, settings: Settings) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer(SERVICE, avatar_server.__version__)
        self._model = settings.llm.model
        self._llm_provider = PROVIDERS.get(settings.llm.engine, settings.llm.engine)
        self._text = settings.observe.otel_text
        # Which voice speaks is chosen by what the machine can do: only inference knows.
        self._models = {"stt": settings.stt.model}

    def turn(self, turn: TurnTrace, avatar: str, now: float | None = None) -> None:
        """A turn with `avatar` that is over at `now` (Unix time). Raises nothing."""
        try:
            self._turn(turn, avatar, time.time() if now is None else now)
        except Exception:
            # A trace is never worth a turn.
            log.exception("the turn could not be traced")

    def close(self) -> None:
        """Hand over what waits, if that can be done in a moment."""
        thread = threading.Thread(target=self._provider.shutdown, name="otel-end", daemon=True)
        thread.start()
        thread.join(_CLOSE_S)

    def _turn(self, turn: TurnTrace, avatar: str, now: float) -> None:
        zero = now - turn.ended
        begin = min([0.0, *(stage.start for stage in turn.stages)])
        root = self._tracer.start_span(
            f"invoke_agent {avatar}".strip(),
            context=api.set_span_in_context(api.INVALID_SPAN),
            attributes=self._turn_attributes(turn, avatar),
            start_time=_ns(zero + begin),
        )
        inside = api.set_span_in_context(root)
        for stage in turn.stages:
            name, kind, attributes = self._stage(stage, turn)
            span = self._tracer.start_span(
                name,
                context=inside,
                kind=kind,
                attributes=attributes,
                start_time=_ns(zero + stage.start),
            )
            span.end(_ns(zero + stage.end))
        if turn.outcome == "failed":
            root.set_attribute("error.type", "turn_failed")
            root.set_status(api.StatusCode.ERROR, "the reply failed or broke off")
        root.end(_ns(now))

    def _turn_attributes(self, turn: TurnTrace, avatar: str) -> dict[str, AttributeValue]:
        attributes: dict[str, AttributeValue] = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.provider.name": self._llm_provider,
            "gen_ai.agent.name": avatar,
            "gen_ai.conversation.id": turn.session,
            "avatar_server.turn.number": turn.turn,
            "avatar_server.turn.kind": turn.kind,
            "avatar_server.turn.outcome": turn.outcome,
            "avatar_server.turn.budget_ms": turn.budget_ms,
        }
        if turn.voice_to_voice_ms is not None:
            attributes["avatar_server.turn.voice_to_voice_ms"] = turn.voice_to_voice_ms
        if turn.acknowledged_ms is not None:
            attributes["avatar_server.turn.acknowledged_ms"] = turn.acknowledged_ms
        if turn.overran:
            attributes["avatar_server.turn.overran"] = turn.overran
        if turn.route:
            attributes["avatar_server.turn.route"] = turn.route
        return attributes | self._usage(turn) | self._messages(turn)

    def _stage(
        self, stage: StageSpan, turn: TurnTrace
    ) -> tuple[str, api.SpanKind, dict[str, AttributeValue]]:
        attributes: dict[str, AttributeValue] = {"avatar_server.stage": stage.stage}
        if stage.stage == _LLM_STAGE and turn.llm is not None:
            attributes |= {
                "gen_ai.operation.name": "chat",
                "gen_ai.provider.name": self._llm_provider,
                "gen_ai.request.model": self._model,
                "gen_ai.conversation.id": turn.session,
                "gen_ai.output.type": "text",
            }
            attributes |= self._usage(turn) | self._messages(turn)
            return f"chat {self._model}", api.SpanKind.CLIENT, attributes
        if model := self._models.get(stage.stage):
            attributes["gen_ai.request.model"] = model
        if stage.stage == "route" and turn.route:
            attributes["avatar_server.turn.route"] = turn.route
        return stage.stage, api.SpanKind.INTERNAL, attributes

    def _usage(self, turn: TurnTrace) -> dict[str, AttributeValue]:
        if (used := turn.llm) is None:
            return {}
        counts = {
            "gen_ai.usage.input_tokens": used.prompt_tokens,
            "gen_ai.usage.cache_read.input_tokens": used.cached_tokens,
            "gen_ai.usage.output_tokens": used.reply_tokens,
        }
        # What an engine does not tell is left out: none is not zero.
        return {name: count for name, count in counts.items() if count}

    def _messages(self, turn: TurnTrace) -> dict[str, AttributeValue]:
        if not self._text:
            return {}
        said = {
            "gen_ai.input.messages": ("user", turn.viewer_text),
            "gen_ai.output.messages": ("assistant", turn.reply_text),
        }
        return {name: _message(role, text) for name, (role, text) in said.items() if text}


def _message(role: str, text: str) -> str:
    message: dict[str, object] = {"role": role, "parts": [{"type": "text", "content": text}]}
    if role == "assistant":
        message["finish_reason"] = "stop"
    return json.dumps([message], ensure_ascii=False)


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)
