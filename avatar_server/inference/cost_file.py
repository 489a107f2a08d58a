"""What the stages cost in earlier runs, kept in the user's cache."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from pathlib import Path

from avatar_server.config import Settings
from avatar_server.inference.workers import Workers
from avatar_server.paths import cache_dir

log = logging.getLogger(__name__)

SAVE_INTERVAL_S = 60.0
"""A run that is killed loses at most this much of what it learned."""


def cost_file(settings: Settings) -> Path:
    """Where the costs of these models, on this many cores, are kept."""
    parts = [settings.stt, settings.tts, settings.llm.model_copy(update={"api_key": None})]
    text = json.dumps([part.model_dump(mode="json") for part in parts] + [os.cpu_count()])
    return cache_dir() / "costs" / f"{hashlib.sha256(text.encode()).hexdigest()[:20]}.json"


def load_costs(path: Path, workers: Workers) -> None:
    """Begin with what is in the file; a missing or broken one is no error."""
    try:
        workers.restore_costs(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        log.warning("the costs of earlier runs are not used: %s: %s", path, error)


def save_costs(path: Path, workers: Workers) -> None:
    """Write the file, whole or not at all."""
    costs = workers.learned_costs()
    if not costs:
        return
    part = path.with_suffix(f".{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(json.dumps(costs), encoding="utf-8")
        part.replace(path)
    except OSError as error:
        log.warning("what was learned of the costs is not kept: %s", error)
