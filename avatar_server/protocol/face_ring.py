"""Faces on their way from the inference process to an avatar process, in memory of both.

The avatar makes the memory and the inference process, told its path, sizes and fills it. On Linux
it is a memfd: it has no name anywhere, and is gone with the last process that has it open, however
that process ends. Elsewhere it is a file, unlinked as soon as the other side has it.

There are `SLOTS` slots, used in turn by frame number. Neither side waits for the other: a reader
knows by the checksum that a slot was being written, and takes an older face.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import struct
import tempfile
import threading
import zlib
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

SLOTS = 8
"""More than are asked for ahead, so that none is overwritten before its time."""

_HEADER = struct.Struct("<8sI")
_MAGIC = b"avfaces1"
_HEADER_BYTES = 64
_SLOT = struct.Struct("<qI")
_SLOT_BYTES = 64
_EMPTY = -1
_LARGEST = 1024

Face = NDArray[np.uint8]


class FaceAt(NamedTuple):
    """A face, RGB uint8 [size, size, 3], and the frame that it is for."""

    number: int
    face: Face


class FaceReader:
    """The avatar's end. `take` is called by one thread."""

    def __init__(self) -> None:
        self._file, self.path = _memory()
        self._map: mmap.mmap | None = None
        self._size = 0
        self._last: FaceAt | None = None

    def opened(self) -> None:
        """The other side has it: from now on it needs no name."""
        if not self.path.startswith("/proc/"):
            with contextlib.suppress(OSError):
                os.unlink(self.path)

    def take(self, number: int) -> FaceAt | None:
        """The face for frame `number`, else the newest before it; not to be written to."""
        memory = self._mapped()
        if memory is None:
            return None
        heads = [
            (*_SLOT.unpack_from(memory, _offset(slot, self._size)), slot) for slot in range(SLOTS)
        ]
        for at, checksum, slot in sorted(heads, reverse=True):
            if not 0 <= at <= number:
                continue
            if self._last is not None and self._last.number == at:
                return self._last
            begin = _offset(slot, self._size) + _SLOT_BYTES
            pixels = memory[begin : begin + self._size * self._size * 3]
            if _checksum(at, pixels) == checksum:
                face = np.frombuffer(pixels, np.uint8).reshape(self._size, self._size, 3)
                self._last = FaceAt(at, face)
                return self._last
        return None

    def close(self) -> None:
        """Give the memory back."""
        self.opened()
        if self._map is not None:
            self._map.close()
            self._map = None
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _mapped(self) -> mmap.mmap | None:
        if self._map is not None:
            size = _size_in(self._map)
            if size == self._size:
                return self._map
            # Another inference process draws with another network.
            self._map.close()
            self._map = None
        if self._file < 0:
            return None
        there = os.fstat(self._file).st_size
        if there < _HEADER_BYTES:
            return None
        memory = mmap.mmap(self._file, there, prot=mmap.PROT_READ)
        size = _size_in(memory)
        if not size or there < _offset(SLOTS, size):
            memory.close()
            return None
        self._map, self._size, self._last = memory, size, None
        return memory


class FaceWriter:
    """The inference process's end; thread-safe. Raises `OSError` where the reader is gone."""

    def __init__(self, path: str, size: int) -> None:
        """`path` is the reader's; `size` in pixels is that of the faces."""
        if not 0 < size <= _LARGEST:
            raise ValueError(f"faces of 1 to {_LARGEST} pixels, not {size}")
        self._lock = threading.Lock()
        self._size = size
        total = _offset(SLOTS, size)
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            # Never smaller: the reader may have mapped what a process before this one made.
            if os.fstat(file).st_size < total:
                os.ftruncate(file, total)
            self._map: mmap.mmap | None = mmap.mmap(file, 0)
        finally:
            os.close(file)
        for slot in range(SLOTS):
            _SLOT.pack_into(self._map, _offset(slot, size), _EMPTY, 0)
        _HEADER.pack_into(self._map, 0, _MAGIC, size)

    def write(self, number: int, face: Face) -> bool:
        """Put a face in; False where the ring is closed."""
        pixels = face.tobytes()
        begin = _offset(number % SLOTS, self._size)
        with self._lock:
            if self._map is None:
                return False
            _SLOT.pack_into(self._map, begin, _EMPTY, 0)
            first = begin + _SLOT_BYTES
            self._map[first : first + len(pixels)] = pixels
            _SLOT.pack_into(self._map, begin, number, _checksum(number, pixels))
        return True

    def close(self) -> None:
        """Let go of the memory."""
        with self._lock:
            if self._map is not None:
                self._map.close()
                self._map = None


def _memory() -> tuple[int, str]:
    """A new file descriptor, and the path by which another process of this user opens it."""
    if hasattr(os, "memfd_create"):
        file = os.memfd_create("avatar-faces", os.MFD_CLOEXEC)
        return file, f"/proc/{os.getpid()}/fd/{file}"
    return tempfile.mkstemp(prefix="avatar-faces-")


def _offset(slot: int, size: int) -> int:
    pixels = -(-size * size * 3 // 64) * 64
    return _HEADER_BYTES + slot * (_SLOT_BYTES + pixels)


def _size_in(memory: mmap.mmap) -> int:
    magic, size = _HEADER.unpack_from(memory, 0)
    return int(size) if magic == _MAGIC and 0 < size <= _LARGEST else 0


def _checksum(number: int, pixels: bytes) -> int:
    return zlib.crc32(pixels, number & 0xFFFFFFFF)
