"""Mouths drawn ahead: found in practice, kept in a file."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import pytest

from renderers.puppet.bank import drawn_ahead
from renderers.puppet.cache import Key, KeyBook
from renderers.puppet.practice import babble, spoken_mouths
from renderers.puppet.visemes import CLOSED, MOUTH_TOLERANCE, mouth_key
from renderers.warp import Patch, Planes

KEYS: list[Key] = [(1, 2), (3, -4), (500, 6)]


def draw(key: Key) -> Patch:
    rng = np.random.default_rng(abs(key[1]))
    return Patch(
        4, 6, Planes(*(rng.integers(0, 255, s, np.uint8) for s in ((8, 12), (4, 6), (4, 6))))
    )


def refuse(key: Key) -> Patch:
    raise AssertionError("drawn again")


def same(one: list[tuple[Key, Patch]], other: list[tuple[Key, Patch]]) -> bool:
    return [key for key, _ in one] == [key for key, _ in other] and all(
        (a.x, a.y) == (b.x, b.y) and all(map(np.array_equal, a.planes, b.planes))
        for (_, a), (_, b) in zip(one, other, strict=True)
    )


def test_a_second_load_reads_what_the_first_drew(tmp_path: Path) -> None:
    first = drawn_ahead(tmp_path, [b"rig"], lambda: KEYS, draw)
    assert same(first, drawn_ahead(tmp_path, [b"rig"], lambda: KEYS, refuse))
    assert [key for key, _ in first] == KEYS


def test_another_rig_has_drawings_of_its_own(tmp_path: Path) -> None:
    drawn_ahead(tmp_path, [b"rig"], lambda: KEYS, draw)
    with pytest.raises(AssertionError, match="drawn again"):
        drawn_ahead(tmp_path, [b"another"], lambda: KEYS, refuse)


@pytest.mark.parametrize("damage", ["empty", "cut", "changed", "rubbish"])
def test_a_damaged_file_is_drawn_anew(tmp_path: Path, damage: str) -> None:
    first = drawn_ahead(tmp_path, [], lambda: KEYS, draw)
    (file,) = tmp_path.glob("*.npy")
    whole = file.read_bytes()
    changed = bytearray(whole)
    changed[-5] ^= 255
    kinds = {"empty": b"", "cut": whole[:-9], "changed": bytes(changed), "rubbish": b"x" * 400}
    file.write_bytes(kinds[damage])
    assert same(first, drawn_ahead(tmp_path, [], lambda: KEYS, draw))
    assert file.read_bytes() == whole


def test_a_folder_that_cannot_be_written_costs_only_time(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    drawn = drawn_ahead(tmp_path / "file", [], lambda: KEYS, draw)
    assert [key for key, _ in drawn] == KEYS


def test_files_that_nothing_loads_any_more_go(tmp_path: Path) -> None:
    drawn_ahead(tmp_path, [b"old"], lambda: KEYS, draw)
    (old,) = tmp_path.glob("*.npy")
    long_ago = time.time() - 100 * 86_400
    os.utime(old, (long_ago, long_ago))
    drawn_ahead(tmp_path, [b"new"], lambda: KEYS, draw)
    assert old not in set(tmp_path.glob("*.npy"))
    assert len(list(tmp_path.glob("*.npy"))) == 1


def test_practice_is_the_same_everywhere_and_covers_other_speech() -> None:
    mouths = spoken_mouths()
    assert mouths[:50] == spoken_mouths(20.0)[:50]
    assert 300 < len(mouths) < 1_000
    book = KeyBook(MOUTH_TOLERANCE, CLOSED)
    for key in mouths:
        book.add(key)
    other = [mouth_key(pose) for pose in babble(60.0, seed=99)]
    missed = sum(book.nearest(key) is None for key in other)
    assert missed / len(other) < 0.12
