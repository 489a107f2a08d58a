"""A small ONNX network with the shapes of Wav2Lip, whose result can be computed by hand.

The upper half of its face is the reference's. The lower half has one colour, `COLOUR` times the
loudness of the mel window: `loudness` of it, 0 (silence) to 1. What is written of the ONNX format
is so little (numbers from `onnx.proto`) that no library is needed for it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cv2
import numpy as np
import yaml
from numpy.typing import NDArray

from avatar_server.protobuf import field

COLOUR = (1.0, 0.5, 0.25)
"""Of the three channels, in the network's own order."""
IR_VERSION, OPSET = 8, 13
FLOATS, INT, INTS = 1, 2, 7


def loudness(mel: NDArray[np.float32]) -> float:
    """What the lower half is multiplied with, of a window (80, 16)."""
    return float(mel.mean()) / 8 + 0.5


def network_bytes(
    size: int = 96,
    *,
    batch: int | str = "N",
    mel_shape: tuple[int, ...] = (1, 80, 16),
    face_channels: int = 6,
    outputs: int = 3,
    heavy: int = 0,
) -> bytes:
    """The file; the other arguments than `size` make networks of other (wrong) shapes. `heavy`:
    how many convolutions of 64 channels it does besides, which change nothing."""
    lower = np.zeros((1, 1, size, size), np.float32)
    lower[:, :, size // 2 :] = 1
    pick = np.zeros((outputs, face_channels, 1, 1), np.float32)
    for channel in range(outputs):
        pick[channel, (channel + face_channels // 2) % face_channels] = 1
    colour = np.array([*COLOUR, 1, 1, 1][:outputs], np.float32).reshape(1, outputs, 1, 1)
    constants = {
        "lower": lower,
        "upper": 1 - lower,
        "pick": pick,
        "colour": colour,
        "eighth": np.array(0.125, np.float32),
        "half": np.array(0.5, np.float32),
    }
    nodes = [
        _node("ReduceMean", ["mel"], "mean", axes=list(range(1, len(mel_shape) + 1)), keepdims=1),
        _node("Mul", ["mean", "eighth"], "scaled"),
        _node("Add", ["scaled", "half"], "level"),
        _node("Conv", ["face", "pick"], "reference"),
        _node("Mul", ["reference", "upper"], "above"),
        _node("Mul", ["lower", "level"], "grey"),
        _node("Mul", ["grey", "colour"], "below"),
    ]
    last = "above"
    if heavy:
        constants["widen"] = np.zeros((64, outputs, 1, 1), np.float32)
        constants["wide"] = np.zeros((64, 64, 3, 3), np.float32)
        constants["narrow"] = np.zeros((outputs, 64, 1, 1), np.float32)
        nodes.append(_node("Conv", ["above", "widen"], "w0"))
        for n in range(heavy):
            nodes.append(_node("Conv", [f"w{n}", "wide"], f"w{n + 1}", pads=[1, 1, 1, 1]))
        nodes.append(_node("Conv", [f"w{heavy}", "narrow"], "nothing"))
        nodes.append(_node("Add", ["above", "nothing"], "worked"))
        last = "worked"
    nodes.append(_node("Add", [last, "below"], "out"))
    graph = b"".join(field(1, node) for node in nodes) + field(2, "lips")
    for name, values in constants.items():
        graph += field(5, _tensor(name, values))
    graph += field(11, _value("mel", [batch, *mel_shape]))
    graph += field(11, _value("face", [batch, face_channels, size, size]))
    graph += field(12, _value("out", [batch, outputs, size, size]))
    opset = field(8, field(1, "") + field(2, OPSET))
    return field(1, IR_VERSION) + field(7, graph) + opset


def photograph(width: int = 1280, height: int = 720) -> NDArray[np.uint8]:
    """A picture (RGB) of smooth colours with something like a face in the middle."""
    x, y = np.meshgrid(np.linspace(0, 1, width), np.linspace(0, 1, height))
    rgb = np.stack([90 + 60 * x, 110 + 50 * y, 150 - 60 * x], axis=-1).astype(np.uint8)
    rgb = np.ascontiguousarray(rgb)
    centre = (width // 2, height // 2)
    cv2.ellipse(rgb, centre, (height // 5, height // 4), 0, 0, 360, (225, 180, 150), -1)
    return rgb


FACE = {"x": 500.0, "y": 180.0, "width": 280.0, "height": 360.0}


def write_avatar(folder: Path, weights: bytes | None = None, **manifest: Any) -> Path:
    """An avatar's folder with a photograph and the network; `manifest` adds to neural.yaml."""
    folder.mkdir(parents=True, exist_ok=True)
    cv2.imwrite(str(folder / "photo.png"), photograph()[..., ::-1])
    (folder / "lips.onnx").write_bytes(network_bytes() if weights is None else weights)
    values = {"network": "lips.onnx", "picture": "photo.png", "face": FACE, **manifest}
    kept = {name: value for name, value in values.items() if value is not None}
    (folder / "neural.yaml").write_text(yaml.safe_dump(kept), encoding="utf-8")
    avatar = {"title": "Tester", "renderer": "neural", "voice": {"name": "piper-joe"}}
    (folder / "avatar.yaml").write_text(yaml.safe_dump(avatar), encoding="utf-8")
    return folder


def _node(kind: str, inputs: list[str], output: str, **attributes: int | list[int]) -> bytes:
    node = b"".join(field(1, name) for name in inputs) + field(2, output) + field(4, kind)
    for name, value in attributes.items():
        if isinstance(value, list):
            body = b"".join(field(8, each) for each in value) + field(20, INTS)
        else:
            body = field(3, value) + field(20, INT)
        node += field(5, field(1, name) + body)
    return node


def _tensor(name: str, values: NDArray[np.float32]) -> bytes:
    sizes = b"".join(field(1, size) for size in values.shape)
    return sizes + field(2, FLOATS) + field(8, name) + field(9, values.tobytes())


def _value(name: str, shape: list[int | str]) -> bytes:
    sides = b"".join(field(1, field(2 if isinstance(s, str) else 1, s)) for s in shape)
    return field(1, name) + field(2, field(1, field(1, FLOATS) + field(2, sides)))
