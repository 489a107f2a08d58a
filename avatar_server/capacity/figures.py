"""Measured costs of the work that sessions cause, and where they are kept between starts."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import sys
import time
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TypeVar

import msgspec

from avatar_server.avatars import AvatarError, AvatarSpec, find_avatars
from avatar_server.capacity.machine import Machine, this_machine
from avatar_server.config import Settings
from avatar_server.paths import cache_dir
from avatar_server.protocol.costs import FrameCosts, StageCosts

log = logging.getLogger(__name__)

FORMAT = 2
"""Of the files; part of their key, so that a change of what is measured has all redone."""
MAX_AGE_S = 90 * 86_400
"""A machine changes in ways that no key names: firmware, governors, neighbours."""
_FRAME_PACKAGES = ("av", "numpy", "opencv-python-headless", "resvg-py")
_STAGE_PACKAGES = ("ctranslate2", "onnxruntime", "xllamacpp", "gguf", "vllm", "torch", "numpy")

Costs = TypeVar("Costs", FrameCosts, StageCosts)


class CalibrationCache:
    """Files of measured costs, one for each machine, versions and configuration."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder or cache_dir() / "calibration"

    def load(self, kind: type[Costs], key: str) -> Costs | None:
        """What was measured under this key; None where nothing was, it is too old, or it cannot be
        read."""
        path = self._path(kind, key)
        try:
            if time.time() - path.stat().st_mtime > MAX_AGE_S:
                return None
            return msgspec.json.decode(path.read_bytes(), type=kind)
        except (OSError, msgspec.DecodeError):
            return None

    def store(self, costs: FrameCosts | StageCosts, key: str) -> None:
        """Keep `costs`; a cache that cannot be written costs some seconds at the next start."""
        path = self._path(type(costs), key)
        partial = path.with_suffix(f".{os.getpid()}.partial")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            partial.write_bytes(msgspec.json.format(msgspec.json.encode(costs)))
            partial.replace(path)
        except OSError as error:
            log.warning("the measured costs cannot be kept: %s", error)

    def _path(self, kind: type, key: str) -> Path:
        return self._folder / f"{kind.__name__}-{key}.json"


def machine_for(settings: Settings) -> Machine:
    """This machine, as the costs of these settings are kept under it: the GPU is asked for only
    where they use one."""
    devices = (settings.stt.device, settings.tts.device)
    return this_machine(gpu="cuda" in devices or settings.llm.engine == "vllm")


def frames_key(machine: Machine, settings: Settings) -> str:
    """What the costs of frames depend on."""
    parts = {
        "media": settings.media.model_dump(mode="json"),
        "avatars": [(spec.name, spec.renderer) for spec in _avatars(settings)],
    }
    return _key(machine, parts, _FRAME_PACKAGES)


def stages_key(machine: Machine, settings: Settings) -> str:
    """What the costs of speech and language depend on."""
    parts = {
        name: getattr(settings, name).model_dump(mode="json")
        for name in ("stt", "tts", "llm", "inference")
    }
    # Decides between voices where `tts.engine` is `auto`.
    parts["max_sessions"] = settings.sessions.max_sessions
    return _key(machine, parts, _STAGE_PACKAGES)


def _avatars(settings: Settings) -> list[AvatarSpec]:
    try:
        found = find_avatars(settings.avatar_dirs)
    except AvatarError:  # told by whoever starts one
        return []
    return sorted(found.values(), key=lambda spec: spec.name)


def _key(machine: Machine, configuration: Mapping[str, object], packages: tuple[str, ...]) -> str:
    content = {
        "format": FORMAT,
        "cpu": machine.cpu,
        "gpu": machine.gpu,
        "cores": round(machine.cores, 2),
        "configuration": configuration,
        "python": sys.version.split()[0],
        "packages": {name: _version(name) for name in ("avatar-server", *packages)},
    }
    text = json.dumps(content, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
