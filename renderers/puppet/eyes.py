"""Draws one eye: ball, iris, lids, lashes, over the skin of the plate."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from renderers.puppet.curves import between
from renderers.puppet.paint import bell, mix, moved, planes_of, sprite, tone
from renderers.puppet.rig import Eye, Eyes
from renderers.warp import Patch, rgb_to_ycc
from renderers.warp.arrays import Array

IRIS_SPRITE_PX = 40
"""Side of the iris sprite, a little more than it is shown at."""


class EyeState(NamedTuple):
    """What an eye shows, in whole steps so that equal looks share one drawing."""

    blink: int
    squint: int
    gaze_x: int
    gaze_y: int
    smile: int

    @classmethod
    def of(cls, blink: float, squint: float, gaze: tuple[float, float], smile: float) -> EyeState:
        """The nearest steps: lids within 0.5 px, iris within 0.3 px."""
        return cls(
            round(min(max(blink, 0.0), 1.0) * 24),
            round(min(max(squint, 0.0), 1.0) * 8),
            round(min(max(gaze[0], -1.0), 1.0) * 18),
            round(min(max(gaze[1], -1.0), 1.0) * 12),
            round(min(max(smile, 0.0), 1.0) * 6),
        )


EYE_TOLERANCE = (1.0, 1.0, 1.0, 1.0, 1.0)
"""Steps of each field of `EyeState` by which one drawing may stand for another."""


class EyePainter:
    """Draws one eye over `plate`, the whole RGB picture. `iris` is a premultiplied sprite."""

    def __init__(self, eye: Eye, eyes: Eyes, plate: Array, iris: Array) -> None:
        self._eye, self._eyes = eye, eyes
        box = eye.box
        skin = plate[box.y : box.y + box.height, box.x : box.x + box.width]
        self._skin = rgb_to_ycc(np.ascontiguousarray(skin))
        self._canvas = np.empty_like(self._skin)
        self._iris = sprite(iris)
        self._size = (box.width, box.height)
        self._xs = (np.arange(box.width, dtype=np.float32) + 0.5)[None, :]
        self._ys = (np.arange(box.height, dtype=np.float32) + 0.5)[:, None]
        inner, outer = (
            np.subtract(eye.inner, (box.x, box.y)),
            np.subtract(eye.outer, (box.x, box.y)),
        )
        self._half = float(abs(outer[0] - inner[0]) / 2)
        self._middle = (float(inner[0] + outer[0]) / 2, float(inner[1] + outer[1]) / 2)
        direction = 1.0 if outer[0] > inner[0] else -1.0
        # u runs from -1 at the inner corner to 1 at the outer one.
        u = (self._xs - np.float32(self._middle[0])) / np.float32(self._half * direction)
        self._u = u
        slope = float(outer[1] - inner[1]) / 2
        self._axis = np.float32(self._middle[1]) + slope * np.clip(u, -1.15, 1.15)
        inside = np.maximum(1 - u * u, 0)
        # The upper lid peaks towards the nose, the lower one towards the temple.
        self._upper_arc = inside**0.62 * (1 - 0.16 * u)
        self._lower_arc = inside**0.8 * (1 + 0.22 * u)
        wide = np.maximum(1 - np.abs(u / 1.16) ** 2.4, 0)
        self._crease_arc = wide**0.7 * (1 - 0.08 * u)
        self._lash_arc = np.maximum(1 - np.abs((u - 0.06) / 1.1) ** 3.0, 0) * (
            0.62 + 0.38 * np.clip(u + 0.6, 0, 1.4)
        )
        self._fade = np.clip((1.3 - np.abs(u)) / 0.3, 0, 1)
        self._lid, self._lid_shade = tone(eyes.lid), tone(eyes.lid_shade)
        self._lid_light, self._lash = tone(eyes.lid_light), tone(eyes.lash)
        self._crease_dark, self._gleam = tone(eyes.crease), tone((255.0, 252.0, 246.0))
        self._wet = tone((246.0, 196.0, 176.0))
        self._white = self._shaded_white()

    def _shaded_white(self) -> Array:
        # The ball falls off towards its outline and reddens in the corners.
        dx = (self._xs - self._middle[0]) / (self._half * 1.08)
        dy = (self._ys - self._middle[1]) / (self._half * 0.9)
        falloff = 1 - 0.42 * np.clip(dx * dx + dy * dy, 0, 1.3)
        corner = np.clip(np.abs(self._u) - 0.45, 0, 0.6)
        white: Array = (tone(self._eyes.white) * falloff).astype(np.float32)
        mix(white, tone(self._eyes.white_corner), corner * 0.55)
        return white

    def paint_key(self, key: tuple[int, ...]) -> Patch:
        """The patch for the `EyeState` of these numbers."""
        return self.paint(EyeState(*key))

    def paint(self, state: EyeState) -> Patch:
        """The patch for `state`."""
        eye, ys, u = self._eye, self._ys, self._u
        blink, squint, smile = state.blink / 24, state.squint / 8, state.smile / 6
        gaze_x, gaze_y = state.gaze_x / 18, state.gaze_y / 12
        narrowing = max(squint * 0.4, smile * 0.14)
        upper = eye.upper * (1 - 0.55 * narrowing) + gaze_y * (3.2 if gaze_y > 0 else 5.5)
        lower = eye.lower * (1 - 1.5 * narrowing) - gaze_y * (1.2 if gaze_y > 0 else 2.0)
        shut = -lower * 0.72
        lid_y = self._axis - (upper * (1 - blink) + shut * blink) * self._upper_arc
        floor_y = self._axis + lower * (1 - 0.28 * blink) * self._lower_arc
        # A closed lid's edge follows one smooth arc, whatever the open eye's is.
        floor_y = np.maximum(floor_y, lid_y)
        crease_y = self._axis - (upper * 0.86 + eye.crease) * (1 - 0.35 * blink) * self._crease_arc
        picture = self._canvas
        np.copyto(picture, self._skin)

        # The lid: skin between crease and lash line, lighter where it bulges.
        rows = slice(max(0, int(crease_y.min()) - 8), min(len(ys), int(floor_y.max()) + 8))
        view, yr = picture[:, rows], ys[rows]
        v = np.clip((yr - crease_y) / np.maximum(lid_y - crease_y, 1.0), 0, 1)
        cover = between(yr, crease_y, lid_y + 1.0) * (self._fade * (crease_y < lid_y) * 0.92)
        mix(view, self._lid_shade + (self._lid - self._lid_shade) * np.minimum(v * 2.4, 1), cover)
        bulge = bell((v - 0.5) / 0.26) * (bell(u / 0.62) * (0.35 + 0.3 * blink))
        mix(view, self._lid_light, bulge * cover)
        away = yr - crease_y
        line = np.where(away < 0, bell(away / 2.6), bell(away / 1.5))
        mix(
            view,
            self._crease_dark,
            line * (self._crease_arc**0.8 * self._fade * (0.5 - 0.2 * blink)),
        )

        if float((floor_y - lid_y).max()) > 0.4:
            opening = between(yr, lid_y, floor_y)
            mix(view, self._ball(rows, lid_y, floor_y, gaze_x, gaze_y), opening)
            wet = bell((yr - floor_y - 0.6) / 1.3) * (self._lower_arc * (1 - blink) * 0.35)
            mix(view, self._wet, wet)
        self._lashes(view, yr, lid_y, floor_y, blink)
        return Patch(eye.box.x, eye.box.y, planes_of(picture))

    def _ball(
        self, rows: slice, lid_y: Array, floor_y: Array, gaze_x: float, gaze_y: float
    ) -> Array:
        eye, eyes, ys = self._eye, self._eyes, self._ys[rows]
        rest = (self._middle[0], self._middle[1] - 3.0)
        centre = (rest[0] + gaze_x * eyes.gaze_px[0], rest[1] - gaze_y * eyes.gaze_px[1])
        ball = self._white[:, rows].copy()
        # A turned iris is seen at a slant.
        squeeze = math.cos(gaze_x * 0.42)
        scale = 2 * eye.iris_radius / IRIS_SPRITE_PX
        matrix = np.array(
            [
                [scale * squeeze, 0, centre[0] - (eye.iris_radius - scale / 2) * squeeze - 0.5],
                [0, scale, centre[1] - rows.start - eye.iris_radius + scale / 2 - 0.5],
            ]
        )
        iris = moved(self._iris, matrix, (self._size[0], rows.stop - rows.start))
        ball *= 1 - iris[3]
        ball += iris[:3]
        # The upper lid and its lashes shade the ball.
        shade = 0.62 * bell((ys - lid_y) / 7.0) + 0.18 * bell((floor_y - ys) / 2.5)
        ball *= 1 - shade
        light = eyes.light
        glow = self._spot(rows, rest, centre, light, 3.4)
        glow += self._spot(rows, rest, centre, (-light[0] * 0.9, 6.0), 1.9) * 0.4
        mix(ball, self._gleam, np.minimum(glow, 1))
        return ball

    def _spot(
        self,
        rows: slice,
        rest: tuple[float, float],
        centre: tuple[float, float],
        offset: tuple[float, float],
        radius: float,
    ) -> Array:
        # A reflection stays with the lamp: it follows the iris only a little.
        x = rest[0] + (centre[0] - rest[0]) * 0.25 + offset[0]
        y = rest[1] + (centre[1] - rest[1]) * 0.25 + offset[1]
        dx, dy = self._xs - np.float32(x), self._ys[rows] - np.float32(y)
        result: Array = np.clip(np.float32(radius + 0.5) - np.sqrt(dx * dx + dy * dy), 0, 1)
        return result

    def _lashes(self, view: Array, ys: Array, lid_y: Array, floor_y: Array, blink: float) -> None:
        thick = 0.7 + 1.9 * self._lash_arc
        line = between(ys, lid_y - thick * (1 - 0.45 * blink), lid_y + 0.8 + 1.0 * blink)
        line = line * np.minimum(self._lash_arc * 3, 1) * 0.86
        soft = bell((ys - lid_y + 1) / 3.2) * (self._lash_arc * 0.3)
        lower = bell((ys - floor_y - 1.6) / 1.1) * (self._lash_arc * (0.34 * (1 - blink)))
        mix(view, self._lash, np.minimum(line + soft + lower, 1))
