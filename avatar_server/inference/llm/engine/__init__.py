"""The language model engines, behind one interface (`LlmEngine`)."""

from avatar_server.inference.llm.engine.contract import (
    ChatMessage,
    EngineDeadError,
    EngineError,
    EngineMetrics,
    LabelRequest,
    LlmEngine,
    LlmRequest,
    MetricsTally,
    Priority,
    TokenCount,
)
from avatar_server.inference.llm.engine.labels import LabelScores

__all__ = [
    "ChatMessage",
    "EngineDeadError",
    "EngineError",
    "EngineMetrics",
    "LabelRequest",
    "LabelScores",
    "LlmEngine",
    "LlmRequest",
    "MetricsTally",
    "Priority",
    "TokenCount",
]
