"""Which configured engines are installed: asked before anything is fetched for them."""

from __future__ import annotations

import importlib.util

from avatar_server.config import LlmSettings, Settings, TtsSettings

INSTALL = "pip install -e '.[gpu]'"
"""What brings vLLM, PyTorch and Kokoro; not part of the base, which needs no GPU."""


def llm_lacks(settings: LlmSettings) -> str | None:
    """Why the language model's engine cannot run, and what to do; None where it can."""
    if settings.engine != "vllm" or _installed("vllm"):
        return None
    return (
        "llm.engine is 'vllm', which is not installed: on the machine with the GPU, run "
        f"{INSTALL}. Without a GPU, set llm.engine: openai with llm.base_url to use an endpoint "
        "elsewhere, or llm.engine: llamacpp for a small model here."
    )


def tts_lacks(settings: TtsSettings) -> str | None:
    """Why the voice's engine cannot run, and what to do; None where it can."""
    if settings.engine != "kokoro-torch" or (_installed("torch") and _installed("kokoro")):
        return None
    return (
        "tts.engine is 'kokoro-torch', whose packages are not installed: on the machine with the "
        f"GPU, run {INSTALL}. Without a GPU, set tts.engine to 'auto', 'kokoro' or 'piper'."
    )


def lacking(settings: Settings) -> list[str]:
    """A sentence for every configured engine that is not installed."""
    return [why for why in (llm_lacks(settings.llm), tts_lacks(settings.tts)) if why]


def _installed(package: str) -> bool:
    spec = importlib.util.find_spec(package)
    # A mere folder of that name on the path is found, too, but has no origin.
    return spec is not None and spec.origin is not None
