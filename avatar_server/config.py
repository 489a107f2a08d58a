"""Settings: defaults here, then a YAML file, then `AVATAR_SERVER_…` variables, then the CLI.

A nested setting is named with two underscores in the environment:
`AVATAR_SERVER_HTTP__PORT=9000`. An unknown key is an error that names the key.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, model_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from avatar_server.paths import configs_dir

ENVIRONMENT_PREFIX = "AVATAR_SERVER_"
# Read by `paths`: where files lie is no setting, since the settings are among the files.
PATH_VARIABLES = frozenset({"AVATAR_SERVER_CACHE", "AVATAR_SERVER_DATA"})


class ConfigError(ValueError):
    """A configuration that cannot be used; the message says which key and why."""


class Section(BaseModel):
    """Base of the sections: unknown keys are refused, docstrings under fields are kept."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True, frozen=True)


class HttpSettings(Section):
    """The web server."""

    host: str = "127.0.0.1"
    """Address to listen on. Microphones work on localhost or over https only."""
    port: int = Field(default=8080, ge=0, le=65535)
    """TCP port; 0 takes a free one."""
    allowed_origins: list[str] = []
    """Origins (`https://name[:port]`) besides the server's own whose pages may use it."""


class IceServer(Section):
    """A STUN or TURN server, handed to the page and used by the server."""

    urls: list[str]
    """`stun:host:port` or `turn:host:port?transport=udp`."""
    username: str | None = None
    """For TURN."""
    credential: SecretStr | None = None
    """For TURN; every page is given it."""


class VideoSettings(Section):
    """The one encode of a session."""

    width: int = Field(default=1280, ge=160, le=3840, multiple_of=16)
    """Pixels."""
    height: int = Field(default=720, ge=120, le=2160, multiple_of=4)
    """Pixels."""
    fps: int = Field(default=30, ge=1, le=60)
    """Frames a second."""
    preset: Literal["ultrafast", "superfast", "veryfast", "faster", "fast", "medium"] = "ultrafast"
    """x264 preset: slower presets need fewer bits and more CPU. A 1280x720 frame of a speaking
    avatar on one core, at the default `crf`: ultrafast 3.3 ms and 560 kbit/s, superfast 4.7 ms
    and 255 kbit/s; one cannot be told from the other by eye."""
    crf: float = Field(default=24.0, ge=0, le=51)
    """Constant rate factor: lower is better and larger."""
    max_bitrate_bps: int = Field(default=2_500_000, ge=100_000)
    """Cap that the rate buffer enforces."""
    keyframe_min_interval_ms: int = Field(default=500, ge=0)
    """At most one keyframe in this time, however many viewers ask."""
    keyframe_interval_s: float = Field(default=10.0, gt=0)
    """A keyframe at least this often."""


class AudioSettings(Section):
    """The one Opus encode of a session."""

    bitrate_bps: int = Field(default=48_000, ge=6_000, le=256_000)
    """Of the Opus stream."""
    fec: bool = True
    """In-band forward error correction."""


class MediaSettings(Section):
    """WebRTC."""

    video: VideoSettings = VideoSettings()
    audio: AudioSettings = AudioSettings()
    ice_servers: list[IceServer] = []
    """None are needed where browser and server reach each other directly."""
    viewer_timeout_s: float = Field(default=5.0, gt=1)
    """A viewer from whom nothing came for this long is gone."""


class SessionSettings(Section):
    """Sessions and who may join."""

    max_sessions: int = Field(default=2, ge=1)
    """Running avatars at once."""
    max_viewers: int = Field(default=16, ge=1)
    """Viewers of one session."""
    idle_timeout_s: float = Field(default=30.0, gt=0)
    """A session without viewers ends after this long."""
    start_timeout_s: float = Field(default=20.0, gt=0)
    """An avatar process that is not ready by then is killed."""
    hang_timeout_s: float = Field(default=3.0, ge=2)
    """An avatar process silent for this long is killed and started again; it speaks every 1 s."""
    answer_timeout_s: float = Field(default=8.0, gt=0)
    """An avatar process that has not answered a viewer's offer by then is taken for busy."""
    restart_limit_per_minute: int = Field(default=6, ge=1)
    """An avatar process that ends unasked more often than this ends its session."""
    warm_spares: int = Field(default=1, ge=0, le=8)
    """Avatar processes loaded ahead, so that sessions start, and come back, at once."""


class TurnSettings(Section):
    """Turn-taking."""

    speech_threshold: float = Field(default=0.5, gt=0, lt=1)
    """VAD probability from which a frame counts as speech."""
    start_ms: int = Field(default=96, ge=32)
    """Speech of this length opens a turn."""
    barge_in_ms: int = Field(default=150, ge=32)
    """Speech of this length stops a reply."""
    pause_ms: int = Field(default=200, ge=64)
    """At a pause of this length recognition starts, on the chance that the turn is over."""
    end_ms: int = Field(default=300, ge=64)
    """A pause of this length ends the turn where the semantic check says it is complete."""
    max_pause_ms: int = Field(default=1_200, ge=200)
    """A pause of this length ends the turn whatever the check says."""
    end_of_turn_threshold: float = Field(default=0.5, gt=0, lt=1)
    """Probability from which the semantic check counts as complete."""
    max_utterance_s: float = Field(default=30.0, gt=1)
    """Longer speech is cut into turns."""
    pre_roll_ms: int = Field(default=300, ge=0)
    """Sound kept from before speech was noticed."""
    partial_interval_ms: int = Field(default=0, ge=0)
    """Partial transcripts while the viewer speaks, this often; 0 for none."""
    budget_ms: int = Field(default=1_200, ge=200)
    """Voice-to-voice latency that a turn may take."""


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
    options: dict[str, Any] = {}
    """Passed on to the engine (vLLM engine arguments)."""


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


class ObserveSettings(Section):
    """Logs and traces."""

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Less important lines are left out."""
    log_json: bool = False
    """One JSON object a line, with session and turn, instead of text."""
    trace_turns: int = Field(default=200, ge=0)
    """Turns kept in memory for the overlay and the operator API."""


class Settings(BaseSettings):
    """All settings."""

    model_config = SettingsConfigDict(
        env_prefix=ENVIRONMENT_PREFIX,
        env_nested_delimiter="__",
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
    )

    tier: Literal["embedded", "small", "h100"] = "embedded"
    """What the models are sized for; each stage can be set on its own."""
    http: HttpSettings = HttpSettings()
    media: MediaSettings = MediaSettings()
    sessions: SessionSettings = SessionSettings()
    turns: TurnSettings = TurnSettings()
    stt: SttSettings = SttSettings()
    tts: TtsSettings = TtsSettings()
    llm: LlmSettings = LlmSettings()
    inference: InferenceSettings = InferenceSettings()
    observe: ObserveSettings = ObserveSettings()
    avatar_dirs: list[Path] = []
    """Folders with further avatars; the shipped ones and the user's own are always there."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (env_settings, init_settings)

    @model_validator(mode="after")
    def _consistent(self) -> Settings:
        if self.llm.engine == "openai" and not self.llm.base_url:
            raise ValueError("llm.engine is 'openai': set llm.base_url to the endpoint's address")
        if self.turns.end_ms < self.turns.pause_ms:
            raise ValueError("turns.end_ms must not be below turns.pause_ms")
        return self


def load_settings(
    source: Path | str | None = None, overrides: dict[str, Any] | None = None
) -> Settings:
    """Settings from a YAML file, or the name of a shipped one ("cpu", "h100"); default "cpu".

    `overrides` is a nested dict that wins over everything. Raises `ConfigError`.
    """
    path = _find(source or "cpu")
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not YAML: {error}") from error
    if not isinstance(values, dict):
        raise ConfigError(f"{path} must be a mapping of settings, found {type(values).__name__}")
    _refuse_unknown_variables()
    try:
        settings = Settings(**values)
        if overrides:
            merged = _merge(settings.model_dump(), overrides)
            settings = settings_from_values(merged)
    except ValidationError as error:
        raise ConfigError(_explain(path, error)) from error
    except SettingsError as error:
        raise ConfigError(
            f"an {ENVIRONMENT_PREFIX}… variable of the environment cannot be read: {error}. "
            f"A single setting is named like {ENVIRONMENT_PREFIX}HTTP__PORT=9000"
        ) from error
    return settings


def _refuse_unknown_variables() -> None:
    for name in os.environ:
        setting = name.removeprefix(ENVIRONMENT_PREFIX).lower()
        if setting == name.lower() or name in PATH_VARIABLES:
            continue
        if setting.partition("__")[0] not in Settings.model_fields:
            raise ConfigError(
                f"the environment variable {name} names no setting; "
                f"a setting is named like {ENVIRONMENT_PREFIX}HTTP__PORT"
            )


def settings_from_values(values: dict[str, Any]) -> Settings:
    """Settings from exactly these values; the environment is not read."""

    class Fixed(Settings):
        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,
            file_secret_settings: PydanticBaseSettingsSource,
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            return (init_settings,)

    return Fixed(**values)


def _find(source: Path | str) -> Path:
    path = Path(source).expanduser()
    if path.is_file():
        return path
    shipped = configs_dir() / f"{source}.yaml"
    if shipped.is_file():
        return shipped
    names = sorted(p.stem for p in configs_dir().glob("*.yaml"))
    raise ConfigError(f"no configuration {str(source)!r}: give a file, or one of {names}")


def _merge(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        if isinstance(value, dict) and isinstance(merged.get(key), dict):
            merged[key] = _merge(merged[key], value)
        else:
            merged[key] = value
    return merged


def _explain(path: Path, error: ValidationError) -> str:
    count = error.error_count()
    lines = [f"{count} setting(s) of {path}, the environment or the command line cannot be used:"]
    for item in error.errors():
        key = ".".join(str(part) for part in item["loc"]) or "(all)"
        lines.append(f"  {key}: {item['msg']}")
    return "\n".join(lines)
