"""A time that is drawn into a picture, so that whoever shows it can tell how old it is.

For benchmarks only: nothing in the server draws it.
"""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray

CELL_PX = 16
"""A macroblock: no bit bleeds into the next."""
_TIME_BITS = 24
_CHECK_BITS = 8
BITS = _TIME_BITS + _CHECK_BITS
WIDTH_PX = BITS * CELL_PX
DARK, LIGHT = 24, 225
_SHIFTS = np.arange(BITS - 1, -1, -1)


def stamp(pixels: NDArray[np.uint8], at: float | None = None) -> None:
    """Draw the wall clock's `at` (s, by default now) into the top left corner.

    `pixels`: luma (height, width) or RGB (height, width, 3); 24 bits of milliseconds and a
    check sum of 8, most significant bit first, light for 1.
    """
    ms = int((time.time() if at is None else at) * 1e3) & ((1 << _TIME_BITS) - 1)
    word = ms << _CHECK_BITS | check(ms)
    bits = np.where(word >> _SHIFTS & 1, LIGHT, DARK).astype(np.uint8)
    row = np.repeat(bits, CELL_PX)
    corner = pixels[:CELL_PX, :WIDTH_PX]
    corner[:] = row if pixels.ndim == 2 else row[:, None]


def check(ms: int) -> int:
    """The check sum of a stamped time: a corner that is no stamp is not taken for one."""
    return (ms ^ ms >> 8 ^ ms >> 16 ^ 0xA5) & 0xFF
