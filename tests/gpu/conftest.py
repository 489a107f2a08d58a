"""Tests that run in vLLM's own environment (`.ci/vllm`), and are skipped in the product's.

The product's environment has neither vLLM nor PyTorch, and must not need them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from avatar_server.config import LlmSettings
from avatar_server.inference.available import llm_lacks

HERE = Path(__file__).parent
OUTSIDE = "test_vllm_environment.py"
"""Runs in the product's environment instead."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    inside = llm_lacks(LlmSettings(engine="vllm")) is None
    for item in items:
        if HERE not in item.path.parents:
            continue
        if not inside and item.path.name != OUTSIDE:
            item.add_marker(
                pytest.mark.skip(reason="runs in the environment that .ci/vllm makes: vLLM, torch")
            )


@pytest.fixture(scope="session")
def run() -> Iterator[Callable[[Coroutine[Any, Any, Any]], Any]]:
    """Runs a coroutine. One loop for all: an engine belongs to the loop it was first used on."""
    with asyncio.Runner() as runner:
        yield runner.run


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tiny_model import make_model

    return make_model(tmp_path_factory.mktemp("tiny") / "tiny-qwen3.5-moe")
