"""What the commands share: options, exit codes, settings, and a sentence where one is wrong."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml
from rich.console import Console

from avatar_server.avatars import AvatarError, AvatarSpec, find_avatars
from avatar_server.config import ConfigError, Settings, load_settings
from avatar_server.inference.available import lacking
from avatar_server.observe.otel import otel_lacks

FINE, FAILED, WRONG_USE = 0, 1, 2
INTERRUPTED = 130
"""As shells do it: 128 + SIGINT."""

ConfigOption = Annotated[
    str, typer.Option("--config", "-c", help="A shipped configuration (cpu, h100) or a YAML file.")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY.PATH=VALUE", help="Change one setting; may be repeated."),
]
JsonOption = Annotated[Path | None, typer.Option("--json", help="Write the figures to this file.")]


def parse_sets(pairs: list[str]) -> dict[str, Any]:
    """`["http.port=9000"]` to `{"http": {"port": 9000}}`; raises `ConfigError`."""
    values: dict[str, Any] = {}
    for pair in pairs:
        path, equals, text = pair.partition("=")
        keys = path.strip().split(".")
        if not equals or not all(keys):
            raise ConfigError(f"--set {pair!r}: write it as key.path=value, like http.port=9000")
        try:
            value = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise ConfigError(f"--set {pair!r}: the value is not YAML") from error
        place = values
        for key in keys[:-1]:
            inner = place.setdefault(key, {})
            if not isinstance(inner, dict):
                raise ConfigError(f"--set {pair!r}: {key} already has a value")
            place = inner
        place[keys[-1]] = value
    return values


def stop_with(message: str, code: int) -> typer.Exit:
    """Print a sentence to standard error; raise what this returns."""
    print(message, file=sys.stderr)
    return typer.Exit(code)


def read_settings(config: str, sets: list[str] | None, flags: dict[str, Any]) -> Settings:
    """The configuration; flags win over `--set`. Raises `ConfigError`."""
    values = parse_sets([*(sets or []), *(f"{key}={value}" for key, value in flags.items())])
    return load_settings(config, values)


def settings_or_exit(config: str, sets: list[str] | None, flags: dict[str, Any]) -> Settings:
    """`read_settings`, or exit code 2 with what is wrong."""
    try:
        return read_settings(config, sets, flags)
    except ConfigError as error:
        raise stop_with(str(error), WRONG_USE) from error


def usable_avatars(settings: Settings) -> Mapping[str, AvatarSpec]:
    """All avatars. Raises `AvatarError` where there is none, or one that cannot be used."""
    avatars = find_avatars(settings.avatar_dirs)
    if not avatars:
        raise AvatarError(
            "There is no avatar. Name a folder that holds some in the setting avatar_dirs."
        )
    if unknown := sorted(set(settings.sessions.always_on) - set(avatars)):
        raise AvatarError(
            f"sessions.always_on names {', '.join(unknown)}, and there is no such avatar. There "
            f"are: {', '.join(sorted(avatars))}."
        )
    return avatars


def avatars_or_exit(settings: Settings) -> Mapping[str, AvatarSpec]:
    """`usable_avatars`, or exit code 2 with what is wrong."""
    try:
        return usable_avatars(settings)
    except AvatarError as error:
        raise stop_with(str(error), WRONG_USE) from error


def ensure_models(settings: Settings, console: Console) -> None:
    """Fetch what is missing, with a progress bar; exit code 1 where a model cannot be had.

    Exit code 2, and nothing fetched, where this version lacks a configured engine.
    """
    lacks = lacking(settings)
    if untraced := otel_lacks(settings.observe):
        lacks.append(untraced)
    if lacks:
        raise stop_with("\n".join(lacks), WRONG_USE)
    from avatar_server.models import ModelError, ModelStore, RichProgress, default_models

    store = ModelStore()
    try:
        names = default_models(settings)
        missing = store.missing(names)
        if not missing:
            return
        size_mb = sum(entry.size_bytes for entry in missing) / 1e6
        console.print(f"Fetching {len(missing)} model(s), {size_mb:.0f} MB, once:")
        with RichProgress(console) as progress:
            store.ensure([entry.name for entry in missing], progress)
    except ModelError as error:
        raise stop_with(str(error), FAILED) from error


def check_json_file(path: Path | None) -> None:
    """Exit code 2 where the file could not be written at the end of a long measurement."""
    if path is not None and not path.parent.is_dir():
        raise stop_with(f"--json {path}: there is no folder {path.parent}", WRONG_USE)


def report_figures(figures: Mapping[str, Any], json_file: Path | None) -> None:
    """Print the figures and write them to `json_file`."""
    text = json.dumps(figures, indent=2)
    if json_file is not None:
        json_file.write_text(text + "\n", encoding="utf-8")
    print(text)
