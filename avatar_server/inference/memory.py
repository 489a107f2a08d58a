"""How much memory each model takes, and where."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MemoryFigure:
    """Bytes that one part of the inference process holds.

    `measured` tells a figure read from the allocator or the process after loading from one
    computed from sizes of files and settings. Memory elsewhere (an endpoint's) is not ours: 0.
    """

    device: str
    """`cpu`, or the GPU as its runtime names it, e.g. `cuda:0`."""
    weights: int = 0
    cache: int = 0
    """Set aside for what is remembered between steps (key-value cache)."""
    working: int = 0
    """Activations, graphs, buffers."""
    measured: bool = False

    @property
    def total(self) -> int:
        return self.weights + self.cache + self.working

    def __str__(self) -> str:
        kind = "" if self.measured else "about "
        return f"{kind}{self.total / 2**30:.2f} GiB on {self.device}"
