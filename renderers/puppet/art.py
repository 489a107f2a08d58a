"""Groups of an SVG picture as pixels.

The picture is drawn by `resvg`, which comes with its wheel and needs no system library. Named
groups listed as features are left out of the plate and drawn apart.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path

import cv2
import numpy as np
import resvg_py

from renderers.puppet.rig import RigError
from renderers.warp.arrays import Array

_SVG = "{http://www.w3.org/2000/svg}"
_SHARED = (f"{_SVG}defs", f"{_SVG}style")


class Art:
    """An SVG file whose top-level groups have names (their `id`).

    `cache` is a folder that keeps what was drawn: drawing takes a second or two of CPU, reading
    it again some hundredths.
    """

    def __init__(self, path: Path, cache: Path | None = None) -> None:
        ElementTree.register_namespace("", _SVG[1:-1])
        try:
            self._root = ElementTree.parse(path).getroot()
        except OSError as error:
            raise RigError(f"cannot read {path}: {error.strerror}") from error
        except ElementTree.ParseError as error:
            raise RigError(f"{path} is not a well-formed SVG: {error}") from error
        self._path = path
        self._cache = cache
        self._groups = [child for child in self._root if child.get("id")]

    def all_but(
        self, apart: Iterable[str], size: tuple[int, int], blurred: dict[str, int]
    ) -> Array:
        """RGB premultiplied by alpha (0..255) and alpha (0..1), shape (height, width, 4), of
        everything but the groups in `apart`.

        Groups in `blurred` lie behind all others and are drawn smaller by that factor: wide blurs
        of a full picture are most of the time that drawing takes, and hide no detail.
        """
        left_out = {*apart, *blurred}
        picture = np.zeros((size[1], size[0], 4), np.float32)
        for name, factor in blurred.items():
            group = self._group(name)
            if name in apart:
                continue
            small = self._draw([group], (size[0] // factor, size[1] // factor), None)
            large = cv2.resize(small, size, interpolation=cv2.INTER_CUBIC)
            picture = large + picture * (1 - large[..., 3:])
        rest = self._draw([g for g in self._groups if g.get("id") not in left_out], size, None)
        result: Array = rest + picture * (1 - rest[..., 3:])
        return result

    def feature(
        self, name: str, box: tuple[float, float, float, float], size: tuple[int, int]
    ) -> Array:
        """One group, RGB premultiplied by alpha (0..255) and alpha (0..1): shape (h, w, 4).

        `box` is (x, y, width, height) in the picture's units, drawn at `size` (width, height).
        """
        return self._draw([self._group(name)], size, box)

    def _group(self, name: str) -> ElementTree.Element:
        for group in self._groups:
            if group.get("id") == name:
                return group
        names = ", ".join(str(g.get("id")) for g in self._groups)
        raise RigError(f"{self._path} has no group named {name!r}; it has: {names}")

    def _draw(
        self,
        groups: list[ElementTree.Element],
        size: tuple[int, int],
        box: tuple[float, float, float, float] | None,
    ) -> Array:
        attributes = {k: v for k, v in self._root.attrib.items() if k not in ("width", "height")}
        if box is not None:
            attributes["viewBox"] = " ".join(f"{value:g}" for value in box)
        root = ElementTree.Element(f"{_SVG}svg", attributes)
        root.set("width", str(size[0]))
        root.set("height", str(size[1]))
        root.extend(child for child in self._root if child.tag in _SHARED)
        for group in groups:
            shown = ElementTree.Element(
                group.tag, {k: v for k, v in group.attrib.items() if k != "display"}
            )
            shown.extend(group)
            root.append(shown)
        text = ElementTree.tostring(root, encoding="unicode")
        kept = self._kept(text)
        if kept is not None:
            with contextlib.suppress(OSError):
                decoded = _decoded(kept.read_bytes())
                if decoded is not None and decoded.shape[:2] == (size[1], size[0]):
                    return _premultiplied(decoded)
        try:
            png = bytes(resvg_py.svg_to_bytes(svg_string=text, skip_system_fonts=True))
        except ValueError as error:
            raise RigError(f"{self._path} cannot be drawn: {error}") from error
        decoded = _decoded(png)
        if decoded is None or decoded.shape[:2] != (size[1], size[0]):
            raise RigError(f"{self._path} was drawn at an unexpected size")
        if kept is not None:
            # A cache that cannot be written costs time at the next start and nothing else.
            with contextlib.suppress(OSError):
                _write_whole(kept, png)
        return _premultiplied(decoded)

    def _kept(self, text: str) -> Path | None:
        """Where the drawing of `text` is kept; another drawer may draw it differently."""
        if self._cache is None:
            return None
        made_of = f"{version('resvg-py')}\0{text}"
        return self._cache / f"{hashlib.sha256(made_of.encode()).hexdigest()[:32]}.png"


def _decoded(png: bytes) -> Array | None:
    if not png:
        return None
    decoded: Array | None = cv2.imdecode(np.frombuffer(png, np.uint8), cv2.IMREAD_UNCHANGED)
    return decoded


def _write_whole(path: Path, data: bytes) -> None:
    """All or nothing: another process may be reading it, or this one may be killed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(name, path)
    except OSError:
        Path(name).unlink(missing_ok=True)
        raise


def _premultiplied(bgra: Array) -> Array:
    alpha = (
        bgra[..., 3:].astype(np.float32) / 255.0
        if bgra.shape[2] == 4
        else np.ones((*bgra.shape[:2], 1), np.float32)
    )
    return np.concatenate([bgra[..., 2::-1].astype(np.float32) * alpha, alpha], -1)
