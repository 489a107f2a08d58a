"""What an utterance asks for, and whether it continues what was asked before."""

from avatar_server.inference.llm.router.embedding import EmbeddingRouter
from avatar_server.inference.llm.router.examples import (
    DatasetError,
    Example,
    load_examples,
    parse_example,
)
from avatar_server.inference.llm.router.language_model import LlmRouter
from avatar_server.inference.llm.router.routes import (
    BUILTIN_ROUTES,
    Decision,
    LearningRouter,
    Route,
    Router,
    Turn,
)

__all__ = [
    "BUILTIN_ROUTES",
    "DatasetError",
    "Decision",
    "EmbeddingRouter",
    "Example",
    "LearningRouter",
    "LlmRouter",
    "Route",
    "Router",
    "Turn",
    "load_examples",
    "parse_example",
]
