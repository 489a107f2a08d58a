"""Traces of turns as an OpenTelemetry backend gets them."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from avatar_server.config import ObserveSettings, settings_from_values
from avatar_server.observe.otel import open_tracer, otel_lacks
from avatar_server.observe.tracing import TurnTracer
from avatar_server.protocol.messages import LlmUse, StageSpan, TurnTrace
from tests.observe.otlp import collector

NOW = 1_800_000_000.0
LLM = {"engine": "openai", "model": "a-model", "base_url": "http://llm.example/v1"}


def stage(name: str, start: float, end: float) -> StageSpan:
    return StageSpan(stage=name, start=start, end=end)


def a_turn(**more: Any) -> TurnTrace:
    values: dict[str, Any] = {
        "session": "s1",
        "turn": 3,
        "kind": "speech",
        "voice_to_voice_ms": 900.0,
        "stages": [
            stage("endpoint", 0.0, 0.3),
            stage("stt", -0.05, 0.25),
            stage("route", 0.25, 0.3),
            stage("llm", 0.3, 0.7),
            stage("tts", 0.7, 0.85),
            stage("playout", 0.85, 0.9),
        ],
        "budget_ms": 1_200.0,
        "ended": 4.0,
        "route": "question",
        "llm": LlmUse(prompt_tokens=200, cached_tokens=150, reply_tokens=40),
        "viewer_text": "What is your name?",
        "reply_text": "I am Theo.",
    }
    return TurnTrace(**(values | more))


def traced(turn: TurnTrace, observe: Mapping[str, Any] | None = None) -> dict[str, ReadableSpan]:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    settings = settings_from_values({"llm": LLM, "observe": dict(observe or {})})
    TurnTracer(provider, settings).turn(turn, "theo", NOW)
    return {span.name: span for span in exporter.get_finished_spans()}


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def test_a_turn_is_one_trace_whose_stages_lie_where_they_were() -> None:
    spans = traced(a_turn())
    root = spans["invoke_agent theo"]
    assert root.parent is None
    assert root.start_time == round((NOW - 4.05) * 1e9)
    assert root.end_time == round(NOW * 1e9)
    assert set(spans) == {
        "invoke_agent theo", "endpoint", "stt", "route", "chat a-model", "tts", "playout",
    }  # fmt: skip
    for name, span in spans.items():
        assert span.context.trace_id == root.context.trace_id
        if span is not root:
            assert span.parent is not None, name
            assert span.parent.span_id == root.context.span_id
    chat = spans["chat a-model"]
    assert (chat.start_time, chat.end_time) == (
        round((NOW - 4 + 0.3) * 1e9),
        round((NOW - 4 + 0.7) * 1e9),
    )


def test_the_language_model_is_described_by_the_conventions_for_generative_ai() -> None:
    spans = traced(a_turn())
    chat = attributes(spans["chat a-model"])
    assert chat["gen_ai.operation.name"] == "chat"
    assert chat["gen_ai.provider.name"] == "openai"
    assert chat["gen_ai.request.model"] == "a-model"
    assert chat["gen_ai.usage.input_tokens"] == 200
    assert chat["gen_ai.usage.cache_read.input_tokens"] == 150
    assert chat["gen_ai.usage.output_tokens"] == 40
    root = attributes(spans["invoke_agent theo"])
    assert root["gen_ai.operation.name"] == "invoke_agent"
    assert root["gen_ai.agent.name"] == "theo"
    assert root["gen_ai.conversation.id"] == "s1"
    assert root["avatar_server.turn.voice_to_voice_ms"] == 900.0
    assert root["avatar_server.turn.route"] == "question"


def test_what_was_said_is_part_of_it_only_where_that_is_allowed() -> None:
    silent = traced(a_turn())
    assert "name?" not in str([attributes(span) for span in silent.values()])
    assert "Theo" not in str([attributes(span) for span in silent.values()])
    told = attributes(traced(a_turn(), {"otel_text": True})["chat a-model"])
    (asked,) = json.loads(told["gen_ai.input.messages"])
    assert asked == {"role": "user", "parts": [{"type": "text", "content": "What is your name?"}]}
    (answered,) = json.loads(told["gen_ai.output.messages"])
    assert answered["role"] == "assistant"
    assert answered["parts"][0]["content"] == "I am Theo."


def test_a_reply_without_the_language_model_has_no_chat_and_a_failed_one_an_error() -> None:
    known = traced(a_turn(llm=None))
    assert "llm" in known
    assert "gen_ai.operation.name" not in attributes(known["llm"])
    failed = traced(a_turn(outcome="failed"))["invoke_agent theo"]
    assert failed.status.status_code is StatusCode.ERROR
    assert attributes(failed)["error.type"] == "turn_failed"


def test_tokens_that_an_engine_does_not_tell_are_left_out() -> None:
    chat = attributes(traced(a_turn(llm=LlmUse(reply_tokens=12)))["chat a-model"])
    assert chat["gen_ai.usage.output_tokens"] == 12
    assert "gen_ai.usage.input_tokens" not in chat


def test_traces_go_where_the_standard_variables_say(monkeypatch: pytest.MonkeyPatch) -> None:
    with collector() as collected:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collected.url)
        monkeypatch.setenv("OTEL_SERVICE_NAME", "reception")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "none")
        tracer = open_tracer(settings_from_values({"observe": {"otel": True}}))
        assert tracer is not None
        tracer.turn(a_turn(), "theo")
        tracer.close()
        deadline = time.monotonic() + 10
        while not collected.requests:
            assert time.monotonic() < deadline
            time.sleep(0.02)
    (resource,) = collected.requests[0].resource_spans
    names = {a.key: a.value.string_value for a in resource.resource.attributes}
    assert names["service.name"] == "reception"
    spans = [span.name for span in collected.spans()]
    assert "invoke_agent theo" in spans
    assert "chat smollm2-135m-instruct" in spans


def test_an_endpoint_that_is_not_there_disturbs_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    tracer = open_tracer(settings_from_values({"observe": {"otel": True}}))
    assert tracer is not None
    began = time.monotonic()
    for _ in range(100):
        tracer.turn(a_turn(), "theo")
    tracer.close()
    assert time.monotonic() - began < 5


def test_nothing_is_traced_unless_asked_for_and_what_is_missing_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert open_tracer(settings_from_values({})) is None
    monkeypatch.setattr("avatar_server.observe.otel._installed", lambda name: False)
    assert otel_lacks(ObserveSettings()) is None
    lacks = otel_lacks(ObserveSettings(otel=True))
    assert lacks is not None
    assert "'.[otel]'" in lacks
