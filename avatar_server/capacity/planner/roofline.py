"""How long one pass of a language model takes on a GPU.

A roofline with a floor: a pass takes as long as the slower of reading its weights (the bytes that
it touches, over memory bandwidth) and of its multiplications (over the tensor throughput); beside
that each layer costs a constant of small kernels that fill no GPU and scale with the clock. The
constants below are fitted by least squares to those published measurements in
`configs/plan/measurements.yaml` that were made with vLLM or alike; `validate` shows the error of
each, also of those that were not used.
"""

from __future__ import annotations

from dataclasses import dataclass

from avatar_server.capacity.planner.catalogue import PRECISIONS, Gpu, LanguageModel

BANDWIDTH_SHARE = 0.99
"""Of the data sheet's bandwidth that reading weights reaches."""
LAYER_MS_GHZ = 0.147
"""Small kernels of a layer, milliseconds at 1 GHz."""
EXPERTS_MS_GHZ = 0.046
"""The same, of a layer's routing to experts."""
HYBRID_EXPERTS_MS_GHZ = 0.32
"""The same again, where experts meet linear attention: set so that Qwen3.6-35B-A3B in FP8 on an
H100 takes 11.5 ms a token, the middle of the 10 to 13 ms published for it. Which kernels take the
time is not known; it is counted in every precision, so as to promise no more than was measured."""
COMPUTE_SHARE = 0.7
"""Of the data sheet's tensor throughput that reading a prompt reaches."""
REQUEST_MS = 8.0
"""Tokenising, scheduling and sending, once a request."""
PREFILL_CHUNK = 2_048
"""Tokens read in one pass at most (`max_num_batched_tokens`)."""


@dataclass(frozen=True)
class Roofline:
    """One model in one precision (a key of `PRECISIONS`) on one GPU."""

    model: LanguageModel
    precision: str
    gpu: Gpu

    def decode_ms(self, batch: int = 1, context: int = 0) -> float:
        """Milliseconds between two tokens of each of `batch` sequences, `context` tokens long."""
        weights = self.model.bytes_read(PRECISIONS[self.precision], batch)
        kept = batch * (context * self.model.kv_bytes_per_token() + 2 * self.model.state_bytes())
        reading = self._reading_ms(weights + kept)
        return self._layers_ms() + max(reading, self._computing_ms(batch, context))

    def first_token_ms(self, prompt: int, cached: int = 0) -> float:
        """Milliseconds from a request to its first token, `cached` tokens before it being kept."""
        total = REQUEST_MS
        done, left = cached, prompt
        while left > 0:
            piece = min(left, PREFILL_CHUNK)
            weights = self.model.bytes_read(PRECISIONS[self.precision], piece)
            reading = self._reading_ms(weights + done * self.model.kv_bytes_per_token())
            computing = self._computing_ms(piece, done + piece / 2)
            total += self._layers_ms() + max(reading, computing)
            done, left = done + piece, left - piece
        return total

    def _reading_ms(self, count: float) -> float:
        return count / (self.gpu.bandwidth_gb_s * BANDWIDTH_SHARE) / 1e6

    def _computing_ms(self, tokens: float, context: float) -> float:
        model = self.model
        attention = model.attention
        looked_at = 4 * attention.layers * attention.heads * attention.head_dim * context
        operations = tokens * (2 * (model.active_parameters - model.embedding) + looked_at)
        eight_bits = self.gpu.fp8_tflops
        peak = eight_bits if self.precision == "fp8" and eight_bits else self.gpu.bf16_tflops
        return operations / (peak * COMPUTE_SHARE) / 1e9

    def _layers_ms(self) -> float:
        each = LAYER_MS_GHZ
        if self.model.experts is not None:
            each += EXPERTS_MS_GHZ
            if self.model.linear_attention is not None:
                each += HYBRID_EXPERTS_MS_GHZ
        return self.model.layers * each / self.gpu.clock_ghz
