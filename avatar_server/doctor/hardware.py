"""Processor, memory, GPU, and what draws."""

from __future__ import annotations

import ctypes.util
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from avatar_server.capacity.machine import (
    ask_gpus,
    free_memory_bytes,
    memory_limit_bytes,
    this_machine,
)
from avatar_server.config import Settings
from avatar_server.doctor.check import Check, failed, passed

GIB = 1 << 30
EMBEDDED_MEMORY_BYTES = 2 * GIB
"""Gateway, inference with the embedded models and one session: 1.3 GB resident, with room."""
_WITHOUT_ENCODER = re.compile(r"\b(A100|A30|A800|H100|H200|H20|H800|GH200|B100|B200|GB200|B300)\b")
"""Data-centre GPUs without NVENC, from the maker's video encode and decode support matrix."""


class GpuFound(NamedTuple):
    """A GPU as its driver describes it."""

    name: str
    memory_mib: int
    driver: str
    compute_capability: str


def nvidia_gpus() -> list[GpuFound]:
    """The NVIDIA GPUs that the driver shows; none where there is no driver."""
    found = []
    for line in ask_gpus("name,memory.total,driver_version,compute_cap").splitlines():
        parts = [part.strip() for part in line.split(",")]
        if len(parts) == 4 and parts[1].isdigit():
            found.append(GpuFound(parts[0], int(parts[1]), parts[2], parts[3]))
    return found


def has_video_encoder(gpu_name: str) -> bool:
    """Whether a GPU of that name has NVENC."""
    return _WITHOUT_ENCODER.search(gpu_name) is None


def cpu(root: Path = Path("/")) -> Iterator[Check]:
    """Cores that may be used, and the vector units that models and encoder are quick with."""
    machine = this_machine(root)
    cores = machine.cores
    found = f"{machine.cpu}, {cores:g} core{'' if cores == 1 else 's'}"
    if cores < 2:
        yield failed(
            "cpu",
            found,
            "Give the server at least 2 cores: one draws and encodes, one runs the models.",
        )
    else:
        yield passed("cpu", found)
    flags = _cpu_flags(root)
    if not flags:
        yield passed("vector units", "not told by this system")
    elif "avx2" in flags or "asimd" in flags:
        wide = [name for name in ("avx2", "avx512f", "avx512_vnni", "asimd") if name in flags]
        yield passed("vector units", ", ".join(wide))
    else:
        yield failed(
            "vector units",
            "no AVX2",
            "Use a processor, or a virtual machine's CPU type (such as 'host'), with AVX2: "
            "without it recognition and speech are several times slower.",
        )


def memory(root: Path = Path("/")) -> Iterator[Check]:
    """Memory that may be used."""
    limit, free = memory_limit_bytes(root), free_memory_bytes(root)
    found = f"{free / GIB:.1f} of {limit / GIB:.1f} GiB free"
    if free < EMBEDDED_MEMORY_BYTES:
        yield failed(
            "memory",
            found,
            f"Free some, or raise the container's limit: the server needs about "
            f"{EMBEDDED_MEMORY_BYTES / GIB:.0f} GiB.",
        )
    else:
        yield passed("memory", found)


def gpu(settings: Settings, gpus: list[GpuFound]) -> Iterator[Check]:
    """The GPUs, and whether they do what the configuration wants of them."""
    wanted = _wants_gpu(settings)
    if not gpus:
        if wanted:
            yield failed(
                "gpu",
                "none, or no NVIDIA driver",
                f"The configuration runs {', '.join(wanted)} on a GPU: install the driver (in a "
                "container, start it with --gpus all), or use --config cpu.",
            )
        else:
            yield passed("gpu", "none; this configuration needs none")
        return
    for one in gpus:
        yield passed(
            "gpu",
            f"{one.name}, {one.memory_mib / 1024:.1f} GiB, driver {one.driver}, "
            f"compute capability {one.compute_capability}",
        )
        encoder = has_video_encoder(one.name)
        yield passed(
            "gpu video encoder",
            "NVENC" if encoder else "none on this model: video is encoded on the CPU",
        )
    if settings.llm.engine == "vllm" and max(_capability(one) for one in gpus) < 7.5:
        yield failed(
            "gpu generation",
            f"compute capability {gpus[0].compute_capability}",
            "vLLM needs 7.5 or later (Turing): use llm.engine: llamacpp or openai.",
        )


def drawing() -> Iterator[Check]:
    """Graphics drivers, which nothing here needs."""
    libraries = {"EGL": "EGL", "OpenGL": "GL", "Vulkan": "vulkan"}
    here = [title for title, name in libraries.items() if ctypes.util.find_library(name)]
    found = f"{' and '.join(here)} installed" if here else "no EGL, OpenGL or Vulkan"
    yield passed("graphics", f"{found}; avatars are drawn on the CPU and need none of it")


def _wants_gpu(settings: Settings) -> list[str]:
    wanted = []
    if settings.stt.device == "cuda":
        wanted.append("speech to text")
    if settings.llm.engine == "vllm":
        wanted.append("the language model")
    if settings.tts.device == "cuda" or settings.tts.engine == "kokoro-torch":
        wanted.append("the voice")
    return wanted


def _capability(gpu: GpuFound) -> float:
    try:
        return float(gpu.compute_capability)
    except ValueError:
        return 0.0


def _cpu_flags(root: Path) -> set[str]:
    try:
        text = (root / "proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return set()
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("flags", "Features"):
            return set(value.split())
    return set()
