"""The mouth of a photograph: its own lips moved, and what opens between them.

Both lips are cut from the picture along the mesh's curves. For a mouth shape each is stretched
between its new edges, and the skin around follows and comes to rest before the patch ends.
"""

from __future__ import annotations

import cv2
import numpy as np

from renderers.portrait.fields import JAW_PX, jaw_profile
from renderers.portrait.geometry import Curve, Lips, border, even_box, pixel_grid
from renderers.portrait.inside import Inside
from renderers.puppet.cache import Key
from renderers.puppet.paint import mix, planes_of
from renderers.puppet.visemes import MouthShape, shape_of
from renderers.warp import Patch, rgb_to_ycc, smooth_step
from renderers.warp.arrays import Array

OPENING = 0.66
"""Lips of a photograph open by this share of a drawn mouth's: more tears the corners."""
LIFT = 0.6
PARTED = 0.88
"""Share of the mouth's width over which lips part."""
NARROW, WIDE = 0.16, 0.07
"""By how much corners move in and out, by the half width."""
PARTED_PX = 5.0
"""Inner edges this far apart (at the size that shapes are given for) belong to an open mouth."""

TRIM_PX = 1.8
"""The mesh knows an edge within so much."""


class PortraitMouth:
    """Paints mouths over `plate`, the whole picture (RGB)."""

    def __init__(self, lips: Lips, unit: float, plate: Array, opening: float = 1.0) -> None:
        self._lips, self._unit = lips, unit
        self._open = OPENING * opening
        self._jaw_px = JAW_PX * unit
        half = lips.half
        self._reach = (half * 1.0 + 26 * unit, abs(lips.nose) * 0.94, lips.chin * 0.62)
        across, up, down = self._reach
        corners_s = np.array([-1, 1, 1, -1], np.float32) * (half + across)
        corners_t = np.array([-up, -up, down, down], np.float32)
        x, y = lips.axes.back(corners_s, corners_t)
        height, width = plate.shape[:2]
        self.box = even_box(x, y, (width, height))
        """Where the mouth is drawn while the head is at rest."""
        self._s, self._t = lips.axes.along(*pixel_grid(self.box))
        self._source = rgb_to_ycc(plate)
        self._edge = border(self.box, 4.0)
        self._fade = self._fading()
        self._parted = lips.parted >= PARTED_PX * unit
        self._closed = self._seam()
        self._profile_t = np.linspace(-60 * unit, lips.chin + 120 * unit, 500, dtype=np.float32)
        self._profile = jaw_profile(lips, unit, self._profile_t)
        self._inside = Inside(lips, unit, self._closed, self._source)

    def paint(self, key: Key) -> Patch:
        """The patch for a mouth."""
        return self.draw(shape_of(key))

    def draw(self, shape: MouthShape) -> Patch:
        """The patch for a mouth's shape."""
        lips, unit, t = self._lips, self._unit, self._t
        # Corners: what was at s0 is now at s.
        gain = NARROW if shape.width < 0 else WIDE
        ratio = 1 + gain * shape.width - 0.03 * shape.round + 0.04 * max(shape.smile, 0.0)
        s0 = self._narrowed(ratio)
        u = s0 / np.float32(lips.half)
        closed = self._closed(s0)
        # Where the photographed lips meet, both edges are the line between them.
        old_top = lips.inner_upper(s0) - self._trim(u) if self._parted else closed
        old_bottom = lips.inner_lower(s0) + self._trim(u) if self._parted else closed
        old_outer_top, old_outer_bottom = lips.outer_upper(s0), lips.outer_lower(s0)
        rest = closed - self._corner_rise(u, shape)
        # Lips part less towards the corners, and not at all in them: the rounder the narrower.
        reach = PARTED - 0.16 * shape.round + 0.06 * max(shape.width, 0.0)
        arc = np.maximum(1 - (u / np.float32(reach)) ** 2, 0)
        gap = shape.gap * self._open * unit
        lift = (LIFT * shape.lift) * unit
        up = lift + (0.16 + 0.16 * shape.round) * gap
        top = rest - up * arc
        hang = arc ** (0.95 - 0.2 * min(shape.gap / 38, 1.0))
        bottom = rest + (max(gap - up, -lift) - 0.6 * shape.tuck * unit) * hang
        bottom = np.maximum(bottom, top)
        full = (
            (1 - 0.24 * shape.press) * (1 + 0.22 * shape.round) * (1 - 0.06 * max(shape.width, 0))
        )
        thick_upper = np.maximum(old_top - old_outer_top, 0.5) * full * (1 - 0.12 * shape.tuck)
        thick_lower = np.maximum(old_outer_bottom - old_bottom, 0.5) * full
        outer_top = top - thick_upper
        outer_bottom = bottom + thick_lower * (1 - 0.30 * shape.tuck)
        if shape.jaw > 0.01:
            # The jaw's field will move these down.
            bottom = np.maximum(self._raised(bottom, shape.jaw), top)
            outer_bottom = np.maximum(self._raised(outer_bottom, shape.jaw), bottom + 0.5)
        above = self._from_above((outer_top, top), (old_outer_top, old_top))
        below = self._from_below((bottom, outer_bottom), (old_bottom, old_outer_bottom))
        middle = (top + bottom) / 2
        if self._parted:
            # Edges that were apart in the photograph meet sharply: mix them where they do.
            share = np.clip((t - middle) + 0.5, 0, 1)
            picture = self._picked(s0, above)
            mix(picture, self._picked(s0, below), share)
        else:
            picture = self._picked(s0, np.where(t < middle, above, below))
        if shape.gap > 0.3:
            self._inside.paint(picture, t, u, top, bottom, shape)
        return Patch(self.box.x, self.box.y, planes_of(picture))

    def _fading(self) -> Array:
        """1 around the mouth, 0 at the patch's border."""
        across, up, down = self._reach
        half = self._lips.half
        sides = smooth_step(half + across - 2.0, half * 1.05, np.abs(self._s))
        above = smooth_step(-up + 2.0, -0.35 * up, self._t)
        below = smooth_step(down - 2.0, 0.5 * down, self._t)
        result: Array = sides * above * below * self._edge
        return result

    def _narrowed(self, ratio: float) -> Array:
        if ratio == 1.0:
            return self._s
        half = self._lips.half
        _, up, down = self._reach
        near = self._edge * smooth_step(2.2 * half, 0.6 * half, np.abs(self._s))
        near *= smooth_step(-0.9 * up, -0.1 * up, self._t)
        near *= smooth_step(down, 0.3 * down, self._t)
        return np.asarray(self._s + self._s * ((1 / ratio - 1) * near), np.float32)

    def _corner_rise(self, u: Array, shape: MouthShape) -> Array:
        """How much higher than at rest the line between the lips runs: its ends, mostly."""
        amount = (4.2 if shape.smile > 0 else 2.6) * shape.smile * self._unit
        # Rounded lips do not smile, whatever the photograph does.
        smiling = max(0.0, self._closed_rise() - 3.0 * self._unit)
        amount = amount * (1 - shape.round) - 0.4 * shape.round * smiling
        side = np.minimum(np.abs(u), 1.4)
        result: Array = (amount * (side * side * (1.6 - 0.75 * side) - 0.25)).astype(np.float32)
        return result

    def _trim(self, u: Array) -> Array:
        """What is cut off lips that were apart, lest they bring some of the teeth along."""
        return np.asarray(TRIM_PX * self._unit * np.maximum(1 - u * u, 0), np.float32)

    def _closed_rise(self) -> float:
        """How far the corners of the photographed mouth lie above its middle."""
        ends = self._closed.t[[0, -1]]
        return float(self._closed.t[len(self._closed.t) // 2] - ends.mean())

    def _raised(self, t: Array, jaw: float) -> Array:
        down = self._profile_t + (self._jaw_px * jaw) * self._profile
        return np.asarray(np.interp(t, down, self._profile_t), np.float32)

    def _from_above(self, new: tuple[Array, Array], old: tuple[Array, Array]) -> Array:
        """Heights in the photograph of what the upper lip, and the skin above it, now show."""
        t = self._t
        (outer, inner), (old_outer, old_inner) = new, old
        through = np.clip((t - outer) / np.maximum(inner - outer, 0.5), 0, 1)
        on_lip = old_outer + through * (old_inner - old_outer) + np.maximum(t - inner, 0)
        reach = np.maximum(outer + self._reach[1], 4.0)
        skin = t - (outer - old_outer) * _eased(1 - (outer - t) / reach)
        return np.asarray(np.where(t < outer, skin, on_lip), np.float32)

    def _from_below(self, new: tuple[Array, Array], old: tuple[Array, Array]) -> Array:
        """The same of the lower lip and the skin below it."""
        t = self._t
        (inner, outer), (old_inner, old_outer) = new, old
        through = np.clip((t - inner) / np.maximum(outer - inner, 0.5), 0, 1)
        on_lip = old_inner + through * (old_outer - old_inner) + np.minimum(t - inner, 0)
        reach = np.maximum(self._reach[2] - outer, 4.0)
        skin = t - (outer - old_outer) * _eased(1 - (t - outer) / reach)
        return np.asarray(np.where(t > outer, skin, on_lip), np.float32)

    def _picked(self, s0: Array, t0: Array) -> Array:
        """The photograph at these positions; beside the mouth, at where they came from."""
        x, y = self._lips.axes.back(s0, self._t + (t0 - self._t) * self._fade)
        x, y = np.asarray(x, np.float32), np.asarray(y, np.float32)
        ways = (cv2.INTER_CUBIC, cv2.INTER_LINEAR, cv2.INTER_LINEAR)
        return np.stack(
            [
                cv2.remap(plane, x, y, way, borderMode=cv2.BORDER_REPLICATE)
                for plane, way in zip(self._source, ways, strict=True)
            ]
        )

    def _seam(self) -> Curve:
        """Where closed lips meet. The mesh knows it within two pixels or so; the line itself is the
        darkest there."""
        lips, unit = self._lips, self._unit
        at = np.linspace(-lips.half, lips.half, 129, dtype=np.float32)
        upper, lower = lips.inner_upper(at), lips.inner_lower(at)
        if self._parted:
            return Curve(lips.half, np.asarray(upper * 0.6 + lower * 0.4, np.float32))
        offsets = np.linspace(-4.0, 4.0, 33, dtype=np.float32) * np.float32(unit)
        grey = cv2.GaussianBlur(self._source[0], (0, 0), 0.8 * unit)
        x, y = lips.axes.back(at[None, :], (upper + lower)[None, :] / 2 + offsets[:, None])
        luma = cv2.remap(
            grey, np.asarray(x, np.float32), np.asarray(y, np.float32), cv2.INTER_LINEAR
        )
        luma = cv2.GaussianBlur(luma, (0, 0), sigmaX=5.0, sigmaY=0.01)
        # Not far from what the mesh says, unless it is clearly darker there.
        unlikely = luma + 1.2 * np.abs(offsets / np.float32(unit))[:, None]
        found = offsets[unlikely.argmin(axis=0)]
        found = cv2.GaussianBlur(found[None], (0, 0), 6.0)[0]
        ends = np.clip((1 - np.abs(at / lips.half)) * 4, 0, 1)
        return Curve(lips.half, np.asarray((upper + lower) / 2 + found * ends, np.float32))


def _eased(values: Array) -> Array:
    """0 below 0, 1 above 1, and as straight between as a soft start and end allow: the skin between
    is stretched evenly."""
    t = np.clip(values, 0, 1)
    result: Array = t + 0.35 * (t * t * (3 - 2 * t) - t)
    return result
