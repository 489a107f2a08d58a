"""Networks that can be used, and what is said of those that cannot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import renderers.neural.network as network_module
from renderers.neural import FaceJob, LipSyncNetwork, NeuralError
from renderers.neural.network import available_devices
from tests.renderers.neural.tiny_network import COLOUR, loudness, network_bytes


def write(path: Path, **how: Any) -> Path:
    path.write_bytes(network_bytes(**how))
    return path


def job(seed: int, size: int = 96) -> FaceJob:
    rng = np.random.default_rng(seed)
    mel = rng.uniform(-4, 4 * (seed % 3), (80, 16)).clip(-4, 4).astype(np.float32)
    return FaceJob(mel, rng.integers(0, 256, (size, size, 3), np.uint8))


@pytest.mark.parametrize("size", [96, 256])
def test_a_face_keeps_its_upper_half_and_gets_the_lower_from_the_sound(
    tmp_path: Path, size: int
) -> None:
    network = LipSyncNetwork(write(tmp_path / "n.onnx", size=size), channels="rgb")
    assert network.size == size
    given = job(1, size)
    (made,) = network.run([given])
    assert made.shape == (size, size, 3)
    assert (made[: size // 2] == given.face[: size // 2]).all()
    expected = np.array(COLOUR) * loudness(given.mel) * 255
    assert np.abs(made[size // 2 :] - expected).max() <= 0.51


def test_colours_are_given_in_the_networks_own_order(tmp_path: Path) -> None:
    network = LipSyncNetwork(write(tmp_path / "n.onnx"), channels="bgr")
    given = job(2)
    (made,) = network.run([given])
    assert (made[:48] == given.face[:48]).all()
    assert made[90, 50].tolist() == sorted(made[90, 50].tolist())
    assert made[90, 50, 0] < made[90, 50, 2]


def test_the_mouth_is_hidden_from_the_network(tmp_path: Path) -> None:
    seen: dict[str, Any] = {}
    network = LipSyncNetwork(write(tmp_path / "n.onnx"))
    run = network._session.run

    class Watching:
        def run(self, names: Any, given: dict[str, Any]) -> Any:
            seen.update(given)
            return run(names, given)

    network._session = Watching()
    given = job(3)
    network.run([given])
    faces = seen["face"]
    assert (faces[0, :3, 48:] == 0).all()
    assert (faces[0, :3, :48] == faces[0, 3:, :48]).all()
    assert np.allclose(faces[0, 3:].transpose(1, 2, 0)[..., ::-1] * 255, given.face)
    assert (seen["mel"][0, 0] == given.mel).all()


def test_a_batch_gives_each_what_it_would_get_alone(tmp_path: Path) -> None:
    network = LipSyncNetwork(write(tmp_path / "n.onnx"))
    jobs = [job(n) for n in range(5)]
    together = network.run(jobs)
    alone = [network.run([each])[0] for each in jobs]
    assert all((a == b).all() for a, b in zip(together, alone, strict=True))
    assert len({picture[90, 50, 2] for picture in together}) > 2


def test_a_network_of_a_fixed_batch_is_filled_up(tmp_path: Path) -> None:
    network = LipSyncNetwork(write(tmp_path / "n.onnx", batch=4))
    assert network.batch == 4
    jobs = [job(n) for n in range(3)]
    free = LipSyncNetwork(write(tmp_path / "free.onnx"))
    made, expected = network.run(jobs), free.run(jobs)
    assert len(made) == 3
    assert all((a == b).all() for a, b in zip(made, expected, strict=True))
    with pytest.raises(ValueError, match="1 to 4"):
        network.run([job(n) for n in range(5)])


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"mel_shape": (1, 40, 16)}, r"takes mel .*40, 16.*"),
        ({"mel_shape": (80, 16)}, r"a mel-spectrogram \[N, 1, 80, 16\]"),
        ({"face_channels": 3}, r"a face \[N, 6, size, size\]; this one takes .*3, 96, 96"),
        ({"outputs": 1}, r"one picture \[N, 3, 96, 96\], not out .*1, 96, 96"),
        ({"size": 17}, r"square of a fixed, even size.*17x17"),
    ],
)
def test_what_is_wrong_with_a_network_is_said(
    tmp_path: Path, how: dict[str, Any], says: str
) -> None:
    with pytest.raises(NeuralError, match=says) as caught:
        LipSyncNetwork(write(tmp_path / "wrong.onnx", **how))
    assert "wrong.onnx" in str(caught.value)


def test_a_file_that_is_no_network_is_named(tmp_path: Path) -> None:
    path = tmp_path / "weights.onnx"
    path.write_bytes(b"PK\x03\x04 a checkpoint of something else")
    with pytest.raises(NeuralError, match=r"weights\.onnx: not a network"):
        LipSyncNetwork(path)
    with pytest.raises(NeuralError, match=r"no such network"):
        LipSyncNetwork(tmp_path / "missing.onnx")


def test_a_device_that_is_not_there_is_named_with_what_to_do(tmp_path: Path) -> None:
    path = write(tmp_path / "n.onnx")
    assert "cpu" in available_devices()
    if "cuda" in available_devices():
        pytest.skip("this machine has a GPU")
    with pytest.raises(NeuralError, match=r"'cuda' is not there.*onnxruntime-gpu"):
        LipSyncNetwork(path, device="cuda")
    assert LipSyncNetwork(path, device="auto").device == "cpu"


def test_a_gpu_whose_libraries_do_not_load_is_told_or_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "cuda" in available_devices():
        pytest.skip("this machine has a GPU")
    path = write(tmp_path / "n.onnx")
    # As with the GPU package on a machine without cuDNN: the runtime falls back by itself.
    monkeypatch.setattr(network_module, "available_devices", lambda: ["cuda", "cpu"])
    with pytest.raises(NeuralError, match=r"'cuda' is asked for.* only run it on 'cpu'"):
        LipSyncNetwork(path, device="cuda")
    assert LipSyncNetwork(path, device="auto").device == "cpu"
