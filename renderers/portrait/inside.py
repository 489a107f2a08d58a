"""What an open mouth shows: dark, tongue and teeth, in the photograph's own light."""

from __future__ import annotations

import cv2
import numpy as np

from renderers.portrait.geometry import Curve, Lips
from renderers.puppet.paint import bell, mix, tone
from renderers.puppet.visemes import MouthShape
from renderers.warp.arrays import Array

_TEETH = (8.6, 6.6, 7.4, 6.2, 6.2)
"""Widths from the middle to the side (at the size that shapes are given for)."""

_MARGIN_PX = 6


class Inside:
    """Paints into the opening between two lips. `source` is the photograph, luma and chroma
    differences (3, height, width); `closed` where the lips meet at rest."""

    def __init__(self, lips: Lips, unit: float, closed: Curve, source: Array) -> None:
        self._unit = np.float32(unit)
        self._half = np.float32(lips.half)
        skin = _skin(lips, source)
        self._light = float(np.clip(skin[0, 0, 0] / 150.0, 0.35, 1.1))
        # White in the light that falls on the face.
        enamel = tone((240.0, 226.0, 204.0)) * np.float32(0.96 * min(self._light, 1.05))
        self._enamel = np.asarray(0.64 * enamel + 0.36 * skin, np.float32)
        self._dark, self._throat, self._tongue_tone, self._rim = (
            tone(colour) * np.float32(self._light)
            for colour in (
                (30.0, 11.0, 12.0),
                (74.0, 28.0, 27.0),
                (186.0, 96.0, 92.0),
                (58, 22, 22),
            )
        )
        # Teeth stand in an even arch, however the lips' line runs.
        at = np.linspace(-0.8, 0.8, 41, dtype=np.float32) * self._half
        self._arch = np.polyfit(at, closed(at), 2)
        self._centre = float(closed(np.zeros(1, np.float32))[0])

    def paint(
        self, picture: Array, t: Array, u: Array, top: Array, bottom: Array, shape: MouthShape
    ) -> None:
        """Fill what lies between `top` and `bottom`, in place. All are of the picture's size: `t`
        the height of each pixel, `u` its place between the corners, -1..1."""
        open_ = bottom - top > 0.05
        if not open_.any():
            return
        rows, columns = np.flatnonzero(open_.any(axis=1)), np.flatnonzero(open_.any(axis=0))
        between = (t >= top - 1) & (t <= bottom + 1) & open_
        rows = np.flatnonzero(between.any(axis=1))
        if not len(rows):
            return
        window = np.s_[
            max(0, rows[0] - _MARGIN_PX) : rows[-1] + _MARGIN_PX,
            max(0, columns[0] - _MARGIN_PX) : columns[-1] + _MARGIN_PX,
        ]
        view = picture[:, window[0], window[1]]
        t, u, top, bottom = t[window], u[window], top[window], bottom[window]
        opening = np.clip(t - top + 0.5, 0, 1) * np.clip(bottom - t + 0.5, 0, 1)
        opening *= np.clip(bottom - top, 0, 1)
        mix(view, self._interior(shape, t, u, top, bottom), opening)
        # Where a lip turns inwards it is dark and wet.
        wide = np.clip((bottom - top) / (3 * self._unit), 0, 1)
        rim = bell((t - top) / (1.1 * self._unit)) * (0.35 * wide)
        rim += bell((t - bottom) / self._unit) * (0.22 * wide)
        mix(view, self._rim, rim * np.clip((1.0 - np.abs(u)) * 6, 0, 1))

    def _interior(self, shape: MouthShape, t: Array, u: Array, top: Array, bottom: Array) -> Array:
        unit = self._unit
        depth = np.clip((t - top) / np.maximum(bottom - top, 1.0), 0, 1)
        share = depth * (1 - 0.6 * np.minimum(u * u, 1))
        picture = np.asarray(self._dark + (self._throat - self._dark) * share, np.float32)
        arch = np.asarray(np.polyval(self._arch, u * self._half), np.float32)
        floor = float(bottom.max())
        tip_shows = shape.tip > 0.3
        if not tip_shows:
            self._tongue(picture, shape, t, u, floor)
        self._teeth(picture, shape, t, u, arch, bottom)
        if tip_shows:
            self._tongue(picture, shape, t, u, floor)
        # Lips shade what lies behind them, cheeks what lies beside.
        shade = 0.55 * bell((t - top) / (2.6 * unit)) + 0.35 * bell((bottom - t) / (2.0 * unit))
        shade += 0.75 * np.clip(np.abs(u) - 0.45, 0, 1)
        picture *= np.clip(1 - shade, 0.08, 1)
        # As sharp as the photograph, not sharper.
        soft = max(0.6 * float(unit), 0.5)
        return np.stack([cv2.GaussianBlur(plane, (0, 0), soft) for plane in picture])

    def _tongue(self, picture: Array, shape: MouthShape, t: Array, u: Array, floor: float) -> None:
        unit = self._unit
        height = max(shape.tongue, 0.9 * shape.tip, 0.5 * shape.back)
        show = min(1.0, 0.25 + height + 0.5 * shape.jaw) * (1 - 0.8 * shape.round)
        if show < 0.05:
            return
        raised = floor + (4.0 - 5.5 * height) * unit
        if shape.tip > 0.3:
            raised = self._centre + 11.0 * unit
        dx = u / np.float32(0.62 - 0.1 * height)
        dy = (t - np.float32(raised)) / ((9.0 + 3 * height) * unit)
        cover = np.clip((1 - dx * dx - dy * dy) * (4.0 * unit), 0, 1) * np.float32(show)
        lit = np.clip(0.62 - 0.34 * dy - 0.22 * dx * dx, 0.25, 1.05)
        mix(picture, np.asarray(self._tongue_tone * lit, np.float32), cover)

    def _teeth(
        self, picture: Array, shape: MouthShape, t: Array, u: Array, arch: Array, bottom: Array
    ) -> None:
        unit = self._unit
        along = np.abs(u) * (self._half / unit)
        side = np.minimum(u * u, 1.2)
        shown = shape.upper * (1 - 0.7 * shape.round * (1 - shape.lower))
        if shown > 0.03:
            gaps = _between_teeth(along)
            edge = arch + (5.4 - 3.2 * side - 0.5 * gaps) * unit
            cover = np.clip((edge - t) / (1.1 * unit) + 0.5, 0, 1) * min(1.0, 1.5 * shown)
            cover = cover * np.clip((0.92 - np.abs(u)) * 6, 0, 1)
            low = bell((t - edge) / (2.4 * unit))
            shade = (1 - 0.30 * side - 0.08 * gaps) * (1 - 0.10 * low)
            shade *= 0.55 + 0.45 * min(shown, 1.0)
            mix(picture, np.asarray(self._enamel * shade, np.float32), cover)
        if shape.lower > 0.05:
            edge = bottom - (2.6 + 3.4 * shape.lower - 1.8 * side) * unit
            edge = np.maximum(edge, arch + 4.6 * unit)
            cover = np.clip((t - edge) / (1.1 * unit) + 0.5, 0, 1) * min(1.0, 1.3 * shape.lower)
            cover = cover * np.clip((0.72 - np.abs(u)) * 6, 0, 1)
            narrow = _between_teeth(along * 1.45)
            shade = (0.78 - 0.3 * side - 0.10 * narrow) * (1 - 0.2 * (1 - shape.lower))
            mix(picture, np.asarray(self._enamel * shade, np.float32), cover)


def _between_teeth(along: Array) -> Array:
    """1 where two teeth meet, 0 on them; `along` is the distance from the middle."""
    gaps = bell(along / 0.55)
    at = 0.0
    for width in _TEETH:
        at += width
        gaps = np.maximum(gaps, bell((along - at) / 0.6))
    return gaps


def _skin(lips: Lips, source: Array) -> Array:
    """The colour of the skin above the lips where the light falls on it, shape (3, 1, 1)."""
    s, t = np.meshgrid(
        np.linspace(-0.8, 0.8, 17) * lips.half, np.linspace(-0.6, -0.25, 7) * abs(lips.nose)
    )
    x, y = (np.asarray(axis, np.float32) for axis in lips.axes.back(s, t))
    found = np.stack([cv2.remap(plane, x, y, cv2.INTER_LINEAR).ravel() for plane in source])
    lit = found[0] >= np.percentile(found[0], 70)
    return np.asarray(np.median(found[:, lit], axis=1), np.float32).reshape(3, 1, 1)
