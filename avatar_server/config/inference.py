"""Settings of the inference process and its models."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, SecretStr

from avatar_server.config.base import Section


class EngineSettings(Section):
    """Threads of one inference stage."""

    threads: int = Field(default=1, ge=1)
    """On the CPU; more than the cores left over by the avatars slow everything down."""


class SttSettings(EngineSettings):
    """Speech to text."""

    model: str = "whisper-tiny.en"
    """A name of the model catalogue, or a path to a CTranslate2 Whisper model."""
    device: Literal["cpu", "cuda"] = "cpu"
    """Where it runs."""
    compute_type: str = "int8"
    """Precision, as CTranslate2 names it: int8, int8_float16, float16, float32."""
    language: str | None = None
    """Two-letter code; none lets a multilingual model find out."""


class TtsSettings(EngineSettings):
    """Text to speech."""

    engine: Literal["auto", "piper", "kokoro", "kokoro-torch"] = "auto"
    """`auto`: the avatar's own voice where this machine is fast enough for it, else piper."""
    device: Literal["cpu", "cuda"] = "cpu"
    """Where it runs."""
    max_rtf: float = Field(default=0.5, gt=0)
    """`auto` takes Kokoro only where its measured real-time factor is below this / sessions."""
    first_piece_ms: int = Field(default=300, ge=100)
    """Sound decoded before a clause's first piece is sent."""
    kept_mb: int = Field(default=64, ge=0)
    """Memory for speech of the avatar's own words (greeting, facts, small talk), so that what was
    said once is not made again; 64 hold 11 minutes. 0 keeps none."""


class FaceSettings(EngineSettings):
    """Lip-sync networks, for avatars with the renderer `neural`."""

    device: Literal["auto", "cpu", "cuda", "tensorrt"] = "auto"
    """Where they run; `auto`: the fastest that the installed ONNX Runtime and this machine have."""
    ahead_frames: int = Field(default=3, ge=1, le=6)
    """A face is asked for so many frames before it is shown. More gives the network more time, and
    makes the mouth later where speech begins."""


class LlmSettings(EngineSettings):
    """The language model."""

    engine: Literal["llamacpp", "openai", "vllm"] = "llamacpp"
    """`llamacpp`: in the inference process; `vllm`: likewise, on a GPU; `openai`: any endpoint."""
    model: str = "smollm2-135m-instruct"
    """A name of the model catalogue, a path, or the name an endpoint knows."""
    base_url: str | None = None
    """For `openai`: the endpoint, e.g. one's own vLLM."""
    api_key: SecretStr | None = None
    """For `openai`. Also read from AVATAR_SERVER_LLM__API_KEY."""
    context_tokens: int = Field(default=2_048, ge=512)
    """Per session."""
    max_reply_tokens: int = Field(default=80, ge=8)
    """A reply is cut after this many tokens."""
    max_reply_sentences: int = Field(default=3, ge=1)
    """A reply ends after this many sentences."""
    temperature: float = Field(default=0.3, ge=0)
    """0 always takes the likeliest word; higher is more varied and less exact."""
    timeout_s: float = Field(default=20.0, gt=0)
    """A reply that has not begun, or not gone on, for this long has failed."""
    fact_threshold: float = Field(default=0.72, ge=0, le=1)
    """Similarity from which a fact answers a question outright, word for word."""
    small_talk: bool = True
    """Answer greetings, thanks, jokes and the like from a list: at once, and better than a small
    model. A large one does it better by itself."""
    options: dict[str, Any] = Field(default={})
    """Passed on to the engine (vLLM engine arguments)."""


class RouterSettings(Section):
    """What decides what an utterance asks for."""

    engine: Literal["embedding", "llm", "none"] = "embedding"
    """`embedding`: small models on the CPU, some 20 ms a decision; `llm`: the language model in one
    step, for a large one; `none`: everything is answered, and an avatar's routes are not used."""


class InferenceSettings(Section):
    """The inference process."""

    nice: int = Field(default=10, ge=0, le=19)
    """OS priority below the avatars', which need their 30 frames a second. 0 on a GPU host."""
    sched: Literal["normal", "batch", "idle"] = "batch"
    """Linux scheduling class."""
    restart_limit_per_minute: int = Field(default=6, ge=1)
    """After this many restarts in a minute the next one waits until the minute is over."""
    start_timeout_s: float = Field(default=600.0, gt=0)
    """A process that has not loaded its models by then is started again."""
    hang_timeout_s: float = Field(default=10.0, ge=3)
    """A ready process silent for this long is killed and started again; it is asked every 1 s."""
