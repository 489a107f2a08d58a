"""Writing protobuf messages field by field, for formats of which little is needed (ONNX)."""

from __future__ import annotations


def field(number: int, value: int | str | bytes) -> bytes:
    """A field of a message: its number, and a whole number, a text, or another message's bytes."""
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    raw = value.encode() if isinstance(value, str) else value
    return _varint(number << 3 | 2) + _varint(len(raw)) + raw


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)
