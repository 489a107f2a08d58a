"""Kokoro-82M by ONNX Runtime, on the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from avatar_server.inference.memory import MemoryFigure, files_bytes
from avatar_server.inference.tts.onnxgraph import GraphError, OnnxGraph
from avatar_server.inference.tts.runtime import derived, open_session

_DURATIONS = "/encoder/Clip_output_0"


class OnnxKokoro:
    """A `KokoroModel` from an `.onnx` file. Raises `TtsError` where it is none."""

    name = "kokoro-82m (int8)"

    def __init__(self, path: Path, *, threads: int = 1) -> None:
        self.cpu_threads = threads
        timed = derived(path, {"timed": _with_durations})["timed"]
        self._session = open_session(timed, threads)
        self._memory = MemoryFigure("cpu", files_bytes(timed))
        names = [item.name for item in self._session.get_inputs()]
        self._tokens_input = "input_ids" if "input_ids" in names else "tokens"

    def speak(
        self, tokens: list[int], style: NDArray[np.float32], speed: float
    ) -> tuple[NDArray[np.float32], NDArray[Any]]:
        feed: dict[str, NDArray[Any]] = {
            self._tokens_input: np.array([tokens], np.int64),
            "style": style.reshape(1, -1),
            "speed": np.array([speed], np.float32),
        }
        sound, durations = self._session.run(None, feed)
        return np.asarray(sound, np.float32).ravel(), durations.ravel()[: len(tokens)]

    def memory(self) -> MemoryFigure:
        return self._memory


def _with_durations(graph: OnnxGraph) -> OnnxGraph:
    if not graph.has_tensor(_DURATIONS):
        raise GraphError(f"not the Kokoro export that is supported: no tensor {_DURATIONS}")
    return graph.extract([], [graph.outputs[0], _DURATIONS])
