"""Drawings made ahead and kept in a file, which all sessions of an avatar share.

The file is mapped into memory, not read: however many processes use it, it takes its size once.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
import time
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from renderers.puppet.cache import Key
from renderers.warp import Patch, Planes

_UNUSED_S = 60 * 86_400
"""A file that nothing has loaded for so long belongs to art or a version that is gone."""

_PREFIX = "patches-"


def drawn_ahead(
    folder: Path,
    made_of: Iterable[bytes],
    keys: Callable[[], list[Key]],
    draw: Callable[[Key], Patch],
) -> list[tuple[Key, Patch]]:
    """The patches that `draw` makes of `keys()`, from the file in `folder` if it is there.

    All have the size and place of the first. `made_of` is everything that they depend on, besides
    the code of this package. A file that is damaged or cannot be written costs time only.
    """
    path = folder / f"{_PREFIX}{_digest(made_of)}.npy"
    with contextlib.suppress(OSError, ValueError, EOFError):
        table = np.load(path, mmap_mode="r", allow_pickle=False)
        patches = _from_table(table)
        os.utime(path)
        return patches
    patches = [(key, draw(key)) for key in keys()]
    if patches:
        with contextlib.suppress(OSError):
            _write(path, _to_table(patches))
            _tidy(folder)
    return patches


def _digest(made_of: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    package = Path(__file__).parents[1]
    for source in sorted(package.rglob("*.py")):
        digest.update(source.read_bytes())
    for part in made_of:
        digest.update(part)
    return digest.hexdigest()[:32]


def _to_table(patches: list[tuple[Key, Patch]]) -> NDArray[np.uint8]:
    """A row for each patch: its key (int16 each), then its planes. Before them one row with a
    checksum of the rest and what is common to all (place, size, length of the key)."""
    first_key, first = patches[0]
    rows = [
        np.concatenate(
            [
                np.array(key, "<i2").view(np.uint8),
                *(plane.reshape(-1) for plane in patch.planes),
            ]
        )
        for key, patch in patches
    ]
    table = np.stack([np.zeros_like(rows[0]), *rows])
    height, width = first.planes.y.shape
    head = np.array(
        [zlib.crc32(table[1:].data), first.x, first.y, width, height, len(first_key)], "<i8"
    )
    table[0, : head.nbytes] = head.view(np.uint8)
    return table


def _from_table(table: NDArray[np.uint8]) -> list[tuple[Key, Patch]]:
    """Raises `ValueError` for what `_to_table` did not make."""
    if table.dtype != np.uint8 or table.ndim != 2 or table.shape[1] < 48:
        raise ValueError("not a table of patches")
    table = np.asarray(table)
    check, x, y, width, height, length = table[0, :48].view("<i8").tolist()
    # Reading it all also brings it into memory before the first frame needs it.
    if zlib.crc32(table[1:].data) != check:
        raise ValueError("a damaged table of patches")
    luma, chroma = width * height, (width // 2) * (height // 2)
    start = 2 * length
    patches = []
    for row in table[1:]:
        key = tuple(row[:start].view("<i2").tolist())
        y_end, u_end = start + luma, start + luma + chroma
        half = (height // 2, width // 2)
        planes = Planes(
            row[start:y_end].reshape(height, width),
            row[y_end:u_end].reshape(half),
            row[u_end:].reshape(half),
        )
        patches.append((key, Patch(x, y, planes)))
    return patches


def _write(path: Path, table: NDArray[np.uint8]) -> None:
    """All or nothing: another process may be loading it, or this one may be killed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            np.save(file, table, allow_pickle=False)
        os.replace(name, path)
    except OSError:
        Path(name).unlink(missing_ok=True)
        raise


def _tidy(folder: Path) -> None:
    for path in folder.glob(f"{_PREFIX}*.npy"):
        if time.time() - path.stat().st_mtime > _UNUSED_S:
            path.unlink(missing_ok=True)
