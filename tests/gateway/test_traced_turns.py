"""Turns of a running server as a collector gets them."""

from __future__ import annotations

import time

import httpx
import pytest

from tests.gateway.serving import StartServer
from tests.observe.otlp import collector


def test_a_finished_turn_is_sent_to_the_collector(
    monkeypatch: pytest.MonkeyPatch, start: StartServer
) -> None:
    with collector() as collected:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collected.url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "none")
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
        server = start("--set", "observe.otel=true")
        made = httpx.post(f"{server.url}/v1/sessions", json={"avatar": "good"}, timeout=30)
        session = made.json()["id"]
        deadline = time.monotonic() + 15
        while not collected.spans():
            assert time.monotonic() < deadline, server.text()
            time.sleep(0.05)
    root = next(span for span in collected.spans() if not span.parent_span_id)
    assert root.name == "invoke_agent good"
    assert session in str(root.attributes)
    assert abs(root.end_time_unix_nano / 1e9 - time.time()) < 60


def test_a_server_ends_at_once_though_its_collector_does_not_answer(
    monkeypatch: pytest.MonkeyPatch, start: StartServer
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    server = start("--set", "observe.otel=true")
    httpx.post(f"{server.url}/v1/sessions", json={"avatar": "good"}, timeout=30)
    server.process.terminate()
    assert server.process.wait(10) == 0
    assert "Traceback" not in server.text()
