"""The lip-sync networks that are loaded, each once for all avatars that name it."""

from __future__ import annotations

import asyncio
from pathlib import Path

from avatar_server.config import FaceSettings
from avatar_server.inference.memory import MemoryFigure, MemoryMeter
from avatar_server.paths import cache_dir
from renderers.neural import LipSyncNetwork, Manifest, NeuralError

_Key = tuple[Path, int, int, str]


def load_network(manifest: Manifest, settings: FaceSettings) -> LipSyncNetwork:
    """The network that a manifest names, where the settings have it run. Raises `NeuralError`."""
    return LipSyncNetwork(
        manifest.network,
        device=settings.device,
        threads=settings.threads,
        channels=manifest.channels,
        cache=cache_dir(),
    )


class Networks:
    """Loads what is asked for. Used on one event loop."""

    def __init__(self, settings: FaceSettings) -> None:
        self._settings = settings
        self._loaded: dict[_Key, LipSyncNetwork] = {}
        self._memory: dict[_Key, MemoryFigure] = {}
        self._lock = asyncio.Lock()

    async def get(self, manifest: Manifest) -> LipSyncNetwork:
        """The network that a manifest names, loaded now where it was not. Raises `NeuralError`.

        A file that was replaced is loaded anew; sessions that run keep what they began with.
        """
        try:
            status = manifest.network.stat()
        except OSError as error:
            raise NeuralError(f"{manifest.network}: {error.strerror}") from error
        key = (manifest.network, status.st_size, status.st_mtime_ns, manifest.channels)
        # One after the other: each may take a GPU's memory, which is measured by the difference.
        async with self._lock:
            if key not in self._loaded:
                for old in [k for k in self._loaded if k[0] == key[0] and k[3] == key[3]]:
                    del self._loaded[old], self._memory[old]
                loop = asyncio.get_running_loop()
                network, figure = await loop.run_in_executor(None, self._load, manifest)
                self._loaded[key], self._memory[key] = network, figure
        return self._loaded[key]

    def any(self) -> LipSyncNetwork | None:
        """The costliest one, for measuring."""
        return max(self._loaded.values(), key=lambda n: n.size, default=None)

    def memory(self) -> MemoryFigure | None:
        """What all of them hold; none where there is none."""
        figures = list(self._memory.values())
        if not figures:
            return None
        return MemoryFigure(
            figures[0].device,
            sum(f.weights for f in figures),
            working=sum(f.working for f in figures),
            measured=all(f.measured for f in figures),
        )

    def _load(self, manifest: Manifest) -> tuple[LipSyncNetwork, MemoryFigure]:
        meter = MemoryMeter("cpu" if self._settings.device == "cpu" else "cuda")
        network = load_network(manifest, self._settings)
        weights = manifest.network.stat().st_size
        if network.device == "cpu":
            return network, MemoryFigure("cpu", weights)
        return network, meter.figure(weights)
