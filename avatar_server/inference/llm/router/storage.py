"""A fitted head in a file: numbers only, never code."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import zlib
from collections.abc import Iterable
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from avatar_server.inference.llm.router.head import Head

FORMAT = 1
"""Raised whenever features, kernel or file change, so that older files are fitted anew."""

_ARRAYS = (
    "mean",
    "scale",
    "embeddings",
    "measures",
    "states",
    "alpha",
    "word_weights",
    "gram_weights",
)


def fingerprint(parts: Iterable[str]) -> str:
    """What a head was fitted from, as 16 hexadecimal digits."""
    digest = hashlib.sha256(f"router head {FORMAT}".encode())
    for part in parts:
        digest.update(b"\0" + part.encode())
    return digest.hexdigest()[:16]


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
            for key in ("word_weights", "gram_weights", "embeddings"):
                arrays[key] = arrays[key].astype(np.float16)
            np.savez_compressed(file, about=np.array(json.dumps(about)), **arrays)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def load(path: Path, made_from: str) -> Head | None:
    """The head, or none where the file is missing, damaged, or of another make."""
    try:
        with np.load(path, allow_pickle=False) as file:
            about = json.loads(str(file["about"]))
            if about["format"] != FORMAT or about["made_from"] != made_from:
                return None
            arrays = {key: file[key] for key in _ARRAYS}
            for key in ("word_weights", "gram_weights", "embeddings"):
                arrays[key] = arrays[key].astype(np.float32)
            return Head(tuple(about["labels"]), float(about["temperature"]), **arrays)
    except (OSError, ValueError, KeyError, TypeError, EOFError, BadZipFile, zlib.error):
        return None
