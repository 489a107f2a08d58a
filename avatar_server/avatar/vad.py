"""Voice activity: how likely is it that somebody speaks in this frame (Silero VAD v6, MIT)."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np
import onnxruntime
from numpy.typing import NDArray

SAMPLE_RATE_HZ = 16_000
FRAME_SAMPLES = 512
FRAME_MS = 32
_CONTEXT_SAMPLES = 64
_STATE_SHAPE = (1, 1, 128)


@lru_cache(maxsize=4)
def _model(path: Path) -> onnxruntime.InferenceSession:
    """The model, once in a process: what it remembers of a stream is outside it."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.enable_cpu_mem_arena = False
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        str(path), sess_options=options, providers=["CPUExecutionProvider"]
    )
    inputs = {item.name for item in session.get_inputs()}
    if inputs != {"input", "h", "c"}:
        raise ValueError(f"{path} is not a Silero VAD v6 model: its inputs are {inputs}")
    return session


class Vad:
    """One stream's detector: the model with its recurrent state.

    Not thread-safe. Takes about a quarter of a millisecond of CPU a frame on one thread.
    """

    def __init__(self, path: Path) -> None:
        """`path` is the ONNX file. Raises `ValueError` where it is another model."""
        self._session = _model(path)
        self._input = np.zeros((1, _CONTEXT_SAMPLES + FRAME_SAMPLES), dtype=np.float32)
        self._h = np.zeros(_STATE_SHAPE, dtype=np.float32)
        self._c = np.zeros(_STATE_SHAPE, dtype=np.float32)

    def reset(self) -> None:
        """Forget the stream so far."""
        self._input[:] = 0.0
        self._h = np.zeros(_STATE_SHAPE, dtype=np.float32)
        self._c = np.zeros(_STATE_SHAPE, dtype=np.float32)

    def probability(self, frame: NDArray[np.int16]) -> float:
        """Probability of speech in the next 512 samples (32 ms) of 16 kHz mono sound."""
        if frame.shape != (FRAME_SAMPLES,):
            raise ValueError(f"a frame has {FRAME_SAMPLES} samples, not shape {frame.shape}")
        row = self._input[0]
        row[:_CONTEXT_SAMPLES] = row[-_CONTEXT_SAMPLES:]
        np.multiply(frame, np.float32(1 / 32768), out=row[_CONTEXT_SAMPLES:])
        (probability,), self._h, self._c = self._session.run(
            None, {"input": self._input, "h": self._h, "c": self._c}
        )
        return float(probability)

    def probabilities(self, pcm: NDArray[np.int16]) -> NDArray[np.float32]:
        """Probability of each whole frame of `pcm`, as of a new stream; one call to the model.

        The stream that `probability` follows is not touched.
        """
        count = len(pcm) // FRAME_SAMPLES
        if count == 0:
            return np.zeros(0, dtype=np.float32)
        frames = np.zeros((count, _CONTEXT_SAMPLES + FRAME_SAMPLES), dtype=np.float32)
        frames[:, _CONTEXT_SAMPLES:] = pcm[: count * FRAME_SAMPLES].reshape(count, FRAME_SAMPLES)
        frames *= np.float32(1 / 32768)
        frames[1:, :_CONTEXT_SAMPLES] = frames[:-1, -_CONTEXT_SAMPLES:]
        zero = np.zeros(_STATE_SHAPE, dtype=np.float32)
        probabilities, _, _ = self._session.run(None, {"input": frames, "h": zero, "c": zero})
        return np.asarray(probabilities, dtype=np.float32).reshape(-1)
