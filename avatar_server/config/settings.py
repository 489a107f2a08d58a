"""All settings together."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from avatar_server.config.capacity import CapacitySettings
from avatar_server.config.http import HttpSettings
from avatar_server.config.inference import (
    FaceSettings,
    InferenceSettings,
    LlmSettings,
    RouterSettings,
    SttSettings,
    TtsSettings,
)
from avatar_server.config.loadtest import LoadTestSettings
from avatar_server.config.media import MediaSettings
from avatar_server.config.observe import ObserveSettings
from avatar_server.config.recording import RecordingSettings
from avatar_server.config.scheduler import SchedulerSettings
from avatar_server.config.security import SecuritySettings
from avatar_server.config.sessions import SessionSettings, TurnSettings

ENVIRONMENT_PREFIX = "AVATAR_SERVER_"


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
    security: SecuritySettings = SecuritySettings()
    media: MediaSettings = MediaSettings()
    sessions: SessionSettings = SessionSettings()
    turns: TurnSettings = TurnSettings()
    stt: SttSettings = SttSettings()
    tts: TtsSettings = TtsSettings()
    faces: FaceSettings = FaceSettings()
    llm: LlmSettings = LlmSettings()
    router: RouterSettings = RouterSettings()
    inference: InferenceSettings = InferenceSettings()
    capacity: CapacitySettings = CapacitySettings()
    scheduler: SchedulerSettings = SchedulerSettings()
    recording: RecordingSettings = RecordingSettings()
    observe: ObserveSettings = ObserveSettings()
    loadtest: LoadTestSettings = LoadTestSettings()
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
        overload = self.capacity.overload
        for mark in ("late_share", "frame_cost", "wait"):
            unit = "_ms" if mark == "wait" else ""
            low, high = f"{mark}_low{unit}", f"{mark}_high{unit}"
            if getattr(overload, low) >= getattr(overload, high):
                raise ValueError(f"capacity.overload.{low} must be below {high}")
        return self
