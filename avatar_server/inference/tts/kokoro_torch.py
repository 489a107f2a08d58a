"""Kokoro-82M by PyTorch, on a GPU: the model of the package `kokoro`, without its language packs.

Phonemes come from espeak-ng, as for the other engines, so the package's own pipeline (misaki,
spaCy and a language model of its own) is neither needed nor loaded.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from avatar_server.inference.memory import MemoryFigure, MemoryMeter, files_bytes
from avatar_server.inference.tts.contract import TtsError
from avatar_server.inference.tts.kokoro_alphabet import MAX_TOKENS, TOKEN_IDS

_REPOSITORY = "hexgrad/Kokoro-82M"
"""Named to the model's class only so that it asks for nothing: all its files are given."""
_STYLE_SIZE = 256


class TorchKokoro:
    """A `KokoroModel` from a folder with `config.json` and one `.pth` of weights.

    Raises `TtsError` where the folder holds no Kokoro or `device` cannot be used.
    """

    def __init__(self, folder: Path, device: str = "cuda", *, threads: int = 1) -> None:
        import torch

        if device == "cuda" and not torch.cuda.is_available():
            raise TtsError(
                "tts.device is 'cuda', and PyTorch finds no GPU here: check the driver "
                "(nvidia-smi), or set tts.engine: kokoro with tts.device: cpu"
            )
        if device == "cpu":
            torch.set_num_threads(threads)
        meter = MemoryMeter(device)
        config, weights = _files(folder)
        if config.get("vocab") != TOKEN_IDS:
            raise TtsError(f"{folder} has another alphabet than Kokoro-82M, which is supported")
        try:
            model = model_class()(repo_id=_REPOSITORY, config=config, model=str(weights))
            self._model = model.to(device).eval()
        except Exception as error:  # torch and the package raise whatever they come upon
            raise TtsError(f"cannot load Kokoro from {folder}: {error}") from error
        self._torch = torch
        self._device = device
        self.name = f"kokoro-82m ({device})"
        self.cpu_threads = threads if device == "cpu" else 0
        self._memory = meter.figure(files_bytes(weights))

    def speak(
        self, tokens: list[int], style: NDArray[np.float32], speed: float
    ) -> tuple[NDArray[np.float32], NDArray[Any]]:
        torch = self._torch
        ids = torch.tensor([tokens], dtype=torch.long, device=self._device)
        reference = torch.from_numpy(style.reshape(1, -1)).to(self._device)
        with torch.inference_mode():
            sound, durations = self._model.forward_with_tokens(ids, reference, speed)
        return sound.reshape(-1).float().cpu().numpy(), durations.reshape(-1).cpu().numpy()

    def memory(self) -> MemoryFigure:
        return self._memory


def load_torch_styles(folder: Path) -> dict[str, NDArray[np.float32]]:
    """English voices of `folder`/voices by name, each float32 of shape (510, 256).

    Raises `TtsError`.
    """
    import torch

    styles: dict[str, NDArray[np.float32]] = {}
    for file in sorted((folder / "voices").glob("[ab]*.pt")):
        try:
            table = torch.load(file, map_location="cpu", weights_only=True).float().numpy()
            styles[file.stem] = table.reshape(MAX_TOKENS, _STYLE_SIZE)
        except Exception as error:  # torch raises whatever it comes upon
            raise TtsError(f"{file} is no Kokoro voice: {error}") from error
    if not styles:
        raise TtsError(f"{folder}/voices holds no English Kokoro voice (a*.pt or b*.pt)")
    return styles


def _files(folder: Path) -> tuple[dict[str, Any], Path]:
    try:
        config = json.loads((folder / "config.json").read_text("utf-8"))
        weights = next(iter(sorted(folder.glob("*.pth"))))
    except (OSError, ValueError, StopIteration) as error:
        raise TtsError(f"{folder} holds no Kokoro (config.json and a .pth): {error!r}") from error
    return config, weights


def model_class() -> Any:
    """`kokoro.model.KModel`, without what `import kokoro` would run: that imports spaCy."""
    if "kokoro" not in sys.modules:
        spec = importlib.util.find_spec("kokoro")
        if spec is None or spec.submodule_search_locations is None:
            raise TtsError("the package 'kokoro' is not installed")
        package = types.ModuleType("kokoro")
        package.__spec__ = spec
        package.__path__ = list(spec.submodule_search_locations)
        sys.modules["kokoro"] = package
    return importlib.import_module("kokoro.model").KModel
