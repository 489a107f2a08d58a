"""End of turn: does this sound like somebody who has finished, or who only pauses?

Smart Turn v3.2 (Daily, BSD-2-Clause), Whisper tiny's encoder with a classifier. It judges
prosody and wording of the last eight seconds. It misses one-word replies, so a silence timeout
must stand beside it.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from avatar_server.inference.stt.mel import SAMPLE_RATE_HZ, MelExtractor

WINDOW_S = 8
_WINDOW_SAMPLES = WINDOW_S * SAMPLE_RATE_HZ
_VARIANCE_FLOOR = 1e-7


class EndOfTurnModel:
    """The loaded model. Threads may share it; a check takes one thread."""

    def __init__(self, path: Path, threads: int = 1) -> None:
        """`path` is the ONNX file. Raises `ValueError` where it is another model."""
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        self._session = onnxruntime.InferenceSession(
            str(path), sess_options=options, providers=["CPUExecutionProvider"]
        )
        inputs = {item.name: item.shape for item in self._session.get_inputs()}
        if list(inputs) != ["input_features"] or inputs["input_features"][1:] != [80, 800]:
            raise ValueError(f"{path} is not a Smart Turn v3 model: its inputs are {inputs}")
        self._mel = MelExtractor(80)

    def probability(self, pcm: NDArray[np.int16]) -> float:
        """Probability that the turn in `pcm` (16 kHz mono; its last 8 s count) is complete."""
        if pcm.ndim != 1:
            raise ValueError(f"sound must be mono samples, not of shape {pcm.shape}")
        features = self.features(pcm)
        (result,) = self._session.run(None, {"input_features": features[None]})
        return float(np.asarray(result).reshape(-1)[0])

    def features(self, pcm: NDArray[np.int16]) -> NDArray[np.float32]:
        """What the model sees, float32 [80, 800]: silence before the sound, unit variance."""
        samples = np.zeros(_WINDOW_SAMPLES, dtype=np.float32)
        if tail := min(len(pcm), _WINDOW_SAMPLES):
            np.multiply(pcm[-tail:], np.float32(1 / 32768), out=samples[-tail:])
        samples -= samples.mean()
        samples /= np.sqrt(samples.var() + _VARIANCE_FLOOR)
        return self._mel(samples)

    def warm_up(self) -> None:
        """Run once, so that the first check of a conversation is not slower than the others."""
        self.probability(np.zeros(SAMPLE_RATE_HZ, dtype=np.int16))
