"""What a machine has, read from made-up /proc and /sys trees."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from avatar_server.capacity.machine import (
    free_memory_bytes,
    memory_limit_bytes,
    this_machine,
    usable_cores,
)

GIB = 1 << 30


@pytest.fixture(autouse=True)
def _eight_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


HOST = {
    "proc/meminfo": "MemTotal: 16777216 kB\nMemFree: 1 kB\nMemAvailable: 8388608 kB\n",
    "proc/cpuinfo": "processor : 0\nmodel name : A Fast One @ 3 GHz\n",
}


def test_without_limits_all_of_the_machine_counts(tmp_path: Path) -> None:
    machine = this_machine(tree(tmp_path, HOST))
    assert (machine.cpu, machine.cores) == ("A Fast One @ 3 GHz", 8.0)
    assert machine.memory_bytes == 16 * GIB
    assert free_memory_bytes(tmp_path) == 8 * GIB
    assert machine.gpu == ""


def test_the_tightest_quota_on_the_way_up_counts_in_cgroup_v2(tmp_path: Path) -> None:
    tree(
        tmp_path,
        HOST
        | {
            "proc/self/cgroup": "0::/app/server\n",
            "sys/fs/cgroup/app/server/cpu.max": "max 100000\n",
            "sys/fs/cgroup/app/cpu.max": "150000 100000\n",
            "sys/fs/cgroup/app/memory.max": str(4 * GIB),
            "sys/fs/cgroup/app/memory.current": str(3 * GIB),
            "sys/fs/cgroup/app/memory.stat": f"anon 1\ninactive_file {GIB}\n",
            "sys/fs/cgroup/app/server/memory.max": "max\n",
        },
    )
    assert usable_cores(tmp_path) == 1.5
    assert memory_limit_bytes(tmp_path) == 4 * GIB
    assert free_memory_bytes(tmp_path) == 2 * GIB, "the page cache is given back when needed"


def test_cgroup_v1_is_read_with_the_hosts_path_that_is_not_there(tmp_path: Path) -> None:
    tree(
        tmp_path,
        HOST
        | {
            "proc/self/cgroup": "4:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc\n1:name=x:/\n",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "250000",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": str(2 * GIB),
            "sys/fs/cgroup/memory/memory.usage_in_bytes": str(GIB // 2),
        },
    )
    assert usable_cores(tmp_path) == 2.5
    assert memory_limit_bytes(tmp_path) == 2 * GIB
    assert free_memory_bytes(tmp_path) == 2 * GIB - GIB // 2


def test_no_limit_in_cgroup_v1_is_no_limit(tmp_path: Path) -> None:
    tree(
        tmp_path,
        HOST
        | {
            "proc/self/cgroup": "4:memory:/\n3:cpu:/\n",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
        },
    )
    assert usable_cores(tmp_path) == 8.0
    assert memory_limit_bytes(tmp_path) == 16 * GIB


def test_a_system_without_proc_is_still_a_machine(tmp_path: Path) -> None:
    machine = this_machine(tmp_path)
    assert machine.cores == 8.0
    assert machine.memory_bytes > 0


def test_the_real_machine_has_cores_and_memory() -> None:
    machine = this_machine()
    assert machine.cpu
    assert 0 < free_memory_bytes() <= machine.memory_bytes
