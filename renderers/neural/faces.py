"""Where drawn faces come from: the network in this process, or another process's."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from renderers.neural.base import Base
from renderers.neural.network import FaceJob, LipSyncNetwork


class Drawn(NamedTuple):
    """A face, RGB uint8 [size, size, 3], and the number of the frame that it was drawn for."""

    number: int
    face: NDArray[np.uint8]


class FaceSource(Protocol):
    """Draws faces for numbered frames. Neither method waits."""

    ahead: int
    """How many frames before it is shown a face is asked for."""

    def ask(self, number: int, index: int, mel: NDArray[np.float32], left_s: float) -> None:
        """Draw the face of picture `index` with the mouth of `mel`, float32 [80, 16], which is
        shown in `left_s` seconds. A number that is asked for again is drawn again.
        """
        ...

    def take(self, number: int) -> Drawn | None:
        """The face drawn for `number`, or else for the newest before it that is still there."""
        ...

    def close(self) -> None:
        """No more faces are needed."""
        ...


class LocalFaces:
    """Draws at once, in this process and on its thread: for previews, benchmarks and tests."""

    ahead = 0

    def __init__(self, network: LipSyncNetwork, base: Base) -> None:
        self._network, self._pictures = network, base.faces(network.size)
        self._last: Drawn | None = None

    def ask(self, number: int, index: int, mel: NDArray[np.float32], left_s: float) -> None:
        """See `FaceSource.ask`."""
        (drawn,) = self._network.run([FaceJob(mel, self._pictures[index])])
        self._last = Drawn(number, drawn)

    def take(self, number: int) -> Drawn | None:
        """See `FaceSource.take`."""
        return self._last

    def close(self) -> None:
        """See `FaceSource.close`."""
        self._last = None


class PictureFaces:
    """Gives each picture's own face, as if it had been drawn: to measure all but the network."""

    ahead = 3

    def __init__(self, base: Base, size: int = 96) -> None:
        self._pictures = base.faces(size)
        self._asked: dict[int, int] = {}

    def ask(self, number: int, index: int, mel: NDArray[np.float32], left_s: float) -> None:
        """See `FaceSource.ask`."""
        self._asked[number] = index
        self._asked.pop(number - 16, None)

    def take(self, number: int) -> Drawn | None:
        """See `FaceSource.take`."""
        index = self._asked.get(number)
        return None if index is None else Drawn(number, self._pictures[index])

    def close(self) -> None:
        """See `FaceSource.close`."""
        self._asked.clear()
