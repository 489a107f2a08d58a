"""What vLLM's scheduler says of itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class VllmStats:
    """The latest figures; a stat logger of vLLM's as far as that calls one.

    vLLM does not promise that the shape of its figures stays, so what is missing counts as 0.
    """

    running: int = 0
    waiting: int = 0
    cache_used: float = 0.0
    preempted: int = 0
    """Requests stopped because the cache was full, and read again: there should be none."""

    def __call__(self, vllm_config: Any, engine_index: int = 0) -> VllmStats:
        """vLLM makes its loggers by calling what it is given."""
        del vllm_config, engine_index
        return self

    def record(
        self,
        scheduler_stats: Any = None,
        iteration_stats: Any = None,
        mm_cache_stats: Any = None,
        engine_idx: int = 0,
    ) -> None:
        del mm_cache_stats, engine_idx
        if scheduler_stats is not None:
            self.running = int(getattr(scheduler_stats, "num_running_reqs", 0))
            self.waiting = int(getattr(scheduler_stats, "num_waiting_reqs", 0))
            self.cache_used = float(getattr(scheduler_stats, "kv_cache_usage", 0.0))
        if iteration_stats is not None:
            self.preempted += int(getattr(iteration_stats, "num_preempted_reqs", 0))

    def log_engine_initialized(self) -> None: ...

    def log(self) -> None: ...

    def record_sleep_state(self, is_awake: int, level: int) -> None: ...
