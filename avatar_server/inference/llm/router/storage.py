"""A fitted head in a file: numbers only, never code."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import zlib
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from avatar_server.inference.llm.router.head import Head

FORMAT = 3
"""Raised whenever features, kernel or file change, so that older files are fitted anew."""

_HALVED = ("word_weights", "gram_weights", "embeddings")
"""Kept in half precision."""
_ARRAYS = (
    "mean",
    "scale",
    "embeddings",
    "measures",
    "states",
    "alpha",
    "measure_weights",
    "word_weights",
    "gram_weights",
)


class HeadError(ValueError):
    """A file that holds no head of this make; the message says what is wrong."""


def fingerprint(data: str) -> str:
    """What a head was fitted on, as 16 hexadecimal digits."""
    return hashlib.sha256(data.encode()).hexdigest()[:16]


def save(head: Head, path: Path, made_from: str) -> None:
    """Write at once or not at all, so that a reader never meets half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    about = {
        "format": FORMAT,
        "made_from": made_from,
        "labels": head.labels,
        "temperature": head.temperature,
    }
    handle, name = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            arrays = {key: getattr(head, key) for key in _ARRAYS}
            for key in _HALVED:
                arrays[key] = arrays[key].astype(np.float16)
            np.savez_compressed(file, about=np.array(json.dumps(about)), **arrays)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def made_from(path: Path) -> str:
    """What the head in a file was fitted on. Raises `HeadError`."""
    return str(_read(path)[0]["made_from"])


def load(path: Path) -> Head:
    """The head in a file. Raises `HeadError`."""
    about, arrays = _read(path)
    for key in _HALVED:
        arrays[key] = arrays[key].astype(np.float32)
    return Head(tuple(about["labels"]), float(about["temperature"]), **arrays)


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    try:
        with np.load(path, allow_pickle=False) as file:
            about = json.loads(str(file["about"]))
            if about["format"] != FORMAT:
                raise ValueError(f"its format is {about['format']}, not {FORMAT}")
            return about, {key: file[key] for key in _ARRAYS}
    except (OSError, ValueError, KeyError, TypeError, EOFError, BadZipFile, zlib.error) as error:
        raise HeadError(f"{path} holds no head of the router: {error}") from error
