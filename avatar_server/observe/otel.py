"""Whether turns are traced: the SDK and its OTLP exporter come with the extra `otel`."""

from __future__ import annotations

import importlib.util
import logging
from typing import TYPE_CHECKING

import avatar_server
from avatar_server.config import ObserveSettings, Settings

if TYPE_CHECKING:
    from avatar_server.observe.tracing import TurnTracer

log = logging.getLogger(__name__)


def otel_lacks(settings: ObserveSettings) -> str | None:
    """Why turns cannot be traced, and what to do; None where they can, or are not to be."""
    wanted = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")
    if not settings.otel or all(_installed(name) for name in wanted):
        return None
    return (
        "observe.otel is set, and OpenTelemetry's SDK or OTLP exporter is not installed: run "
        "pip install -e '.[otel]', or set observe.otel: false."
    )


def open_tracer(settings: Settings) -> TurnTracer | None:
    """The tracer that the settings and the variables OTEL_… ask for; none where they do not."""
    if not settings.observe.otel:
        return None
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    from avatar_server.observe.tracing import SERVICE, TurnTracer

    # A thread of the SDK's own sends; what it cannot send it drops, and logs.
    try:
        processor = BatchSpanProcessor(OTLPSpanExporter())
    except Exception as error:
        log.error("turns are not traced, since an OTEL_… variable cannot be used: %s", error)
        return None
    ours = {"service.name": SERVICE, "service.version": avatar_server.__version__}
    resource = Resource(ours).merge(OTELResourceDetector().detect())
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(processor)
    return TurnTracer(provider, settings)


def _installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:
        return False
