"""How vLLM is started: its environment and its engine's arguments."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from avatar_server.config import LlmSettings
from avatar_server.inference.llm.engine.contract import EngineError
from avatar_server.inference.llm.engine.vllm_guard import MARK

ENVIRONMENT = {
    # The engine's process is made anew: a copy of this one, with its threads, would be broken.
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
    # Nothing is sent to anybody.
    "VLLM_NO_USAGE_STATS": "1",
    # Its messages go where ours go.
    "VLLM_CONFIGURE_LOGGING": "0",
    MARK: "1",
}

MAX_SEQS = 32
"""A waiting request never evicts a running one, so there is room for more than are ever asked:
per session a reply, a speculative one, a decision about the route and a prompt read ahead."""
BATCHED_TOKENS = 2_048
"""Prompt tokens read in one step: replies of others stand still that long."""
KV_CACHE_BYTES = 12 * 2**30
"""Bytes, not a share of the GPU: speech and drawing have theirs beside it."""
FREE_SHARE = 0.5
"""Share of the GPU that must be free at the start, which is all that vLLM's
`gpu_memory_utilization` means where the cache is given in bytes. Its default of 0.9 would refuse
to start beside the models of speech."""


def set_environment() -> None:
    """To be called before vLLM is imported. What an operator has set stands."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)


def engine_arguments(model: Path | str, settings: LlmSettings) -> dict[str, Any]:
    """Arguments of `AsyncEngineArgs`; `settings.options` win over what is set here."""
    return {
        "model": str(model),
        "max_model_len": settings.context_tokens,
        # Lower first, and within a priority whoever came first.
        "scheduling_policy": "priority",
        "max_num_seqs": MAX_SEQS,
        "max_num_batched_tokens": BATCHED_TOKENS,
        "kv_cache_memory_bytes": KV_CACHE_BYTES,
        "gpu_memory_utilization": FREE_SHARE,
        "enable_prefix_caching": True,
        # The model could look at pictures, too; its eyes stay out of memory.
        "language_model_only": True,
        # Ours are kept instead, see `VllmStats`.
        "disable_log_stats": True,
        **settings.options,
    }


def make_arguments(model: Path | str, settings: LlmSettings) -> Any:
    """The `AsyncEngineArgs`. Raises `EngineError` for options that vLLM does not know."""
    from vllm.engine.arg_utils import AsyncEngineArgs

    values = engine_arguments(model, settings)
    if unknown := sorted(set(values) - set(AsyncEngineArgs.__dataclass_fields__)):
        raise EngineError(
            f"llm.options: vLLM knows no {', '.join(unknown)}; its engine arguments are listed "
            "in its documentation"
        )
    try:
        return AsyncEngineArgs(**values)
    except (TypeError, ValueError) as error:
        raise EngineError(f"llm.options: {error}") from error
