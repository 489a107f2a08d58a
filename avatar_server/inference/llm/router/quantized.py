"""A matrix and its bias in eight bits, multiplied by onnxruntime: four times as fast as numpy.

The graph is one node of onnxruntime's own operator `DynamicQuantizeMatMul`; what is written of the
ONNX format is so little (numbers from `onnx.proto`) that no library is needed for it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from avatar_server.inference.llm.router.features import FloatArray
from avatar_server.protobuf import field

LARGEST = 63
"""Weights have seven bits: with eight, processors without VNNI overflow where two of the sixteen
bit sums are added (onnxruntime's documentation of quantization, "reduce range")."""

_IR_VERSION, _OPSET = 8, 17
_DATA_TYPES = {"float32": 1, "int8": 3}


class QuantizedLinear:
    """x @ matrix + bias; the matrix (in, out) is kept to half a percent of each column's largest.

    One thread at a time may use it.
    """

    def __init__(self, matrix: FloatArray, bias: FloatArray) -> None:
        # Imported here: it starts threads, which must inherit the process's priority.
        import onnxruntime as ort

        scale = np.maximum(np.abs(matrix).max(axis=0), 1e-12) / LARGEST
        whole = np.rint(matrix / scale).astype(np.int8)
        options = ort.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        self._session = ort.InferenceSession(
            _model(whole, scale.astype(np.float32), bias.astype(np.float32)),
            options,
            providers=["CPUExecutionProvider"],
        )

    def __call__(self, x: FloatArray) -> FloatArray:
        """(n, in) to (n, out)."""
        (out,) = self._session.run(None, {"x": x})
        product: FloatArray = out
        return product


def _model(whole: NDArray[np.int8], scale: FloatArray, bias: FloatArray) -> bytes:
    node = b"".join(field(1, name) for name in ("x", "w", "s", "", "b")) + field(2, "y")
    node += field(4, "DynamicQuantizeMatMul") + field(7, "com.microsoft")
    graph = field(1, node) + field(2, "linear")
    for name, values in (("w", whole), ("s", scale), ("b", bias)):
        graph += field(5, _tensor(name, values))
    graph += field(11, _value("x", whole.shape[0])) + field(12, _value("y", whole.shape[1]))
    opsets = field(8, field(1, "") + field(2, _OPSET))
    opsets += field(8, field(1, "com.microsoft") + field(2, 1))
    return field(1, _IR_VERSION) + field(7, graph) + opsets


def _tensor(name: str, values: NDArray[Any]) -> bytes:
    sizes = b"".join(field(1, size) for size in values.shape)
    kind = _DATA_TYPES[str(values.dtype)]
    return sizes + field(2, kind) + field(8, name) + field(9, values.tobytes())


def _value(name: str, columns: int) -> bytes:
    """A float input or output of any number of rows."""
    shape = field(1, field(2, "rows")) + field(1, field(1, columns))
    return field(1, name) + field(2, field(1, field(1, 1) + field(2, shape)))
