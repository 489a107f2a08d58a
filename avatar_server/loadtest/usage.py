"""CPU time of the server's processes and of our own, second by second; a GPU's use where one is.

`run` is CPU time used, `wait` the time that threads stood ready without getting a CPU (Linux
only, /proc/…/schedstat): a process that waits much is short of CPU whatever it uses itself.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from avatar_server.capacity.machine import ask_gpus

GATEWAY, INFERENCE, AVATAR, OTHER, LOAD = "gateway", "inference", "avatar", "other", "load"
"""Roles of processes; an avatar process is named `avatar 1`, `avatar 2`, … after its session."""

_GPU_QUERY = "index,name,utilization.gpu,memory.used,memory.total"
_GPU_TIMEOUT_S = 3.0


@dataclass(slots=True)
class UsageSample:
    """What one second took, in ms a second, by process name; `busy` is the share of all cores.

    `foreign` is what all other programs of the machine took.
    """

    at: float
    run: dict[str, float]
    wait: dict[str, float]
    busy: float
    foreign: float = 0.0
    gpu: list[GpuUse] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class GpuUse:
    """One GPU now: utilisation in percent, memory in MiB."""

    index: int
    name: str
    percent: float
    used_mib: float
    total_mib: float


class UsageMeter:
    """Samples named processes; a name may stand for several, whose times are added."""

    def __init__(self) -> None:
        self._gpu = shutil.which("nvidia-smi") is not None
        self._known: dict[int, psutil.Process] = {}
        self._before: dict[int, tuple[float, float]] = {}
        self._machine = _machine_times()
        self._at = time.monotonic()

    def sample(self, pids: Mapping[int, str]) -> UsageSample:
        """What the processes `pids` (id: name) used since the last call, per second."""
        now = time.monotonic()
        span = max(now - self._at, 1e-3)
        run: dict[str, float] = {}
        wait: dict[str, float] = {}
        times: dict[int, tuple[float, float]] = {}
        for pid, name in pids.items():
            if (taken := self._times(pid)) is None:
                continue
            times[pid] = taken
            # A process seen for the first time has used what it has in this second or before.
            before = self._before.get(pid, taken)
            run[name] = run.get(name, 0.0) + (taken[0] - before[0]) * 1e3 / span
            wait[name] = wait.get(name, 0.0) + max(0.0, taken[1] - before[1]) * 1e3 / span
        machine = _machine_times()
        busy = _busy(self._machine, machine)
        foreign = max(0.0, busy * 1e3 * (psutil.cpu_count() or 1) - sum(run.values()))
        self._before, self._machine, self._at = times, machine, now
        return UsageSample(now, run, wait, busy, foreign, read_gpus() if self._gpu else [])

    def _times(self, pid: int) -> tuple[float, float] | None:
        try:
            process = self._known.get(pid)
            if process is None:
                process = self._known[pid] = psutil.Process(pid)
            used = process.cpu_times()
        except psutil.Error:
            self._known.pop(pid, None)
            return None
        return used.user + used.system, run_delay_s(pid)


def run_delay_s(pid: int) -> float:
    """Time that a process's threads have waited for a CPU so far; 0 where that is not told."""
    total = 0
    with contextlib.suppress(OSError):
        for thread in os.scandir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError, ValueError, IndexError):
                total += int(Path(thread.path, "schedstat").read_text(encoding="ascii").split()[1])
    return total / 1e9


def read_gpus() -> list[GpuUse]:
    """All NVIDIA GPUs, by nvidia-smi; none where it does not answer."""
    return parse_gpus(ask_gpus(_GPU_QUERY, _GPU_TIMEOUT_S))


def parse_gpus(text: str) -> list[GpuUse]:
    """The lines of `nvidia-smi --query-gpu=…`; one that cannot be read is left out."""
    found = []
    for line in text.splitlines():
        parts = [part.strip() for part in line.split(",")]
        with contextlib.suppress(ValueError, IndexError):
            found.append(
                GpuUse(int(parts[0]), parts[1], float(parts[2]), float(parts[3]), float(parts[4]))
            )
    return found


def server_children(gateway: int) -> list[int]:
    """The processes under a gateway, its own not among them; none where it cannot be seen."""
    try:
        return [child.pid for child in psutil.Process(gateway).children(recursive=True)]
    except psutil.Error:
        return []


def gateway_of(inference: int) -> int | None:
    """The gateway's process, from its inference process; None where that is not on this machine."""
    try:
        child = psutil.Process(inference)
        if not any("avatar_server" in part for part in child.cmdline()):
            return None
        parent = child.parent()
        return parent.pid if parent is not None else None
    except psutil.Error:
        return None


def _machine_times() -> tuple[float, float]:
    """Busy and all CPU time of the machine, in seconds."""
    times = psutil.cpu_times()
    idle = times.idle + getattr(times, "iowait", 0.0)
    # Guests' time is counted in user time already; stolen time is nobody's here.
    counted = ("user", "nice", "system", "irq", "softirq", "steal")
    busy = sum(getattr(times, name, 0.0) for name in counted)
    return busy, busy + idle


def _busy(before: tuple[float, float], after: tuple[float, float]) -> float:
    span = after[1] - before[1]
    return min(1.0, max(0.0, (after[0] - before[0]) / span)) if span > 0 else 0.0
