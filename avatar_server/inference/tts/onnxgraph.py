"""Small edits of ONNX files: expose an inner tensor, cut a graph in two.

Only the few protobuf fields that these edits touch are declared (numbers from `onnx.proto`, the
published ONNX format); all others are carried through unread as unknown fields. That spares the
`onnx` package, which is larger than everything else that speech needs.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

FLOAT = 1
"""`TensorProto.DataType.FLOAT`."""

_FIELD = descriptor_pb2.FieldDescriptorProto
_SCHEMA: dict[str, list[tuple[str, int, bool, str]]] = {
    "Model": [("graph", 7, False, "Graph")],
    "Graph": [
        ("node", 1, True, "Node"),
        ("initializer", 5, True, "Tensor"),
        ("input", 11, True, "Value"),
        ("output", 12, True, "Value"),
        ("value_info", 13, True, "Value"),
    ],
    "Node": [
        ("input", 1, True, "string"),
        ("output", 2, True, "string"),
        ("name", 3, False, "string"),
        ("op_type", 4, False, "string"),
    ],
    "Tensor": [("name", 8, False, "string")],
    "Value": [("name", 1, False, "string"), ("type", 2, False, "Type")],
    "Type": [("tensor_type", 1, False, "TensorType")],
    "TensorType": [("elem_type", 1, False, "int32"), ("shape", 2, False, "Shape")],
    "Shape": [("dim", 1, True, "Dim")],
    "Dim": [("dim_value", 1, False, "int64"), ("dim_param", 2, False, "string")],
}
_SCALARS = {
    "string": _FIELD.TYPE_STRING,
    "int32": _FIELD.TYPE_INT32,
    "int64": _FIELD.TYPE_INT64,
}


class GraphError(ValueError):
    """A model that is not shaped as the edit expects; the message says what is missing."""


class OnnxGraph:
    """An ONNX model held for editing."""

    def __init__(self, model: Any) -> None:
        self._model = model

    @classmethod
    def load(cls, path: Path) -> OnnxGraph:
        """Read `path`; raises `GraphError` where it is no ONNX model."""
        model = _message_class("Model")()
        try:
            model.ParseFromString(path.read_bytes())
        except Exception as error:  # protobuf raises its own DecodeError type per backend
            raise GraphError(f"{path} is not an ONNX model: {error}") from error
        if not model.graph.node:
            raise GraphError(f"{path} is not an ONNX model: it has no nodes")
        return cls(model)

    def has_tensor(self, name: str) -> bool:
        """Whether some node yields a tensor of this name."""
        return any(name in node.output for node in self._model.graph.node)

    def tensors_of(self, op_type: str) -> list[str]:
        """Names of the first outputs of all nodes of this operator, in graph order."""
        return [n.output[0] for n in self._model.graph.node if n.op_type == op_type]

    def input_of(self, node_name: str) -> str:
        """Name of the first input of the node called `node_name`; raises `GraphError`."""
        for node in self._model.graph.node:
            if node.name == node_name:
                return str(node.input[0])
        raise GraphError(f"the graph has no node {node_name!r}")

    @property
    def outputs(self) -> list[str]:
        return [value.name for value in self._model.graph.output]

    def extract(
        self, inputs: Sequence[tuple[str, Sequence[int | str]]], outputs: Sequence[str]
    ) -> OnnxGraph:
        """The part that computes `outputs` (float tensors unless already outputs).

        `inputs` are tensors (name, shape; a string is a free dimension) that become inputs, at
        which the graph is cut; original inputs that are still needed are kept.
        """
        graph = self._model.graph
        by_output = {name: node for node in graph.node for name in node.output if name}
        cut = {name for name, _ in inputs}
        wanted = [name for name in outputs if name not in cut]
        kept: set[int] = set()
        needed: set[str] = set()
        while wanted:
            name = wanted.pop()
            if name in needed or name in cut:
                continue
            needed.add(name)
            node = by_output.get(name)
            if node is not None and id(node) not in kept:
                kept.add(id(node))
                wanted.extend(i for i in node.input if i)
        for name in outputs:
            if name not in by_output:
                raise GraphError(f"the graph has no tensor {name!r}")
        part = type(self._model)()
        part.CopyFrom(self._model)
        target = part.graph
        for field in ("node", "initializer", "input", "output", "value_info"):
            del getattr(target, field)[:]
        target.node.extend(n for n in graph.node if id(n) in kept)
        target.initializer.extend(t for t in graph.initializer if t.name in needed)
        target.input.extend(v for v in graph.input if v.name in needed)
        for name, shape in inputs:
            target.input.append(_float_value(name, shape))
        declared = {value.name: value for value in graph.output}
        for name in outputs:
            target.output.append(declared.get(name) or _float_value(name, None))
        return OnnxGraph(part)

    def save(self, path: Path) -> None:
        """Write to `path`, whole or not at all, so that two processes may do it at once."""
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".part")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(self._model.SerializeToString())
            os.replace(temporary, path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise


def _float_value(name: str, shape: Sequence[int | str] | None) -> Any:
    value = _message_class("Value")()
    value.name = name
    value.type.tensor_type.elem_type = FLOAT
    if shape is not None:
        for size in shape:
            dim = value.type.tensor_type.shape.dim.add()
            if isinstance(size, int):
                dim.dim_value = size
            else:
                dim.dim_param = size
    return value


def _build_classes() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(
        name="avatar_server_onnx_subset.proto", package="avatar_server_onnx", syntax="proto2"
    )
    for message, fields in _SCHEMA.items():
        entry = file.message_type.add(name=message)
        for name, number, repeated, kind in fields:
            label = _FIELD.LABEL_REPEATED if repeated else _FIELD.LABEL_OPTIONAL
            if kind in _SCALARS:
                entry.field.add(name=name, number=number, label=label, type=_SCALARS[kind])
            else:
                entry.field.add(
                    name=name,
                    number=number,
                    label=label,
                    type=_FIELD.TYPE_MESSAGE,
                    type_name=f".avatar_server_onnx.{kind}",
                )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(
            pool.FindMessageTypeByName(f"avatar_server_onnx.{name}")
        )
        for name in _SCHEMA
    }


_CLASSES = _build_classes()


def _message_class(name: str) -> Any:
    return _CLASSES[name]
