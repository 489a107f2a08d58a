"""Sound for a renderer that hears, where there is no session to give it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from renderers.contract import Sound


def recorded(pcm: NDArray[np.int16]) -> Sound:
    """A recording (int16, mono, 48 kHz) that begins at media time 0; silence around it."""

    def sound(first: int, count: int) -> NDArray[np.int16]:
        out = np.zeros(count, np.int16)
        start, end = max(first, 0), min(first + count, len(pcm))
        if start < end:
            out[start - first : end - first] = pcm[start:end]
        return out

    return sound
