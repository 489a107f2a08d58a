"""Draws the mouth: lips by column curves, and through their opening teeth and tongue."""

from __future__ import annotations

from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from renderers.puppet.curves import between
from renderers.puppet.motion import jaw_profile
from renderers.puppet.paint import Shifted, bell, mix, planes_of, tone
from renderers.puppet.rig import Mouth
from renderers.puppet.visemes import Key, MouthShape, shape_of
from renderers.warp import Patch, rgb_to_ycc
from renderers.warp.arrays import Array

_SURROUND_STEP = 4
"""Shading of the skin is smooth, so it is computed on every fourth pixel."""


class _Lines(NamedTuple):
    """The mouth's outlines by column, each of shape (1, width), in patch pixels."""

    u: Array
    """-1 at the left corner, 1 at the right one."""
    middle: Array
    top: Array
    bottom: Array
    outer_top: Array
    outer_bottom: Array

    def cut(self, columns: slice) -> _Lines:
        return _Lines(*(line[:, columns] for line in self))


class MouthPainter:
    """Draws mouth patches over the skin of `plate` (RGB of the whole picture).

    `upper` and `lower` are the rows of teeth as premultiplied sprites of the box's size.
    """

    def __init__(self, mouth: Mouth, plate: Array, upper: Array, lower: Array) -> None:
        self._mouth = mouth
        box = mouth.box
        skin = plate[box.y : box.y + box.height, box.x : box.x + box.width]
        self._skin = rgb_to_ycc(np.ascontiguousarray(skin))
        self._canvas = np.empty_like(self._skin)
        self._upper, self._lower = Shifted(upper), Shifted(lower)
        self._size = (box.width, box.height)
        self._cx, self._cy = mouth.centre[0] - box.x, mouth.centre[1] - box.y
        self._xs = (np.arange(box.width, dtype=np.float32) + 0.5)[None, :]
        self._ys = (np.arange(box.height, dtype=np.float32) + 0.5)[:, None]
        self._upper_lip, self._lower_lip = tone(mouth.upper_lip), tone(mouth.lower_lip)
        self._highlight, self._line = tone(mouth.highlight), tone(mouth.line)
        self._skin_shade, self._tongue = tone(mouth.skin_shade), tone(mouth.tongue)
        self._dark, self._throat = tone((34.0, 10.0, 12.0)), tone((72.0, 22.0, 22.0))
        self._wet = tone((255.0, 236.0, 230.0))
        self._profile_y = np.linspace(-40, box.height + 120, 400, dtype=np.float32)
        self._profile = jaw_profile(mouth, self._profile_y + box.y)
        # Fine vertical creases of the lips, fixed to the lip and not to the picture.
        noise = np.random.default_rng(3).standard_normal((1, 256)).astype(np.float32)
        creases = cv2.GaussianBlur(noise, (0, 0), 1.6)[0]
        self._creases = creases / np.abs(creases).max()
        self._crease_u = np.linspace(-1, 1, 256, dtype=np.float32)

    def paint(self, key: Key) -> Patch:
        """The patch for a mouth."""
        shape = shape_of(key)
        half = self._half_width(shape)
        lines = self._lines(shape, half)
        picture = self._canvas
        np.copyto(picture, self._skin)
        self._surround(picture, shape, lines)
        columns = _span(np.abs(lines.u[0]) < 1.1)
        near = lines.cut(columns)
        if shape.gap > 0.3:
            rows = self._rows(near.top.min() - 1, near.bottom.max() + 1)
            opening = between(self._ys[rows], near.top, near.bottom)
            view = picture[:, rows, columns]
            mix(view, self._interior(rows, columns, shape, near, half), opening)
        self._lips(picture, columns, shape, near)
        return Patch(self._mouth.box.x, self._mouth.box.y, planes_of(picture))

    def _half_width(self, s: MouthShape) -> float:
        half = self._mouth.half_width * (1 + (0.17 if s.width > 0 else 0.47) * s.width)
        return half * (1 - 0.05 * min(s.gap / 36, 1.0) * (1 - max(s.width, 0.0)))

    def _lines(self, s: MouthShape, half: float) -> _Lines:
        m, gap = self._mouth, s.gap
        u = (self._xs - np.float32(self._cx)) / np.float32(half)
        inside = np.maximum(1 - u * u, 0)
        bend = np.maximum(1 - u * u, -0.3)
        rise = m.rest_smile + (0.9 if s.smile > 0 else 0.85) * s.smile
        rise *= 1 - s.round
        middle = self._cy - 10.0 * rise * (1 - bend) + 2.2 * rise * bend
        # The line between closed lips dips at its middle and rises beside it.
        closed = max(0.0, 1 - gap / 7.0)
        side = np.abs(u)
        middle = middle + closed * (1.5 * bell(u / 0.18) - 0.9 * bell((side - 0.36) / 0.2))
        power = 0.92 - 0.42 * s.round
        arc = inside**power
        hang = inside ** (power - 0.32 * min(s.gap / 34, 1.0) * (1 - s.round))
        up = s.lift + (0.18 + 0.27 * s.round) * gap
        top = middle - up * arc
        bottom = middle + max(gap - up, -s.lift) * hang - s.tuck * arc
        bottom = np.maximum(bottom, top)
        full = (1 - 0.5 * s.press) * (1 + 0.34 * s.round) * (1 - 0.1 * max(s.width, 0.0))
        open_ = min(s.gap / 30, 1.0)
        thick_u = m.upper_thickness * full * (1 - 0.12 * open_ - 0.15 * s.tuck)
        thick_l = m.lower_thickness * full * (1 - 0.2 * s.tuck) * (1 - 0.1 * open_)
        bow = m.bow * (1 - 0.4 * s.round)
        cupid = bow * (0.7 * bell((side - 0.2) / 0.17) - 0.55 * bell(u / 0.1))
        outer_top = top - (thick_u * inside**0.8 + cupid * inside)
        outer_bottom = bottom + thick_l * inside**0.62 * (1 - 0.06 * bell(u / 0.2))
        if s.jaw > 0.01:
            bottom, outer_bottom = self._raised(bottom, s.jaw), self._raised(outer_bottom, s.jaw)
        return _Lines(u, middle, top, np.maximum(bottom, top), outer_top, outer_bottom)

    def _raised(self, y: Array, jaw: float) -> Array:
        """Where to draw what the jaw's field will move down to `y`."""
        down = self._profile_y + (self._mouth.jaw_px * jaw) * self._profile
        return np.interp(y, down, self._profile_y).astype(np.float32)

    def _rows(self, first: float, last: float) -> slice:
        return slice(max(0, int(first)), min(self._size[1], int(last) + 2))

    def _surround(self, picture: Array, s: MouthShape, lines: _Lines) -> None:
        step = _SURROUND_STEP
        ys = self._ys[step // 2 :: step]
        u, middle, _, _, _, outer_bottom = lines.cut(slice(step // 2, None, step))
        side = np.abs(u)
        dark = bell((ys - outer_bottom - 5.5) / 5.5) * (bell(u / 0.62) * 0.5)
        dark += bell((side - 1.05) / 0.1) * bell((ys - middle) / 5.0) * 0.5
        if s.smile > 0:
            # The fold beside the mouth, from the wing of the nose to outside the corner.
            t = np.clip((ys - 4) / 80.0, 0, 1)
            line = self._mouth.half_width * (0.88 + 0.66 * t**0.8 + 0.1 * s.width)
            beside = np.abs(self._xs[:, step // 2 :: step] - np.float32(self._cx))
            strength = self._mouth.fold * s.smile * (1 - 0.7 * s.round)
            dark += bell((beside - line) / 6.0) * ((4 * t * (1 - t)) ** 1.5 * strength)
        alpha = cv2.resize(np.minimum(dark, 0.9), self._size, interpolation=cv2.INTER_LINEAR)
        last = max(int(outer_bottom.max()) + 18, 86 if s.smile > 0 else 0)
        rows = slice(0, min(self._size[1], last))
        mix(picture[:, rows], self._skin_shade, alpha[rows])

    def _interior(
        self,
        rows: slice,
        columns: slice,
        s: MouthShape,
        lines: _Lines,
        half: float,
    ) -> Array:
        ys, cx, cy = self._ys[rows], self._cx, self._cy
        u, _, top, bottom, _, _ = lines
        v = np.clip((ys - top) / np.maximum(bottom - top, 1.0), 0, 1)
        picture = self._dark + (self._throat - self._dark) * (v * (1 - 0.5 * u * u))
        resting = np.array([cy + 8.0], np.float32)
        jaw = float((self._raised(resting + self._mouth.jaw_px * s.jaw, s.jaw) - resting)[0])
        lowest = float(bottom[0, bottom.shape[1] // 2])

        def hump(y: float, rx: float, ry: float, light: float, strength: float) -> None:
            if strength > 0.02:
                self._hump(picture, rows, columns, (cx, y), (rx, ry), light, strength)

        hump(cy + 9 + 0.3 * jaw, 0.62 * half, 9.5, 0.62, s.back)
        body = lowest + 4.0 - s.tongue * (3.0 + 0.3 * jaw)
        hump(
            body,
            half * (0.66 - 0.1 * s.tongue),
            13 + 3 * s.tongue,
            0.9,
            min(1.0, 0.2 + s.tongue + s.jaw * 0.7) * (1 - 0.8 * s.round * (1 - s.jaw)),
        )
        # The tip against the ridge: narrower, in front of the body.
        hump(cy + 9.5, half * 0.4, 10.5, 0.98, min(1.0, max(0.0, s.tongue - 0.6) / 0.3))
        drop = jaw * 0.74 + 5.0 * (1 - s.lower) + 0.6
        self._teeth(picture, rows, columns, self._lower, drop, 0.35 + 0.6 * s.lower - s.round)
        self._teeth(
            picture, rows, columns, self._upper, 0.0, s.upper * (1 - s.round * (1 - s.lower))
        )
        hump(cy + 11.0, half * 0.46, 9.5, 1.15, s.tip)
        # Lips shade what lies behind them, cheeks what lies beside.
        shade = 0.5 * bell((ys - top) / 3.0) + 0.3 * bell((bottom - ys) / 2.0)
        shade = shade + 0.9 * np.clip(np.abs(u) - 0.5, 0, 1)
        picture *= np.clip(1 - shade, 0.06, 1)
        result: Array = picture
        return result

    def _teeth(
        self, picture: Array, rows: slice, columns: slice, teeth: Shifted, drop: float, light: float
    ) -> None:
        if light < 0.03:
            return
        layer = teeth.cut(rows, columns, drop)
        shown = min(1.0, light * 1.6)
        picture *= 1 - layer[3] * np.float32(shown)
        picture += layer[:3] * np.float32((0.35 + 0.65 * min(light, 1.0)) * shown)

    def _hump(
        self,
        picture: Array,
        rows: slice,
        columns: slice,
        centre: tuple[float, float],
        radius: tuple[float, float],
        light: float,
        strength: float,
    ) -> None:
        dx = (self._xs[:, columns] - np.float32(centre[0])) / np.float32(radius[0])
        dy = (self._ys[rows] - np.float32(centre[1])) / np.float32(radius[1])
        cover = np.clip((1 - dx * dx - dy * dy) * (radius[1] * 0.5), 0, 1) * np.float32(strength)
        lit = np.clip(0.74 - 0.36 * dy - 0.3 * dx * dx, 0.3, 1.15) * np.float32(light)
        lit *= 1 - 0.16 * bell(dx / 0.12) * np.maximum(0.4 - dy, 0)
        mix(picture, self._tongue * lit, cover)
        shine = bell((dx + 0.2) / 0.24) * bell((dy + 0.45) / 0.26)
        mix(picture, self._wet, shine * cover * 0.22)

    def _lips(self, picture: Array, columns: slice, s: MouthShape, lines: _Lines) -> None:
        gap = s.gap
        u, _, top, bottom, outer_top, outer_bottom = lines
        grain = np.interp(np.clip(u[0], -1, 1), self._crease_u, self._creases)
        grain = grain.astype(np.float32)[None, :]
        ends = np.clip((1.02 - np.abs(u)) / 0.1, 0, 1)
        # Upper lip: turned away from the light, darkest at the opening.
        rows = self._rows(outer_top.min() - 2, top.max() + 1)
        ys = self._ys[rows]
        v = np.clip((ys - outer_top) / np.maximum(top - outer_top, 0.5), 0, 1)
        shade = 1.05 - 0.26 * v * v + 0.03 * grain
        alpha = np.clip((ys - outer_top + 0.9) / 2.8, 0, 1) * np.clip(top - ys + 0.5, 0, 1)
        mix(picture[:, rows, columns], self._upper_lip * shade, alpha * (ends * 0.94))
        if s.round > 0.1:
            pout = bell((v - 0.5) / 0.34) * bell(u / 0.5) * alpha * (0.22 * s.round)
            mix(picture[:, rows, columns], self._highlight, pout)
        # Lower lip: catches light on its roll.
        rows = self._rows(bottom.min() - 1, outer_bottom.max() + 4)
        ys = self._ys[rows]
        v = np.clip((ys - bottom) / np.maximum(outer_bottom - bottom, 0.5), 0, 1)
        shade = 0.86 + 0.8 * v * (1 - v) - 0.08 * v + 0.045 * grain
        alpha = np.clip(ys - bottom + 0.5, 0, 1) * np.clip((outer_bottom - ys + 1.2) / 4.2, 0, 1)
        alpha = alpha * (ends * 0.92)
        view = picture[:, rows, columns]
        mix(view, self._lower_lip * shade, alpha)
        shine = bell((v - 0.36) / 0.2) * (bell((u + 0.1) / 0.46) * (0.34 + 0.12 * grain))
        mix(view, self._highlight, shine * alpha * (1 - 0.5 * s.press - 0.3 * s.tuck))
        # The line where closed lips meet; it opens into the two inner edges.
        rows = self._rows(top.min() - 4, bottom.max() + 4)
        ys = self._ys[rows]
        closed = max(0.0, 1 - gap / 4.0)
        width = 1.25 + 0.5 * closed
        seam = np.maximum(
            bell((ys - top) / width) * (0.45 + 0.5 * closed),
            bell((ys - bottom) / width) * (0.2 + 0.6 * closed),
        )
        seam *= np.clip((1.06 - np.abs(u)) / 0.14, 0, 1)
        mix(picture[:, rows, columns], self._line, seam)


def _span(inside: NDArray[np.bool_]) -> slice:
    where = np.flatnonzero(inside)
    return slice(int(where[0]), int(where[-1]) + 1)
