"""The lower layers of multilingual-e5-small, adapted to routing, most of them in eight bits.

Wang et al., "Multilingual E5 Text Embeddings" (2024): a BERT of 12 layers, 384 wide, trained on
100 languages. What was trained for routing is small: low-rank additions to the weights of the
upper layers (Hu et al., "LoRA", 2021), their norms, a vector for each kind of segment, and a head.
They are added to the published weights when these are loaded.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from avatar_server.inference.llm.router.features import FloatArray
from avatar_server.inference.llm.router.quantized import QuantizedLinear
from avatar_server.inference.llm.router.weights import Weights, WeightsError

EPSILON = 1e-12
"""Of the layer norms."""
LORA_SCALE = 2.0
FORMAT = 1
"""Of the file of adaptations."""

_MATRICES = ("q", "k", "v", "ao", "fi", "fo")


@dataclass(frozen=True, slots=True)
class _Norm:
    gain: FloatArray
    shift: FloatArray

    def __call__(self, x: FloatArray) -> FloatArray:
        x = x - x.mean(axis=1, keepdims=True)
        x /= np.sqrt(np.einsum("ij,ij->i", x, x)[:, None] / x.shape[1] + EPSILON)
        x *= self.gain
        x += self.shift
        return x


@dataclass(frozen=True, slots=True)
class _Layer:
    attend: QuantizedLinear
    """To queries, keys and values, side by side."""
    mix: QuantizedLinear
    up: QuantizedLinear
    down: FloatArray
    """Not in eight bits: what comes into it differs too much in size, and it would cost a point of
    accuracy on continuations. (in, out)"""
    down_bias: FloatArray
    attended: _Norm
    thought: _Norm

    def __call__(self, x: FloatArray, heads: int, first: int | None = None) -> FloatArray:
        """(pieces, width) to the same; with `first`, only of so many pieces at the beginning."""
        length, width = x.shape
        both = self.attend(x)
        # (3, heads, length, width of a head)
        split = both.reshape(length, 3, heads, -1).transpose(1, 2, 0, 3)
        query, key, value = split
        x = x[:first]
        scores = query[:, :first] @ key.transpose(0, 2, 1)
        scores *= (width // heads) ** -0.5
        scores -= scores.max(axis=2, keepdims=True)
        np.exp(scores, out=scores)
        scores /= scores.sum(axis=2, keepdims=True)
        mixed = (scores @ value).transpose(1, 0, 2).reshape(len(x), width)
        seen = self.mix(np.ascontiguousarray(mixed, np.float32))
        seen += x
        x = self.attended(seen)
        out = _gelu(self.up(x)) @ self.down
        out += self.down_bias
        out += x
        return self.thought(out)


class AdaptedEncoder:
    """Reads a sequence of pieces in segments; says how likely each label is. One thread."""

    def __init__(self, weights: Weights, adapter: Path) -> None:
        """Takes some 0.5 s and 30 MB. Raises `WeightsError` for files that do not fit."""
        try:
            with np.load(adapter, allow_pickle=False) as file:
                about = json.loads(str(file["about"]))
                if about["format"] != FORMAT:
                    raise ValueError(f"its format is {about['format']}, not {FORMAT}")
                added = {
                    name: file[name].astype(np.float32) for name in file.files if name != "about"
                }
            self.labels: tuple[str, ...] = tuple(about["labels"])
            self.temperature = float(about["temperature"])
            self._from = int(about["adapted_from"])
            self._weights = weights
            width = weights.width
            self._positions = (
                weights.tensor("emb.pos", -1, width) + weights.tensor("emb.type", -1, width)[0]
            )
            self._norm = _Norm(weights.tensor("emb.ln.w", width), weights.tensor("emb.ln.b", width))
            self._layers = [_layer(weights, n, added) for n in range(int(about["layers"]))]
            self._segments, self._head = added["segments"], added["head.w"]
            self._head_bias = added["head.b"]
        except (OSError, ValueError, KeyError, TypeError, EOFError, BadZipFile) as error:
            raise WeightsError(
                f"{adapter} does not hold what adapts the router: {error}"
            ) from error

    def scores(self, ids: list[int], segments: Sequence[int]) -> FloatArray:
        """(labels,): log-odds of each; `segments` says of each piece in which it is: 0, the
        utterance, comes first."""
        heads, own = self._weights.heads, segments.count(0)
        x = self.lower(ids) + self._segments[list(segments)]
        for layer in self._layers[self._from : -1]:
            x = layer(x, heads)
        # The utterance comes first, and of the last layer's output only that is looked at.
        x = self._layers[-1](x, heads, own)
        pooled = np.concatenate([x[0], x.mean(axis=0)])
        out: FloatArray = (self._head @ pooled + self._head_bias) * self.temperature
        return out

    def lower(self, ids: list[int]) -> FloatArray:
        """(pieces, width): what the layers make of it that are as published."""
        x = self._norm(self._weights.words(ids) + self._positions[: len(ids)])
        for layer in self._layers[: self._from]:
            x = layer(x, self._weights.heads)
        return x


def _layer(weights: Weights, number: int, added: Mapping[str, FloatArray]) -> _Layer:
    width, inner = weights.width, weights.inner
    shapes = dict.fromkeys(_MATRICES, (width, width)) | {"fi": (inner, width), "fo": (width, inner)}
    matrices: dict[str, FloatArray] = {}
    biases: dict[str, FloatArray] = {}
    for name in _MATRICES:
        matrix = weights.tensor(f"l{number}.{name}.w", *shapes[name])
        biases[name] = weights.tensor(f"l{number}.{name}.b", shapes[name][0])
        if (low := added.get(f"{number}.{name}.a")) is not None:
            matrix += LORA_SCALE * (added[f"{number}.{name}.b"] @ low)
        matrices[name] = matrix.T

    def norm(published: str, ours: str) -> _Norm:
        gain, shift = added.get(f"{number}.{ours}.w"), added.get(f"{number}.{ours}.b")
        if gain is None or shift is None:
            gain = weights.tensor(f"l{number}.{published}.w", width)
            shift = weights.tensor(f"l{number}.{published}.b", width)
        return _Norm(gain, shift)

    heads = ("q", "k", "v")
    return _Layer(
        QuantizedLinear(
            np.concatenate([matrices[n] for n in heads], axis=1),
            np.concatenate([biases[n] for n in heads]),
        ),
        QuantizedLinear(matrices["ao"], biases["ao"]),
        QuantizedLinear(matrices["fi"], biases["fi"]),
        np.ascontiguousarray(matrices["fo"]),
        biases["fo"],
        norm("aln", "n1"),
        norm("oln", "n2"),
    )


def _gelu(x: FloatArray) -> FloatArray:
    """By the sigmoid form of its tanh approximation, which needs one `exp` (Hendrycks, 2016)."""
    inner = x * x
    inner *= np.float32(-0.0713548162726)
    inner -= np.float32(1.5957691216057308)
    inner *= x
    np.minimum(inner, 80, out=inner)
    np.exp(inner, out=inner)
    inner += 1
    x /= inner
    return x
