"""The eyes of a photograph: looked through until a lid is drawn over them.

A photographed eye cannot be squeezed shut: it would squint. The lid is made of the skin around the
eye, comes down over it with its lashes, and what it covers stays as it was.
"""

from __future__ import annotations

import cv2
import numpy as np

from renderers.portrait.geometry import EyeShape, border, even_box, pixel_grid
from renderers.puppet.cache import Key
from renderers.puppet.eyes import EyeState
from renderers.puppet.paint import bell, mix, planes_of
from renderers.warp import Patch, rgb_to_ycc, smooth_step
from renderers.warp.arrays import Array

GAZE_PX = (3.4, 1.6)
"""How far the iris moves, at the size that shapes are given for: the white that a wider look would
uncover is not in the picture."""


class PortraitEye:
    """Paints one eye over `plate`, the whole picture (RGB)."""

    def __init__(self, eye: EyeShape, unit: float, plate: Array) -> None:
        self._eye, self._unit = eye, unit
        half = eye.half
        across, up, down = half + 11 * unit, min(0.82 * -eye.brow, 26 * unit), 22 * unit
        up = max(up, 10 * unit)
        corners = np.array([-across, across, across, -across], np.float32)
        x, y = eye.axes.back(corners, np.array([-up, -up, down, down], np.float32))
        height, width = plate.shape[:2]
        self.box = even_box(x, y, (width, height))
        self._x, self._y = pixel_grid(self.box)
        s, t = eye.axes.along(self._x, self._y)
        self._s, self._t = s, t
        box = self.box
        cut = np.s_[:, box.y : box.y + box.height, box.x : box.x + box.width]
        self._source = rgb_to_ycc(plate)
        self._still = np.ascontiguousarray(self._source[cut])
        self._u = s / np.float32(half)
        inside = np.maximum(1 - self._u * self._u, 0)
        self._arc = inside**0.6
        self._upper, self._lower = eye.upper(s), eye.lower(s)
        self._window = border(box, 4.0) * smooth_step(half + 10 * unit, half * 1.02, np.abs(s))
        self._lid = self._lid_skin()
        self._lash = self._lash_tone()

    def paint(self, key: Key) -> Patch:
        """The patch for the `EyeState` of these numbers."""
        state = EyeState(*key)
        unit = self._unit
        blink, squint, smile = state.blink / 24, state.squint / 8, state.smile / 6
        picture = self._looking(state.gaze_x / 18, state.gaze_y / 12)
        shut = min(1.0, blink + (1 - blink) * (0.26 * squint + 0.06 * smile))
        if shut > 0.01:
            height = self._lower - self._upper
            # Lids meet low, on a line that hangs less than the lower lid.
            meet = self._upper + height * 0.92 + 0.4 * unit * self._arc
            lid = self._upper + (meet - self._upper) * np.float32(shut)
            floor = self._lower - (self._lower - meet) * np.float32(max(0.0, shut - 0.5) * 2)
            self._draw_floor(picture, lid, floor, shut)
            self._draw_lid(picture, lid, shut)
        picture = self._still + (picture - self._still) * self._window
        return Patch(self.box.x, self.box.y, planes_of(np.ascontiguousarray(picture, np.float32)))

    def _looking(self, gaze_x: float, gaze_y: float) -> Array:
        if gaze_x == 0 and gaze_y == 0:
            return self._still.copy()
        inside = np.clip((self._t - self._upper) / (1.5 * self._unit), 0, 1)
        inside = inside * np.clip((self._lower - self._t) / (1.5 * self._unit), 0, 1)
        inside = inside * smooth_step(1.0, 0.45, np.abs(self._u))
        height = np.maximum(self._lower - self._upper, 1.0)
        v = np.clip((self._t - self._upper) / height, 0, 1)
        by_x = GAZE_PX[0] * self._unit * gaze_x * inside
        # Up and down the iris slides under the lids, which stay.
        by_y = GAZE_PX[1] * self._unit * gaze_y * inside * (4 * v * (1 - v))
        x, y = self._eye.axes.back(self._s - by_x, self._t + by_y)
        x, y = x.astype(np.float32), y.astype(np.float32)
        moved = [
            cv2.remap(plane, x, y, cv2.INTER_CUBIC, borderMode=cv2.BORDER_REPLICATE)
            for plane in self._source
        ]
        return np.stack(moved)

    def _draw_lid(self, picture: Array, lid: Array, shut: float) -> None:
        unit, t, u = self._unit, self._t, self._u
        # From above the lashes of the open eye, if the mesh is a little off, to the lid's edge.
        first = np.maximum(self._upper - 11.0 * unit, self._eye.brow + 2.0 * unit)
        first = np.minimum(first, self._upper - 4.0 * unit)
        ends = smooth_step(1.42, 0.92, np.abs(u))
        cover = smooth_step(0.0, 1.0, (t - first) / (6.0 * unit))
        cover = cover * smooth_step(-0.9 * unit, 0.5 * unit, lid - t) * ends * min(1.0, 4 * shut)
        v = np.clip((t - first) / np.maximum(lid - first, 1.0), 0, 1)
        bulge = bell((v - 0.5) / 0.3) * bell(u / 0.62)
        shade = 0.985 + 0.05 * bulge - 0.07 * v * v - 0.04 * u * u
        fold = bell((t - self._upper + 3.6 * unit) / (1.3 * unit)) * self._arc
        shade = shade - fold * (0.10 - 0.05 * shut)
        skin = self._lid.copy()
        skin *= shade.astype(np.float32)
        mix(picture, skin, cover)
        thick = (0.7 + 0.75 * self._arc) * np.float32(unit)
        line = bell((t - lid - 0.1 * unit) / thick) * smooth_step(1.06, 0.82, np.abs(u))
        line = line * (0.4 + 0.6 * self._arc) * min(1.0, 4 * shut)
        mix(picture, self._lash, 0.80 * line)
        lashes = bell((t - lid - 2.0 * unit) / (1.9 * unit)) * self._arc * (0.20 * shut)
        mix(picture, self._lash, lashes)

    def _draw_floor(self, picture: Array, lid: Array, floor: Array, shut: float) -> None:
        """What is left of the eye below a nearly shut lid."""
        if shut < 0.55:
            return
        unit, t = self._unit, self._t
        # Down to where the eye ends, if the mesh saw it a little too small.
        below = smooth_step(-0.9 * unit, 0.2 * unit, t - floor)
        below = below * smooth_step(5.5 * unit, 0.5 * unit, t - self._lower)
        below = below * smooth_step(-0.4 * unit, 0.4 * unit, t - lid)
        below = below * smooth_step(1.2, 0.95, np.abs(self._u))
        mix(picture, self._lid * np.float32(0.92), below * min(1.0, 4 * (shut - 0.55)))

    def _lid_skin(self) -> Array:
        """Skin for the lid: what lies around the eye, drawn over it, with its own grain."""
        unit, t = self._unit, self._t
        margin = 6.0 * unit
        eye = (t > self._upper - margin) & (t < self._lower + margin)
        eye &= np.abs(self._u) < 1.25
        luma = self._still[0]
        usual = float(np.percentile(luma[~eye], 65))
        weight = np.where(eye | (luma < 0.8 * usual), 0.0, 1.0).astype(np.float32)
        # The lower lid and the cheek are a better likeness than the brow's shadow.
        weight *= np.where(t < 0, np.float32(0.55), np.float32(1.0))
        filled = np.zeros_like(self._still)
        left = np.ones_like(weight)
        for sigma in (3.0, 7.0, 16.0, 40.0):
            near = cv2.GaussianBlur(weight, (0, 0), sigma * unit, borderType=cv2.BORDER_REFLECT)
            trust = np.clip(near * 12, 0, 1) * left
            for plane, target in zip(self._still, filled, strict=True):
                soft = cv2.GaussianBlur(
                    plane * weight, (0, 0), sigma * unit, borderType=cv2.BORDER_REFLECT
                )
                target += trust * soft / np.maximum(near, 1e-4)
            left = left - trust
        filled += left * np.median(self._still[:, ~eye], axis=1)[:, None, None]
        smooth = np.stack([cv2.GaussianBlur(plane, (0, 0), 2.0 * unit) for plane in filled])
        # The photograph's grain, from the cheek below.
        down = round(34 * unit)
        box = self.box
        rows = np.clip(np.arange(box.y + down, box.y + down + box.height), 0, None)
        rows = np.minimum(rows, self._source.shape[1] - 1)
        cheek = self._source[0][rows, box.x : box.x + box.width]
        grain = cheek - cv2.GaussianBlur(cheek, (0, 0), 1.4 * unit)
        smooth[0] += np.clip(grain, -5, 5) * 0.8
        return np.asarray(smooth, np.float32)

    def _lash_tone(self) -> Array:
        """The colour of the lashes: the dark of the upper lid's edge."""
        near = np.abs(self._t - self._upper) < 2.0 * self._unit
        near &= np.abs(self._u) < 0.8
        pixels = self._still[:, near]
        dark = pixels[0] <= np.percentile(pixels[0], 25)
        colour = np.median(pixels[:, dark], axis=1) * np.array([0.8, 0.9, 0.9])
        return np.asarray(colour, np.float32).reshape(3, 1, 1)
