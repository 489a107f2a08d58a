"""Faces in memory that two processes share."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from avatar_server.protocol.face_ring import SLOTS, FaceReader, FaceWriter

SIZE = 96


def face(level: int, size: int = SIZE) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    return np.full((size, size, 3), level, np.uint8)


@pytest.fixture
def reader() -> Iterator[FaceReader]:
    reader = FaceReader()
    yield reader
    reader.close()


def test_a_face_is_taken_for_its_frame_or_the_newest_before(reader: FaceReader) -> None:
    assert reader.take(5) is None
    writer = FaceWriter(reader.path, SIZE)
    assert reader.take(5) is None
    for number in (3, 4, 6):
        assert writer.write(number, face(number))
    for wanted, found in ((2, None), (3, 3), (4, 4), (5, 4), (6, 6), (100, 6)):
        taken = reader.take(wanted)
        assert (taken and taken.number) == found
        if taken:
            assert (taken.face == taken.number).all()
    writer.close()
    assert writer.write(7, face(7)) is False
    assert reader.take(7).number == 6  # type: ignore[union-attr]


def test_old_faces_make_room_for_new_ones(reader: FaceReader) -> None:
    writer = FaceWriter(reader.path, SIZE)
    for number in range(50):
        writer.write(number, face(number))
    assert reader.take(50 - SLOTS - 1) is None
    for number in range(50 - SLOTS, 50):
        assert reader.take(number).number == number  # type: ignore[union-attr]


def test_a_face_that_is_half_written_is_not_taken(reader: FaceReader) -> None:
    writer = FaceWriter(reader.path, SIZE)
    writer.write(1, face(1))
    writer.write(2, face(2))
    memory = writer._map
    assert memory is not None
    begin = memory.find(face(2).tobytes()[:64])
    memory[begin + 500 : begin + 600] = bytes(100)
    assert reader.take(2).number == 1  # type: ignore[union-attr]


def test_readers_never_see_two_faces_mixed(reader: FaceReader) -> None:
    writer, done = FaceWriter(reader.path, SIZE), threading.Event()

    def write() -> None:
        number = 0
        while not done.is_set():
            number += 1
            writer.write(number, face(number % 251))

    thread = threading.Thread(target=write)
    thread.start()
    try:
        seen, until = set(), time.monotonic() + 30
        while len(seen) < 50 and time.monotonic() < until:
            if (taken := reader.take(2**60)) is not None:
                assert (taken.face == taken.number % 251).all()
                seen.add(taken.number)
            time.sleep(0.001)
    finally:
        done.set()
        thread.join()
    assert len(seen) >= 50


def test_the_next_writer_may_have_faces_of_another_size(reader: FaceReader) -> None:
    first = FaceWriter(reader.path, 256)
    first.write(1, face(1, 256))
    assert reader.take(1).face.shape == (256, 256, 3)  # type: ignore[union-attr]
    for size in (96, 288):
        second = FaceWriter(reader.path, size)
        assert reader.take(9) is None
        second.write(2, face(2, size))
        assert reader.take(9).face.shape == (size, size, 3)  # type: ignore[union-attr]
    first.close()


def test_a_writer_without_its_reader_is_told(reader: FaceReader) -> None:
    other = FaceReader()
    path = other.path
    other.close()
    with pytest.raises(OSError, match="No such file"):
        FaceWriter(path, SIZE)
    with pytest.raises(ValueError, match="pixels"):
        FaceWriter(reader.path, 0)


@pytest.mark.skipif(sys.platform != "linux", reason="memory without a name is Linux's")
def test_nothing_is_left_when_both_ends_are_killed() -> None:
    script = (
        "import sys, numpy as np\n"
        "from avatar_server.protocol.face_ring import FaceReader, FaceWriter\n"
        "reader = FaceReader() if sys.argv[1] == 'read' else None\n"
        "if reader:\n    print(reader.path, flush=True)\n"
        "else:\n"
        "    writer = FaceWriter(sys.argv[2], 96)\n"
        "    writer.write(1, np.zeros((96, 96, 3), np.uint8))\n"
        "    print('written', flush=True)\n"
        "sys.stdin.read()\n"
    )

    def start(*arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", script, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    before = set(os.listdir("/dev/shm"))
    with start("read") as reading:
        assert reading.stdout is not None
        path = reading.stdout.readline().strip()
        with start("write", path) as writing:
            assert writing.stdout is not None
            assert writing.stdout.readline().strip() == "written"
            held = Path(f"/proc/{writing.pid}/maps").read_text(encoding="utf-8")
            assert "memfd:avatar-faces" in held
            reading.kill()
            reading.wait()
            # The other end still has it, and it has no name that could stay behind.
            assert "avatar-faces" in Path(f"/proc/{writing.pid}/maps").read_text(encoding="utf-8")
            assert not Path(path).exists()
            writing.kill()
            writing.wait()
    # Others on this machine may use /dev/shm meanwhile: what counts is that nothing is ours.
    assert not [n for n in set(os.listdir("/dev/shm")) - before if "faces" in n]
