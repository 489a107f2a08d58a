"""What the machine has: cores, memory and GPUs, within the limits that a container sets."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec

GPU_TIMEOUT_S = 10.0
"""The driver loads itself at the first question, which takes seconds."""
_UNLIMITED_BYTES = 1 << 60
"""cgroup v1 writes "no limit" as a number near 2^63."""


class Machine(msgspec.Struct, kw_only=True, frozen=True):
    """What there is. `cores` may be fractional where a container is given a share of them."""

    cpu: str
    cores: float
    memory_bytes: int
    gpu: str = ""
    gpu_memory_bytes: int = 0


def this_machine(root: Path = Path("/"), *, gpu: bool = False) -> Machine:
    """This machine, as far as this process may use it. `gpu`: ask for a GPU, too.

    `root` is where /proc and /sys are looked for.
    """
    name, gpu_memory_bytes = _gpu() if gpu else ("", 0)
    return Machine(
        cpu=_cpu_name(root),
        cores=usable_cores(root),
        memory_bytes=memory_limit_bytes(root),
        gpu=name,
        gpu_memory_bytes=gpu_memory_bytes,
    )


def usable_cores(root: Path = Path("/")) -> float:
    """Cores that this process may run on: its affinity and every cgroup's quota, the least."""
    try:
        cores = float(len(os.sched_getaffinity(0)))
    except AttributeError:  # not on macOS
        cores = float(os.cpu_count() or 1)
    for folder in _cgroups(root, "cpu"):
        quota = _cpu_quota(folder)
        if quota is not None:
            cores = min(cores, quota)
    return max(0.1, cores)


def memory_limit_bytes(root: Path = Path("/")) -> int:
    """The machine's memory, or the smallest limit of a cgroup that this process is in."""
    limit = _meminfo(root).get("MemTotal", 0) or _all_memory_bytes()
    for folder in _cgroups(root, "memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            value = _number(folder / name)
            if value is not None and value < _UNLIMITED_BYTES:
                limit = min(limit, value) if limit else value
    return limit


def free_memory_bytes(root: Path = Path("/")) -> int:
    """Memory that could still be taken now without swapping or meeting a cgroup's limit."""
    info = _meminfo(root)
    free = info.get("MemAvailable", 0) or memory_limit_bytes(root)
    for folder in _cgroups(root, "memory"):
        for limit_name, used_name in (
            ("memory.max", "memory.current"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes"),
        ):
            limit, used = _number(folder / limit_name), _number(folder / used_name)
            if limit is not None and used is not None and limit < _UNLIMITED_BYTES:
                # What the page cache holds counts as used there, and is given back when needed.
                used -= _file_cache_bytes(folder)
                free = min(free, max(0, limit - used))
    return free


def _cgroups(root: Path, controller: str) -> Iterator[Path]:
    """Folders of this process's cgroup and those above it, of either version."""
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeDecodeError):
        return
    base = root / "sys/fs/cgroup"
    for line in lines:
        number, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if number == "0":
            top = base
        elif controller in names.split(","):
            top = base / controller if (base / controller).is_dir() else base / names
        else:
            continue
        # In a container the path may be the host's, which is not there: the top is ours then.
        parts = [part for part in path.split("/") if part not in ("", "..")]
        for length in range(len(parts), -1, -1):
            folder = top.joinpath(*parts[:length])
            if folder.is_dir():
                yield folder


def _cpu_quota(folder: Path) -> float | None:
    """Cores that a cgroup allows: v2 `cpu.max`, v1 `cpu.cfs_quota_us`; None: no limit."""
    try:
        quota, _, period = (folder / "cpu.max").read_text(encoding="ascii").strip().partition(" ")
        return None if quota == "max" else int(quota) / int(period or 100_000)
    except (OSError, ValueError, ZeroDivisionError):
        pass
    quota_us, period_us = (_number(folder / f"cpu.cfs_{n}_us") for n in ("quota", "period"))
    if quota_us is None or quota_us <= 0 or not period_us:
        return None
    return quota_us / period_us


def _file_cache_bytes(folder: Path) -> int:
    try:
        lines = (folder / "memory.stat").read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeDecodeError):
        return 0
    values = dict(line.split(" ", 1) for line in lines if " " in line)
    found = values.get("inactive_file") or values.get("total_inactive_file") or "0"
    return int(found) if found.isdigit() else 0


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text(encoding="ascii").strip())
    except (OSError, ValueError):
        return None


def _meminfo(root: Path) -> dict[str, int]:
    """/proc/meminfo in bytes; empty where there is none."""
    try:
        lines = (root / "proc/meminfo").read_text(encoding="ascii").splitlines()
        pairs = [line.split(":", 1) for line in lines if ":" in line]
        return {name: int(value.split()[0]) * 1024 for name, value in pairs}
    except (OSError, ValueError, IndexError):
        return {}


def _all_memory_bytes() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return 0


def _cpu_name(root: Path) -> str:
    try:
        text = (root / "proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    for line in text.splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def ask_gpus(fields: str, timeout_s: float = GPU_TIMEOUT_S) -> str:
    """What nvidia-smi says of `fields`: a line a GPU, parted by commas.

    Empty where there is no NVIDIA GPU, no driver, or no answer within `timeout_s`.
    """
    command = ("nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits")
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=timeout_s, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout


def _gpu() -> tuple[str, int]:
    """Name and memory of the first GPU; ("", 0) where there is none or no driver."""
    try:
        name, _, memory_mib = ask_gpus("name,memory.total").splitlines()[0].rpartition(",")
        return name.strip(), int(memory_mib) << 20
    except (ValueError, IndexError):
        return "", 0
