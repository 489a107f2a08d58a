"""Where settings come from, and the errors of those that cannot be used."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsError

from avatar_server.config.base import ConfigError
from avatar_server.config.settings import ENVIRONMENT_PREFIX, Settings
from avatar_server.paths import configs_dir

# Read by `paths`: where files lie is no setting, since the settings are among the files.
PATH_VARIABLES = frozenset({"AVATAR_SERVER_CACHE", "AVATAR_SERVER_DATA"})
# Read by the commands that talk to a running server.
CLIENT_VARIABLES = frozenset({"AVATAR_SERVER_URL", "AVATAR_SERVER_KEY"})


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
        if setting == name.lower() or name in PATH_VARIABLES | CLIENT_VARIABLES:
            continue
        if setting.partition("__")[0] not in Settings.model_fields:
            raise ConfigError(
                f"the environment variable {name} names no setting; "
                f"a setting is named like {ENVIRONMENT_PREFIX}HTTP__PORT"
            )


class _Fixed(Settings):
    """Settings that do not read the environment."""

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


def settings_from_values(values: dict[str, Any]) -> Settings:
    """Settings from exactly these values; the environment is not read."""
    return _Fixed(**values)


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
