"""Draws one eye: ball, iris, lids, lashes, over the skin of the plate."""

from __future__ import annotations

from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from renderers.puppet.rig import Eye, Eyes, rgb
from renderers.puppet.curves import between
from renderers.warp import Patch, rgb_to_i420

Array = NDArray[np.float32]

IRIS_SPRITE_PX = 40


class EyeState(NamedTuple):
    """What an eye shows, in whole steps so that equal looks share one drawing."""

    blink: int
    squint: int
    gaze_x: int
    gaze_y: int
    smile: int

    @classmethod
    def of(
        cls, blink: float, squint: float, gaze: tuple[float, float], smile: float
    ) -> EyeState:
        """The nearest steps: lids within 0.4 px, iris within 0.3 px."""
        return cls(
            round(min(max(blink, 0.0), 1.0) * 32),
            round(min(max(squint, 0.0), 1.0) * 10),
            round(min(max(gaze[0], -1.0), 1.0) * 18),
            round(min(max(gaze[1], -1.0), 1.0) * 12),
            round(min(max(smile, 0.0), 1.0) * 8),
        )


class EyePainter:
    """Draws the patch of one eye. `plate` is the whole plate, `iris` a premultiplied sprite."""

    def __init__(self, eye: Eye, eyes: Eyes, plate: Array, iris: Array) -> None:
        self._eye, self._eyes = eye, eyes
        box = eye.box
        self._skin = plate[box.y : box.y + box.height, box.x : box.x + box.width].copy()
        self._iris_sprite = iris
        self._size = (box.width, box.height)
        self._xs = (np.arange(box.width, dtype=np.float32) + 0.5 + box.x)[None, :]
        self._ys = (np.arange(box.height, dtype=np.float32) + 0.5 + box.y)[:, None]
        middle_x = (eye.inner[0] + eye.outer[0]) / 2
        self._middle_y = (eye.inner[1] + eye.outer[1]) / 2
        half = abs(eye.outer[0] - eye.inner[0]) / 2
        self._middle_x, self._half = middle_x, half
        # u runs from -1 at the inner corner to 1 at the outer one.
        direction = 1.0 if eye.outer[0] > eye.inner[0] else -1.0
        self._u = ((self._xs - middle_x) / half * direction).astype(np.float32)
        slope = (eye.outer[1] - eye.inner[1]) / 2
        self._axis = self._middle_y + slope * np.clip(self._u, -1.15, 1.15)
        inside = np.clip(1 - np.abs(self._u) ** 2.0, 0, 1)
        # The upper lid peaks towards the nose, the lower one towards the temple.
        self._upper_arc = inside**0.62 * (1 - 0.16 * self._u)
        self._lower_arc = inside**0.75 * (1 + 0.22 * self._u)
        wide = np.clip(1 - np.abs(self._u / 1.16) ** 2.4, 0, 1)
        self._crease_arc = wide**0.7 * (1 - 0.08 * self._u)
        self._lash_arc = np.clip(1 - np.abs((self._u - 0.06) / 1.1) ** 3.0, 0, 1) * (
            0.62 + 0.38 * np.clip(self._u + 0.6, 0, 1.4)
        )
        self._fade = np.clip((1.3 - np.abs(self._u)) / 0.3, 0, 1)
        self._colours = {
            name: np.array(rgb(getattr(eyes, name)), np.float32)
            for name in ("lid", "lid_shade", "lid_light", "lash", "white")
        }

    def paint(self, state: EyeState) -> Patch:
        """The patch for `state`."""
        eye, eyes = self._eye, self._eyes
        blink, squint, smile = state.blink / 32, state.squint / 10, state.smile / 8
        gaze_x, gaze_y = state.gaze_x / 18, state.gaze_y / 12
        narrowing = max(squint * 0.34, smile * 0.12)
        upper = eye.upper * (1 - 0.55 * narrowing) + (3.2 * gaze_y if gaze_y > 0 else 5.5 * gaze_y)
        lower = eye.lower * (1 - 1.5 * narrowing) + (1.2 if gaze_y > 0 else 2.0) * -gaze_y
        shut = -lower * 0.72
        upper_now = upper * (1 - blink) + shut * blink
        lower_now = lower * (1 - 0.28 * blink)
        lid_y = self._axis - upper_now * self._upper_arc
        floor_y = self._axis + lower_now * self._lower_arc
        crease = (upper * 0.86 + eye.crease) * (1 - 0.35 * blink)
        crease_y = self._axis - crease * self._crease_arc
        out = self._skin.copy()
        ys = self._ys

        # The lid: skin between crease and lash line, lighter where it bulges.
        span = np.maximum(lid_y - crease_y, 1.0)
        v = np.clip((ys - crease_y) / span, 0, 1)
        cover = between(ys, crease_y, lid_y + 1.0) * self._fade * np.clip(crease_y < lid_y, 0, 1)
        tone = self._colours["lid_shade"] + (self._colours["lid"] - self._colours["lid_shade"]) * (
            np.clip(v * 2.4, 0, 1)[..., None]
        )
        bulge = np.exp(-(((v - 0.5) / 0.26) ** 2)) * np.exp(-((self._u / 0.62) ** 2))
        tone += (self._colours["lid_light"] - tone) * (bulge * (0.35 + 0.3 * blink))[..., None]
        out += (tone - out) * (cover * 0.92)[..., None]
        # The crease itself: a soft dark line, sharper above.
        away = ys - crease_y
        line = np.exp(-((away / np.where(away < 0, 2.6, 1.5)) ** 2)) * self._crease_arc**0.8
        out *= 1 - (line * self._fade * (0.5 - 0.2 * blink))[..., None] * (
            np.array([0.75, 0.9, 1.0], np.float32)
        )

        opening = between(ys, lid_y, floor_y)
        if opening.any():
            ball = self._ball(lid_y, floor_y, gaze_x, gaze_y)
            out += (ball - out) * opening[..., None]
            wet = np.exp(-(((ys - floor_y - 0.6) / 1.3) ** 2)) * self._lower_arc * (1 - blink)
            out += (self._colours["lid_light"] * [1.0, 0.93, 0.9] - out) * (wet * 0.4)[..., None]
        self._lashes(out, lid_y, floor_y, blink)
        return Patch(eye.box.x, eye.box.y, rgb_to_i420(out.astype(np.float32)))

    def _ball(self, lid_y: Array, floor_y: Array, gaze_x: float, gaze_y: float) -> Array:
        eye, eyes = self._eye, self._eyes
        ys, xs = self._ys, self._xs
        centre_x = self._middle_x + gaze_x * eyes.gaze_px[0]
        centre_y = self._middle_y - 2.5 - gaze_y * eyes.gaze_px[1]
        round_ = ((xs - self._middle_x) / (self._half * 1.08)) ** 2
        round_ = round_ + ((ys - self._middle_y) / (self._half * 0.9)) ** 2
        ball = self._colours["white"] * (1 - 0.42 * np.clip(round_, 0, 1.3))[..., None]
        # Warmer towards the corners, where the white thins.
        warm = np.clip(np.abs(self._u) - 0.45, 0, 0.6)[..., None] * np.array([0, 34, 40])
        ball = ball - warm
        scale = 2 * eye.iris_radius / IRIS_SPRITE_PX
        squeeze = float(np.cos(gaze_x * 0.42))
        matrix = np.array(
            [
                [scale * squeeze, 0, centre_x - eye.box.x - eye.iris_radius * squeeze - 0.5],
                [0, scale, centre_y - eye.box.y - eye.iris_radius - 0.5],
            ],
            np.float64,
        )
        iris = cv2.warpAffine(self._iris_sprite, matrix, self._size, flags=cv2.INTER_LINEAR)
        ball = iris[..., :3] + ball * (1 - iris[..., 3:])
        # The upper lid and its lashes shade the ball.
        shade = np.exp(-(((ys - lid_y) / 7.0) ** 2)) * 0.62 + np.exp(
            -(((floor_y - ys) / 2.5) ** 2)
        ) * 0.18
        ball = ball * (1 - shade[..., None] * np.array([0.85, 0.95, 1.0]))
        glow = self._spot(centre_x, centre_y, eyes.light, 3.3, 0.25)
        spark = self._spot(centre_x, centre_y, (-eyes.light[0] * 0.9, 6.0), 1.9, 0.25) * 0.45
        lights = np.clip(glow + spark, 0, 1)[..., None]
        return ball + (np.array([255, 252, 246]) - ball) * lights

    def _spot(
        self, x: float, y: float, offset: tuple[float, float], radius: float, follow: float
    ) -> Array:
        # A reflection stays with the lamp: it follows the iris only a little.
        spot_x = self._middle_x + (x - self._middle_x) * follow + offset[0]
        spot_y = self._middle_y - 2.5 + (y - self._middle_y + 2.5) * follow + offset[1]
        distance = np.sqrt((self._xs - spot_x) ** 2 + (self._ys - spot_y) ** 2)
        return np.clip(radius - distance + 0.5, 0, 1).astype(np.float32)

    def _lashes(self, out: Array, lid_y: Array, floor_y: Array, blink: float) -> None:
        ys = self._ys
        thick = 0.7 + 1.9 * self._lash_arc
        line = between(ys, lid_y - thick * (1 - 0.45 * blink), lid_y + 0.9 + 1.3 * blink)
        line = line * np.clip(self._lash_arc * 3, 0, 1)
        soft = np.exp(-(((ys - lid_y + 1) / 3.2) ** 2)) * self._lash_arc * 0.32
        alpha = np.clip(line * 0.86 + soft, 0, 1)
        out += (self._colours["lash"] - out) * alpha[..., None]
        lower = np.exp(-(((ys - floor_y - 1.6) / 1.1) ** 2)) * self._lash_arc * 0.38
        out += (self._colours["lash"] - out) * lower[..., None]
