"""GPUs, language models and published measurements, read from `configs/plan/`."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, TypeAdapter

from avatar_server.paths import configs_dir


class PlanError(ValueError):
    """Something the planner does not know or cannot do; the message says what it can."""


class Row(BaseModel):
    """Base of what `configs/plan/` holds."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class Gpu(Row):
    """A GPU as its data sheet describes it."""

    title: str
    memory_gib: float
    """As the driver reports it."""
    bandwidth_gb_s: float
    """Memory bandwidth, 1e9 bytes a second."""
    bf16_tflops: float
    """Dense, 16-bit inputs."""
    fp8_tflops: float | None
    """Dense, 8-bit floating-point inputs; none: the GPU unpacks such weights to 16 bits."""
    clock_ghz: float
    """Boost clock: what a kernel too small to fill the GPU is bound by."""
    nvenc: bool
    """Whether it has a video encoder."""
    price_per_hour: float
    """USD; an assumption."""


class Precision(Row):
    """How weights are stored."""

    weight_bytes: float
    """Of a weight of a layer, with its share of the scales."""
    embedding_bytes: float
    """Of a weight of the embedding and the output layer, which quantisers leave alone mostly."""


PRECISIONS: dict[str, Precision] = {
    "bf16": Precision(weight_bytes=2, embedding_bytes=2),
    "fp8": Precision(weight_bytes=1, embedding_bytes=2),
    # 4 bits and a 16-bit scale for each 32 weights.
    "int4": Precision(weight_bytes=0.5625, embedding_bytes=2),
    # llama.cpp's: block sizes from its documentation, the mean of the mixture from file sizes.
    "q4_0": Precision(weight_bytes=0.5625, embedding_bytes=0.82),
    "q4_k_m": Precision(weight_bytes=0.61, embedding_bytes=0.82),
}


class Attention(Row):
    """Softmax attention layers."""

    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    output_gate: bool = False
    """The query projection also makes a gate of the same size."""


class LinearAttention(Row):
    """Gated DeltaNet layers, whose state does not grow with the context."""

    layers: int
    key_heads: int
    value_heads: int
    head_dim: int
    convolution: int


class Experts(Row):
    """A mixture of experts in each layer."""

    count: int
    active: int
    shared: int
    intermediate: int

    def touched(self, tokens: float) -> float:
        """Expected number of different routed experts that `tokens` independent tokens need."""
        missed: float = (1 - self.active / self.count) ** tokens
        return self.count * (1 - missed)


class LanguageModel(Row):
    """A decoder by the shapes of its layers."""

    title: str
    published_params_b: float
    published_active_b: float | None = None
    layers: int
    hidden: int
    vocabulary: int
    tied_embeddings: bool
    attention: Attention
    linear_attention: LinearAttention | None = None
    experts: Experts | None = None
    intermediate: int | None = None
    """Of the dense feed-forward layer; none where there are experts."""
    vision_params_b: float = 0
    """Of a vision encoder in the same files, 16 bit in every precision."""
    multi_token_params_b: float = 0
    """Of the layer that drafts further tokens (MTP) in the same files."""
    licence: str | None = None

    @property
    def embedding(self) -> int:
        """Weights of one embedding matrix."""
        return self.vocabulary * self.hidden

    @property
    def expert(self) -> int:
        """Weights of one expert of one layer."""
        return 3 * self.hidden * self.experts.intermediate if self.experts else 0

    @property
    def always_read(self) -> int:
        """Weights of all layers that every token needs, without experts chosen by routing."""
        a = self.attention
        queries, keys = a.heads * a.head_dim, a.kv_heads * a.head_dim
        gates = 2 if a.output_gate else 1
        count = a.layers * self.hidden * (queries * gates + 2 * keys + queries)
        if lin := self.linear_attention:
            k, v = lin.key_heads * lin.head_dim, lin.value_heads * lin.head_dim
            projections = self.hidden * (2 * k + 2 * v + 2 * lin.value_heads + v)
            count += lin.layers * (projections + (2 * k + v) * lin.convolution)
        if e := self.experts:
            return count + self.layers * (e.shared * self.expert + self.hidden * e.count)
        return count + self.layers * 3 * self.hidden * (self.intermediate or 0)

    @property
    def parameters(self) -> int:
        """All weights."""
        routed = self.layers * self.experts.count * self.expert if self.experts else 0
        return self.always_read + routed + self.embedding * (1 if self.tied_embeddings else 2)

    @property
    def active_parameters(self) -> int:
        """Weights that one token needs; the looked-up embedding is nothing beside them."""
        routed = self.layers * self.experts.active * self.expert if self.experts else 0
        return self.always_read + routed + self.embedding

    def weight_bytes(self, precision: Precision) -> float:
        """Bytes of all weights in memory."""
        embeddings = self.embedding * (1 if self.tied_embeddings else 2)
        layers = self.parameters - embeddings
        return layers * precision.weight_bytes + embeddings * precision.embedding_bytes

    def beside_bytes(self, precision: Precision) -> float:
        """Bytes of what comes in the same files beside the decoder."""
        return 1e9 * (self.vision_params_b * 2 + self.multi_token_params_b * precision.weight_bytes)

    def bytes_read(self, precision: Precision, tokens: float) -> float:
        """Bytes of weights that one pass over `tokens` tokens reads."""
        layers = float(self.always_read)
        if self.experts:
            layers += self.layers * self.experts.touched(tokens) * self.expert
        return layers * precision.weight_bytes + self.embedding * precision.embedding_bytes

    def kv_bytes_per_token(self, element_bytes: float = 2) -> float:
        """Bytes of keys and values that one token of context keeps."""
        a = self.attention
        return 2 * a.layers * a.kv_heads * a.head_dim * element_bytes

    def state_bytes(self) -> float:
        """Bytes of linear-attention state of one sequence: 32-bit matrices, 16-bit convolution."""
        if (lin := self.linear_attention) is None:
            return 0
        k, v = lin.key_heads * lin.head_dim, lin.value_heads * lin.head_dim
        matrix = lin.value_heads * lin.head_dim * lin.head_dim * 4
        return lin.layers * (matrix + (2 * k + v) * (lin.convolution - 1) * 2)


class Measurement(Row):
    """A figure somebody published; one request at a time."""

    model: str
    precision: str
    gpu: str
    engine: str
    decode_ms: float | None = None
    first_token_ms: float | None = None
    prompt_tokens: int | None = None
    source: str


def _read(name: str) -> Any:
    path: Path = configs_dir() / "plan" / name
    return yaml.safe_load(path.read_text(encoding="utf-8"))


@cache
def gpus() -> dict[str, Gpu]:
    """All known GPUs by name."""
    return TypeAdapter(dict[str, Gpu]).validate_python(_read("gpus.yaml"))


@cache
def language_models() -> dict[str, LanguageModel]:
    """All known language models by name."""
    return TypeAdapter(dict[str, LanguageModel]).validate_python(_read("models.yaml"))


@cache
def measurements() -> list[Measurement]:
    """All published measurements."""
    return TypeAdapter(list[Measurement]).validate_python(_read("measurements.yaml"))


def find_gpu(name: str) -> Gpu:
    """The GPU of that name; raises `PlanError`."""
    key = name.strip().lower()
    if key not in gpus():
        raise PlanError(f"no GPU {name!r} is known; there are: {', '.join(gpus())}")
    return gpus()[key]


def find_model(name: str) -> tuple[str, LanguageModel, str]:
    """`"qwen3-8b-fp8"` to its model's name, the model and the precision; without one, bf16.

    Raises `PlanError`.
    """
    key = name.strip().lower()
    for precision in PRECISIONS:
        if key.endswith(f"-{precision}"):
            key = key.removesuffix(f"-{precision}")
            break
    else:
        precision = "bf16"
    if key not in language_models():
        raise PlanError(
            f"no model {name!r} is known; there are: {', '.join(language_models())}, each with "
            f"-{', -'.join(PRECISIONS)}"
        )
    return key, language_models()[key], precision
