"""What the product's own environment has, and has not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from avatar_server.config import LlmSettings, TtsSettings
from avatar_server.inference.available import llm_lacks
from avatar_server.inference.llm.engine import EngineError
from avatar_server.inference.loading import build_engine
from avatar_server.inference.tts import TtsError, build_synthesizer
from avatar_server.models import ModelStore

ROOT = Path(__file__).parents[2]
without_gpu_packages = pytest.mark.skipif(
    llm_lacks(LlmSettings(engine="vllm")) is None, reason="vLLM is installed here"
)


@pytest.mark.skipif(not os.environ.get("CI"), reason="made by .ci/vllm, which only CI must run")
def test_ci_has_an_environment_for_vllm() -> None:
    python = ROOT / ".venv-vllm" / "bin" / "python"
    assert python.exists(), "CI must run .ci/vllm, or vLLM is not tested at all"


@without_gpu_packages
def test_vllm_says_how_it_is_installed() -> None:
    with pytest.raises(EngineError, match=r"pip install -e '\.\[gpu\]'"):
        build_engine(LlmSettings(engine="vllm"), 1, None)


@without_gpu_packages
def test_kokoro_on_a_gpu_says_how_it_is_installed() -> None:
    settings = TtsSettings(engine="kokoro-torch", device="cuda")
    with pytest.raises(TtsError, match=r"pip install -e '\.\[gpu\]'"):
        build_synthesizer(ModelStore(), settings, 1)
