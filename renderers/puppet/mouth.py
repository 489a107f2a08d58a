"""Draws the mouth: lips by column curves, and through their opening teeth and tongue."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from renderers.puppet.rig import Mouth, rgb
from renderers.puppet.visemes import Key, shape_of
from renderers.puppet.curves import between
from renderers.warp import Patch, rgb_to_i420

Array = NDArray[np.float32]

_DARK = np.array([34.0, 10.0, 12.0], np.float32)
_THROAT = np.array([70.0, 22.0, 22.0], np.float32)


class MouthPainter:
    """Draws mouth patches over the skin of `plate`.

    `upper` and `lower` are the rows of teeth as premultiplied sprites of the box's size.
    """

    def __init__(self, mouth: Mouth, plate: Array, upper: Array, lower: Array) -> None:
        self._mouth = mouth
        box = mouth.box
        self._skin = plate[box.y : box.y + box.height, box.x : box.x + box.width].copy()
        self._upper, self._lower = upper, lower
        self._size = (box.width, box.height)
        self._cx, self._cy = mouth.centre[0] - box.x, mouth.centre[1] - box.y
        self._xs = (np.arange(box.width, dtype=np.float32) + 0.5)[None, :]
        self._ys = (np.arange(box.height, dtype=np.float32) + 0.5)[:, None]
        self._colours = {
            name: np.array(rgb(getattr(mouth, name)), np.float32)
            for name in ("upper_lip", "lower_lip", "highlight", "line", "skin_shade", "tongue")
        }
        # Fine vertical creases of the lips, fixed to the lip and not to the picture.
        rng = np.random.default_rng(3)
        creases = cv2.GaussianBlur(rng.standard_normal((1, 256)).astype(np.float32), (0, 0), 1.6)
        self._creases = (creases / np.abs(creases).max())[0]

    def paint(self, key: Key) -> Patch:
        """The patch for a mouth."""
        m, s = self._mouth, shape_of(key)
        xs, ys, cx, cy = self._xs, self._ys, self._cx, self._cy
        # The jaw's field stretches what lies below the line between the lips.
        stretch = 1.0 + s.jaw * m.jaw_px / 62.0
        gap = s.gap / stretch
        half = m.half_width * (1 + 0.17 * s.width if s.width > 0 else 1 + 0.47 * s.width)
        half *= 1 - 0.05 * min(s.gap / 36, 1.0) * (1 - max(s.width, 0))
        u = (xs - cx) / half
        bend = np.clip(1 - u * u, -0.3, 1)
        inside = np.clip(1 - u * u, 0, 1)

        rise = m.rest_smile + (s.smile * 0.9 if s.smile > 0 else s.smile * 0.75)
        rise *= 1 - 0.75 * s.round
        corner = -10.0 * rise
        middle = cy + corner * (1 - bend) + 2.2 * rise * bend
        # A resting mouth line dips at its middle and beside it, like a drawn bow.
        closed = np.clip(1 - gap / 7.0, 0, 1)
        middle = middle + closed * (1.5 * np.exp(-((u / 0.18) ** 2)) - 0.9 * np.exp(
            -(((np.abs(u) - 0.36) / 0.2) ** 2)
        ))
        shape_power = 0.92 - 0.42 * s.round
        arc = inside**shape_power
        hang = shape_power - 0.3 * min(s.gap / 36, 1.0) * (1 - s.round)
        up = s.lift + (0.18 + 0.2 * s.round) * gap
        down = gap - up
        top = middle - up * arc
        bottom = middle + np.maximum(down, -s.lift) * inside**hang
        tuck_up = s.tuck * 1.0
        bottom = bottom - tuck_up * arc

        full = (1 - 0.5 * s.press) * (1 + 0.34 * s.round) * (1 - 0.1 * max(s.width, 0))
        thick_u = m.upper_thickness * full * (1 - 0.12 * min(s.gap / 30, 1) - 0.15 * s.tuck)
        thick_l = m.lower_thickness * full * (1 - 0.2 * s.tuck) / stretch
        bow = m.bow * (1 - 0.4 * s.round)
        peaks = np.exp(-(((np.abs(u) - 0.2) / 0.17) ** 2)) * bow * 0.7
        dip = np.exp(-((u / 0.1) ** 2)) * bow * 0.55
        outer_u = top - (thick_u * inside**0.8 + (peaks - dip) * inside)
        outer_l = bottom + thick_l * inside**0.62 * (1 - 0.06 * np.exp(-((u / 0.2) ** 2)))

        out = self._skin.copy()
        self._surround(out, u, s, middle, outer_u, outer_l)
        opening = between(ys, top, bottom)
        rows = np.flatnonzero(opening.any(axis=1))
        if rows.size:
            window = slice(int(rows[0]), int(rows[-1]) + 1)
            inner = self._interior(window, s, u, top, bottom, half, stretch)
            out[window] += (inner - out[window]) * opening[window, :, None]
        self._lips(out, s, u, top, bottom, outer_u, outer_l, gap)
        return Patch(m.box.x, m.box.y, rgb_to_i420(out.astype(np.float32)))

    def _surround(self, out, u, s, middle, outer_u, outer_l):  # type: ignore[no-untyped-def]
        ys = self._ys
        shade = self._colours["skin_shade"]
        below = np.exp(-(((ys - outer_l - 5.5) / 5.5) ** 2)) * np.exp(-((u / 0.62) ** 2)) * 0.5
        corner = np.exp(-(((np.abs(u) - 1.04) / 0.1) ** 2 + ((ys - middle) / 5.0) ** 2)) * 0.55
        fold = 0.0
        if s.smile > 0:
            # The fold beside the mouth, from the wing of the nose to outside the corner.
            t = np.clip((ys - 6) / 78.0, 0, 1)
            line = 0.78 + 0.62 * t**0.8 + 0.1 * s.width
            fold = np.exp(-(((np.abs(u) - line) / 0.09) ** 2)) * np.sin(np.pi * t) * 0.4 * s.smile
        dark = np.clip(below + corner + fold, 0, 0.9)
        out += (shade - out) * dark[..., None]
        light = np.exp(-(((outer_u - 2.0 - ys) / 1.6) ** 2)) * np.exp(-((u / 0.5) ** 2)) * 0.09
        out += (self._colours["highlight"] - out) * light[..., None]

    def _interior(self, rows, s, u, top, bottom, half, stretch):  # type: ignore[no-untyped-def]
        xs, ys, cx, cy = self._xs, self._ys[rows], self._cx, self._cy
        height = np.maximum(bottom - top, 1.0)
        v = np.clip((ys - top) / height, 0, 1)
        base = _DARK + (_THROAT - _DARK) * (v * (1 - 0.5 * u * u))[..., None]
        jaw = s.jaw * self._mouth.jaw_px / stretch
        tongue = self._colours["tongue"]
        if s.back > 0.02:
            base = self._hump(base, ys, cx, cy + 9 + 0.3 * jaw, 0.62 * half, 9.5, tongue * 0.62,
                              s.back)
        lift = s.tongue
        lowest = float(bottom[0, bottom.shape[1] // 2])
        tongue_y = lowest - 9.0 - lift * (3.0 + 0.3 * jaw)
        size_x = half * (0.66 - 0.1 * lift)
        base = self._hump(base, ys, cx, tongue_y + 13, size_x, 13 + 3 * lift, tongue * 0.9,
                          min(1.0, 0.2 + lift + s.jaw * 0.7))
        if lift > 0.6:
            # The tip against the ridge: narrower, with its underside in view.
            strength = (lift - 0.6) / 0.4
            base = self._hump(base, ys, cx, cy + 9.0, half * 0.36, 10.0, tongue * 0.9, strength)
        drop = jaw * 0.74 + 5.0 * (1 - s.lower) + 0.6
        base = self._teeth(base, rows, self._lower, drop, 0.35 + 0.6 * s.lower)
        base = self._teeth(base, rows, self._upper, 0.0, s.upper * (1 - s.round * (1 - s.lower)))
        if s.tip > 0.02:
            base = self._hump(base, ys, cx, cy + 11.5, half * 0.4, 8.5, tongue * 1.12, s.tip)
        # Lips shade what lies behind them.
        shade = 0.5 * np.exp(-(((ys - top) / 3.0) ** 2)) + 0.3 * np.exp(-(((bottom - ys) / 2.0) ** 2))
        shade = shade + 0.9 * np.clip(np.abs(u) - 0.5, 0, 1)
        return base * np.clip(1 - shade, 0.06, 1)[..., None]

    def _teeth(self, base, rows, sprite, drop, light):  # type: ignore[no-untyped-def]
        if light < 0.03:
            return base
        matrix = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, drop - rows.start]])
        size = (self._size[0], rows.stop - rows.start)
        moved = cv2.warpAffine(sprite, matrix, size, flags=cv2.INTER_LINEAR)
        alpha = moved[..., 3:] * min(1.0, light * 1.6)
        colour = moved[..., :3] * (0.35 + 0.65 * light) * min(1.0, light * 1.6)
        return colour + base * (1 - alpha)

    def _hump(self, base, ys, x, y, rx, ry, colour, strength):  # type: ignore[no-untyped-def]
        dx, dy = (self._xs - x) / rx, (ys - y) / ry
        distance = dx * dx + dy * dy
        cover = np.clip((1 - distance) * ry * 0.5, 0, 1) * strength
        lit = np.clip(0.72 - 0.34 * dy - 0.3 * dx * dx, 0.3, 1.15)
        groove = 1 - 0.16 * np.exp(-((dx / 0.12) ** 2)) * np.clip(1 - dy, 0, 1)
        shaded = colour * (lit * groove)[..., None]
        shine = np.exp(-((dx + 0.2) ** 2 / 0.05 + (dy + 0.45) ** 2 / 0.06))[..., None] * 46
        return base + (shaded + shine - base) * cover[..., None]

    def _lips(self, out, s, u, top, bottom, outer_u, outer_l, gap):  # type: ignore[no-untyped-def]
        ys = self._ys
        grain = np.interp(np.clip(u[0], -1, 1), np.linspace(-1, 1, 256), self._creases)[None, :]
        ends = np.clip((1.02 - np.abs(u)) / 0.1, 0, 1)
        # Upper lip: turned away from the light, darkest at the opening.
        v = np.clip((ys - outer_u) / np.maximum(top - outer_u, 0.5), 0, 1)
        tone = 1.04 - 0.24 * v**1.6 + 0.03 * grain
        colour = self._colours["upper_lip"] * tone[..., None]
        soft = np.clip((ys - outer_u + 0.8) / 2.6, 0, 1) * np.clip(top - ys + 0.5, 0, 1)
        out += (colour - out) * (soft * ends * 0.94)[..., None]
        # Lower lip: catches light on its roll.
        v = np.clip((ys - bottom) / np.maximum(outer_l - bottom, 0.5), 0, 1)
        tone = 0.86 + 0.2 * np.sin(np.pi * np.clip(v, 0, 1)) - 0.08 * v + 0.045 * grain
        colour = self._colours["lower_lip"] * tone[..., None]
        shine = np.exp(-(((v - 0.36) / 0.2) ** 2)) * np.exp(-(((u + 0.1) / 0.46) ** 2))
        shine = shine * (0.34 + 0.12 * grain) * (1 - 0.5 * s.press - 0.3 * s.tuck)
        colour = colour + (self._colours["highlight"] - colour) * shine[..., None]
        soft = np.clip(ys - bottom + 0.5, 0, 1) * np.clip((outer_l - ys + 1.2) / 4.2, 0, 1)
        out += (colour - out) * (soft * ends * 0.92)[..., None]
        # The line where closed lips meet; it opens into the two inner edges.
        closed = np.clip(1 - gap / 4.0, 0, 1)
        width = 1.25 + 0.5 * closed
        seam = np.exp(-(((ys - top) / width) ** 2)) * (0.45 + 0.5 * closed)
        seam = np.maximum(seam, np.exp(-(((ys - bottom) / width) ** 2)) * (0.2 + 0.6 * closed))
        seam = seam * np.clip((1.06 - np.abs(u)) / 0.14, 0, 1)
        out += (self._colours["line"] - out) * np.clip(seam, 0, 1)[..., None]
