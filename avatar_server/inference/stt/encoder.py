"""Whisper's encoder over as much of its 30 s window as there is sound."""

from __future__ import annotations

import threading

import ctranslate2
import numpy as np
from numpy.typing import NDArray

from avatar_server.inference.stt.mel import HOP_SAMPLES, SAMPLE_RATE_HZ, MelExtractor

FULL_WINDOW_S = 30
_POSITIONS = 1_500
_SAMPLES_PER_POSITION = 2 * HOP_SAMPLES
"""The encoder halves the rate of the mel frames: one position is 20 ms."""

# Measured with tiny.en and base on read speech of 2 to 18 s, clean and with noise: 0.1 s of
# silence encoded after the sound is too little (loops), 0.5 s no better than 0.3 s; 7 s of
# known silence after that are as good as the rest of the 30 s, and cost the decoder less.
_MARGIN_S = 0.3
_TAIL_POSITIONS = 350
_MIN_POSITIONS = 500


class Encoder:
    """Sound to the states that the decoder reads. Threads may share it."""

    def __init__(self, model: ctranslate2.models.Whisper) -> None:
        self._model = model
        self._mel = MelExtractor(model.n_mels)
        self._silence: NDArray[np.float32] | None = None
        self._lock = threading.Lock()

    def __call__(self, samples: NDArray[np.float32], cut: bool) -> ctranslate2.StorageView:
        """float32 [n] at 16 kHz, at most 30 s -> states [1, positions, width].

        `cut` encodes the sound only and continues with states of silence; otherwise the whole
        window is encoded, as the model was trained.
        """
        if not cut:
            return self._encode(samples, _POSITIONS)
        sound = len(samples) + round(_MARGIN_S * SAMPLE_RATE_HZ)
        positions = min(_POSITIONS, -(-sound // _SAMPLES_PER_POSITION))
        states = np.asarray(self._encode(samples, positions), dtype=np.float32)
        total = min(_POSITIONS, max(_MIN_POSITIONS, positions + _TAIL_POSITIONS))
        joined = np.concatenate([states, self._of_silence()[:, positions:total]], axis=1)
        return ctranslate2.StorageView.from_array(np.ascontiguousarray(joined))

    def _of_silence(self) -> NDArray[np.float32]:
        with self._lock:
            if self._silence is None:
                nothing = np.zeros(0, dtype=np.float32)
                self._silence = np.array(self._encode(nothing, _POSITIONS), dtype=np.float32)
            return self._silence

    def _encode(self, samples: NDArray[np.float32], positions: int) -> ctranslate2.StorageView:
        padded = np.zeros(positions * _SAMPLES_PER_POSITION, dtype=np.float32)
        count = min(len(samples), len(padded))
        padded[:count] = samples[:count]
        return self._model.encode(ctranslate2.StorageView.from_array(self._mel(padded)[None]))
