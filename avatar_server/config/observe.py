"""Settings of logs, traces and metrics."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from avatar_server.config.base import Section


class ObserveSettings(Section):
    """Logs and traces."""

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Less important lines are left out."""
    log_json: bool = False
    """One JSON object a line, with session and turn, instead of text."""
    otel: bool = False
    """Make an OpenTelemetry trace of each turn (extra `otel`). Where it goes is said by the
    standard variables, such as OTEL_EXPORTER_OTLP_ENDPOINT."""
    otel_text: bool = False
    """Whether what viewers and avatars said is part of these traces."""
    trace_turns: int = Field(default=200, ge=0)
    """Turns kept in memory for the overlay and the operator API."""
