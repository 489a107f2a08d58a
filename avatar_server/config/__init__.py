"""Settings: defaults here, then a YAML file, then `AVATAR_SERVER_…` variables, then the CLI.

A nested setting is named with two underscores in the environment:
`AVATAR_SERVER_HTTP__PORT=9000`. An unknown key is an error that names the key.
"""

from avatar_server.config.base import ConfigError, Section
from avatar_server.config.capacity import CapacitySettings, OverloadSettings
from avatar_server.config.http import HttpSettings
from avatar_server.config.inference import (
    EngineSettings,
    FaceSettings,
    InferenceSettings,
    LlmSettings,
    SttSettings,
    TtsSettings,
)
from avatar_server.config.load import PATH_VARIABLES, load_settings, settings_from_values
from avatar_server.config.loadtest import LoadTestSettings
from avatar_server.config.media import (
    AudioSettings,
    LowVideoSettings,
    MediaSettings,
    VideoSettings,
)
from avatar_server.config.network import IceServer
from avatar_server.config.observe import ObserveSettings
from avatar_server.config.recording import RecordingSettings
from avatar_server.config.scheduler import SchedulerSettings
from avatar_server.config.security import SecuritySettings
from avatar_server.config.sessions import SessionSettings, TurnSettings
from avatar_server.config.settings import ENVIRONMENT_PREFIX, Settings

__all__ = [
    "ENVIRONMENT_PREFIX",
    "PATH_VARIABLES",
    "AudioSettings",
    "CapacitySettings",
    "ConfigError",
    "EngineSettings",
    "FaceSettings",
    "HttpSettings",
    "IceServer",
    "InferenceSettings",
    "LlmSettings",
    "LoadTestSettings",
    "LowVideoSettings",
    "MediaSettings",
    "ObserveSettings",
    "OverloadSettings",
    "RecordingSettings",
    "SchedulerSettings",
    "Section",
    "SecuritySettings",
    "SessionSettings",
    "Settings",
    "SttSettings",
    "TtsSettings",
    "TurnSettings",
    "VideoSettings",
    "load_settings",
    "settings_from_values",
]
