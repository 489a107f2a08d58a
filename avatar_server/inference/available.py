"""Which configured engines this version has: asked before anything is fetched for them."""

from __future__ import annotations

from avatar_server.config import LlmSettings, Settings, TtsSettings


def llm_lacks(settings: LlmSettings) -> str | None:
    """Why the language model's engine cannot run, and what to do; None where it can."""
    if settings.engine != "vllm":
        return None
    return (
        "llm.engine is 'vllm', which runs on a GPU and is not part of this version. Start vLLM's "
        "own server and set llm.engine: openai with llm.base_url, or use llm.engine: llamacpp."
    )


def tts_lacks(settings: TtsSettings) -> str | None:
    """Why the voice's engine cannot run, and what to do; None where it can."""
    if settings.engine != "kokoro-torch":
        return None
    return (
        "tts.engine is 'kokoro-torch', which runs on a GPU and is not part of this version. "
        "Set tts.engine to 'auto', 'kokoro' or 'piper'."
    )


def lacking(settings: Settings) -> list[str]:
    """A sentence for every configured engine that this version does not have."""
    return [why for why in (llm_lacks(settings.llm), tts_lacks(settings.tts)) if why]
