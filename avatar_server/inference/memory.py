"""How much memory each model takes, and where."""

from __future__ import annotations

import importlib.util
import os
from dataclasses import dataclass
from pathlib import Path


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


def process_bytes(pid: int) -> int:
    """Resident memory of a process; 0 where that cannot be read, or it is gone."""
    try:
        with open(f"/proc/{pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def gpu_used_bytes() -> int | None:
    """What is taken of the first GPU's memory now, by everybody; None without PyTorch or a GPU.

    A part's own memory is the difference that its loading makes, so parts are loaded one by one.
    """
    if importlib.util.find_spec("torch") is None:
        return None
    import torch

    if not torch.cuda.is_available():
        return None
    free, total = torch.cuda.mem_get_info(0)
    return int(total - free)


class MemoryMeter:
    """Measures what a part takes while it is loaded: made before, asked after."""

    def __init__(self, device: str) -> None:
        """`device` as in the settings: `cpu` or `cuda`."""
        self._device = device
        self._before = gpu_used_bytes() if device != "cpu" else None

    def figure(self, weights: int, cache: int = 0) -> MemoryFigure:
        """`weights` and `cache` are known sizes; the GPU tells the whole, and so the rest.

        On the CPU only what is known is told: weights are mapped, and libraries shared.
        """
        if self._before is None or (after := gpu_used_bytes()) is None:
            return MemoryFigure(self._device, weights, cache)
        working = max(0, after - self._before - weights - cache)
        return MemoryFigure("cuda:0", weights, cache, working, measured=True)


def files_bytes(path: Path, pattern: str = "*") -> int:
    """Size of a file, or of a folder's files that match `pattern`."""
    files = [path] if path.is_file() else [f for f in path.glob(pattern) if f.is_file()]
    return sum(file.stat().st_size for file in files)
