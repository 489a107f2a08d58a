"""A lip-sync network of the Wav2Lip kind, run by ONNX Runtime."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from renderers.neural.manifest import NeuralError
from renderers.neural.mel import BANDS, WINDOW_COLUMNS

Device = Literal["auto", "cpu", "cuda", "tensorrt"]

PROVIDERS = {
    "tensorrt": "TensorrtExecutionProvider",
    "cuda": "CUDAExecutionProvider",
    "cpu": "CPUExecutionProvider",
}
"""The fastest first."""
MAX_BATCH = 8
_TYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16}
_SIDES = range(32, 1025)
_TENSORRT = ("libnvinfer.so.10", "libnvinfer.so.8")


class FaceJob(NamedTuple):
    """One frame: `mel` float32 [80, 16], and `face`, RGB uint8 [size, size, 3]."""

    mel: NDArray[np.float32]
    face: NDArray[np.uint8]


class LipSyncNetwork:
    """Holds one ONNX file. One thread at a time may `run` it."""

    def __init__(
        self,
        path: Path,
        *,
        device: Device = "auto",
        threads: int = 1,
        channels: Literal["bgr", "rgb"] = "bgr",
        cache: Path | None = None,
    ) -> None:
        """Raises `NeuralError`, which names what of the file is wrong. `cache`: a folder where
        TensorRT keeps what it makes of the file, which takes it minutes."""
        self.path = path
        self._order = slice(None, None, -1 if channels == "bgr" else 1)
        self._session, self.device = _open(path, device, threads, cache)
        self._mel, self._face, self._out, self.size = _checked(path, self._session)
        fixed = {d for d in (self._mel.shape[0], self._face.shape[0]) if isinstance(d, int)}
        if len(fixed) > 1:
            raise NeuralError(f"{path}: its inputs take batches of {sorted(fixed)}, which differ")
        self._fixed = next(iter(fixed), None)
        self.batch = self._fixed or MAX_BATCH
        """Frames that one step takes."""
        self._try()

    @property
    def key(self) -> str:
        """Frames of the same network may share a step."""
        return str(self.path)

    def run(self, jobs: Sequence[FaceJob]) -> list[NDArray[np.uint8]]:
        """The faces, RGB uint8 [size, size, 3], of at most `batch` jobs, in one step."""
        count = len(jobs)
        if not 0 < count <= self.batch:
            raise ValueError(f"a step takes 1 to {self.batch} frames, got {count}")
        rows = self._fixed or self._rows(count)
        mels = np.zeros((rows, 1, BANDS, WINDOW_COLUMNS), np.float32)
        faces = np.zeros((rows, 6, self.size, self.size), np.float32)
        for row, job in enumerate(jobs):
            mels[row, 0] = job.mel
            pixels = job.face[..., self._order].transpose(2, 0, 1)
            np.multiply(pixels, np.float32(1 / 255), out=faces[row, 3:])
            # What the mouth looked like is hidden from the network: it is to be drawn anew.
            faces[row, :3, : self.size // 2] = faces[row, 3:, : self.size // 2]
        given = {
            self._mel.name: mels.astype(_TYPES[self._mel.type], copy=False),
            self._face.name: faces.astype(_TYPES[self._face.type], copy=False),
        }
        (made,) = self._session.run([self._out.name], given)
        made = made[:count].astype(np.float32, copy=False)
        pictures = np.rint(np.nan_to_num(made).clip(0, 1) * 255).astype(np.uint8)
        return [np.ascontiguousarray(p.transpose(1, 2, 0)[..., self._order]) for p in pictures]

    def blank(self) -> FaceJob:
        """A grey face in silence, for trying and measuring."""
        return FaceJob(
            np.full((BANDS, WINDOW_COLUMNS), -4, np.float32),
            np.full((self.size, self.size, 3), 128, np.uint8),
        )

    def _rows(self, count: int) -> int:
        # A GPU's libraries prepare anew for every size of a batch, for up to seconds: few sizes.
        return count if self.device == "cpu" else 1 << (count - 1).bit_length()

    def _try(self) -> None:
        """One step, so that what cannot run is known now, and the first frame is not slow."""
        rows = self._fixed or 2
        try:
            made = self.run([self.blank()] * rows)
        except Exception as error:  # the runtime raises its own classes, which share only this base
            raise NeuralError(f"{self.path}: the network does not run: {error}") from error
        shapes = {picture.shape for picture in made}
        if shapes != {(self.size, self.size, 3)} or len(made) != rows:
            raise NeuralError(
                f"{self.path}: for {rows} faces of {self.size}x{self.size} it gave {len(made)} of "
                f"{sorted(shapes)}"
            )


def available_devices() -> list[str]:
    """Of `PROVIDERS`, those that the installed ONNX Runtime and this machine have."""
    import onnxruntime

    there = set(onnxruntime.get_available_providers())
    found = [name for name, provider in PROVIDERS.items() if provider in there]
    # The GPU package always lists TensorRT, whose libraries are installed separately.
    if "tensorrt" in found and not _has_tensorrt():
        found.remove("tensorrt")
    return found


def _has_tensorrt() -> bool:
    for name in _TENSORRT:
        try:
            ctypes.CDLL(name)
        except OSError:
            continue
        return True
    return False


def _open(path: Path, device: Device, threads: int, cache: Path | None) -> tuple[Any, str]:
    # Imported here: it starts threads, which must inherit the process's priority.
    import onnxruntime

    there = available_devices()
    if device != "auto" and device not in there:
        raise NeuralError(
            f"the device {device!r} is not there: ONNX Runtime {onnxruntime.__version__} has "
            f"{there}; for a GPU install onnxruntime-gpu in place of onnxruntime, or set "
            "faces.device to auto"
        )
    if not path.is_file():
        raise NeuralError(f"{path}: there is no such network")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    # A spinning worker burns a core that the avatars need.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 3
    wanted = there[there.index(device) :] if device != "auto" else there
    if wanted != ["cpu"] and hasattr(onnxruntime, "preload_dlls"):
        # CUDA and cuDNN may be Python packages, where the linker does not look.
        onnxruntime.preload_dlls()
    providers = [(PROVIDERS[name], _provider_options(name, cache)) for name in wanted]
    try:
        session = onnxruntime.InferenceSession(str(path), options, providers=providers)
    except Exception as error:  # as above
        text = str(error).strip().splitlines()[0]
        raise NeuralError(f"{path}: not a network that ONNX Runtime can load: {text}") from error
    provider = session.get_providers()[0]
    used = next((name for name, each in PROVIDERS.items() if each == provider), "cpu")
    # Where a GPU's libraries do not load, ONNX Runtime says so in its log and takes the CPU.
    if device not in ("auto", used):
        raise NeuralError(
            f"{path}: {device!r} is asked for, but ONNX Runtime can only run it on {used!r}: the "
            "libraries of CUDA, cuDNN or TensorRT that it was built for are not found"
        )
    return session, used


def _provider_options(name: str, cache: Path | None) -> dict[str, str]:
    if name == "cuda":
        # The search for the fastest convolution repeats at every new batch size, for seconds.
        return {"cudnn_conv_algo_search": "HEURISTIC"}
    if name == "tensorrt" and cache is not None:
        folder = cache / "tensorrt"
        folder.mkdir(parents=True, exist_ok=True)
        return {
            "trt_engine_cache_enable": "1",
            "trt_engine_cache_path": str(folder),
            "trt_fp16_enable": "1",
        }
    return {}


def _checked(path: Path, session: Any) -> tuple[Any, Any, Any, int]:
    """Its inputs (mel, face), its output, and the faces' size."""
    inputs, outputs = session.get_inputs(), session.get_outputs()
    listing = ", ".join(f"{i.name} {i.type} {list(i.shape)}" for i in inputs)
    wanted = (
        f"a lip-sync network takes a mel-spectrogram [N, 1, {BANDS}, {WINDOW_COLUMNS}] and a face "
        "[N, 6, size, size]"
    )
    mel = [i for i in inputs if len(i.shape) == 4 and i.shape[1] == 1]
    face = [i for i in inputs if len(i.shape) == 4 and i.shape[1] == 6]
    if len(inputs) != 2 or len(mel) != 1 or len(face) != 1:
        raise NeuralError(f"{path}: {wanted}; this one takes {listing}")
    if any(
        isinstance(d, int) and d != n
        for d, n in zip(mel[0].shape[2:], (BANDS, WINDOW_COLUMNS), strict=True)
    ):
        raise NeuralError(f"{path}: {wanted}; this one takes {listing}")
    height, width = face[0].shape[2:]
    if not isinstance(height, int) or height != width or height not in _SIDES or height % 2:
        raise NeuralError(
            f"{path}: the face must be a square of a fixed, even size ({_SIDES.start} to "
            f"{_SIDES.stop - 1} pixels), not {height}x{width}"
        )
    for each in (*inputs, outputs[0]):
        if each.type not in _TYPES:
            raise NeuralError(f"{path}: {each.name} is {each.type}; it must be float or float16")
    out = list(outputs[0].shape)
    if len(outputs) != 1 or len(out) != 4 or (isinstance(out[1], int) and out[1] != 3):
        made = ", ".join(f"{o.name} {list(o.shape)}" for o in outputs)
        raise NeuralError(
            f"{path}: it must give one picture [N, 3, {height}, {height}], not {made}"
        )
    return mel[0], face[0], outputs[0], height
