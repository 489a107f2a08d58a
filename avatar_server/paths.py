"""Where the product's own data, and the user's, lie."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path


def _shipped(package: str, folder: str) -> Path:
    beside = Path(__file__).resolve().parent.parent / folder
    if beside.is_dir():
        return beside
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError(f"the data package {package} is not installed")
    return Path(next(iter(spec.submodule_search_locations)))


def assets_dir() -> Path:
    """Shipped avatars and evaluation data."""
    return _shipped("avatar_server_assets", "assets")


def configs_dir() -> Path:
    """Shipped configurations."""
    return _shipped("avatar_server_configs", "configs")


def cache_dir() -> Path:
    """Downloads and calibration: `$AVATAR_SERVER_CACHE`, else the user's cache folder."""
    if override := os.environ.get("AVATAR_SERVER_CACHE"):
        return Path(override).expanduser()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "avatar_server"
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "avatar_server"


def data_dir() -> Path:
    """The user's own avatars and keys: `$AVATAR_SERVER_DATA`, else the user's data folder."""
    if override := os.environ.get("AVATAR_SERVER_DATA"):
        return Path(override).expanduser()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "avatar_server"
    base = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return Path(base) / "avatar_server"
