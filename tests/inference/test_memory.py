"""What models hold, and how it is told."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

import pytest

from avatar_server.inference import memory
from avatar_server.inference.memory import MemoryFigure, MemoryMeter, files_bytes, process_bytes
from avatar_server.inference.stt import cuda
from avatar_server.observe.metrics import Metrics
from avatar_server.protocol.messages import InferenceStatus, ModelMemory


def test_a_gpus_figure_is_the_difference_that_loading_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    used = iter([10_000, 17_000])
    monkeypatch.setattr(memory, "gpu_used_bytes", lambda: next(used))
    figure = MemoryMeter("cuda").figure(weights=4_000, cache=2_000)
    assert figure == MemoryFigure("cuda:0", 4_000, 2_000, 1_000, measured=True)
    assert figure.total == 7_000


def test_on_the_cpu_only_what_is_known_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "gpu_used_bytes", lambda: 5)
    figure = MemoryMeter("cpu").figure(weights=3 << 30)
    assert figure == MemoryFigure("cpu", 3 << 30)
    assert str(figure) == "about 3.00 GiB on cpu"


def test_sizes_of_files_and_processes(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"12345")
    (tmp_path / "b.txt").write_bytes(b"12")
    assert files_bytes(tmp_path) == 7
    assert files_bytes(tmp_path, "*.bin") == files_bytes(tmp_path / "a.bin") == 5
    assert process_bytes(os.getpid()) > 1 << 20
    assert process_bytes(2**22 + 1) == 0


def test_cublas_is_taken_from_its_package_where_the_system_has_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    loaded: list[str] = []

    def load(name: str, mode: int = 0) -> None:
        if "/" not in name:
            raise OSError("not found")
        loaded.append(Path(name).name)

    for name in ("libcublasLt.so.12", "libcublas.so.12"):
        (tmp_path / name).touch()
    monkeypatch.setattr(ctypes, "CDLL", load)
    monkeypatch.setattr(cuda, "_package_folders", lambda: [tmp_path / "nowhere", tmp_path])
    cuda.load_cublas()
    # One needs the other, so the order matters.
    assert loaded == ["libcublasLt.so.12", "libcublas.so.12"]


def test_memory_and_the_engines_figures_are_exported() -> None:
    metrics = Metrics()
    metrics.inference_status(
        InferenceStatus(
            ready=True,
            pid=1,
            llm={"cached_tokens": 80, "waiting": 2},
            memory={"llm": ModelMemory("cuda:0", 37, 12, 3)},
        )
    )
    text = metrics.render().decode()
    assert 'avatar_model_memory_bytes{device="cuda:0",kind="cache",stage="llm"} 12.0' in text
    assert "avatar_llm_cached_tokens 80.0" in text
    assert "avatar_llm_waiting 2.0" in text
