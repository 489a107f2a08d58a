"""CPU and GPU use of processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from avatar_server.loadtest.target import Pids
from avatar_server.loadtest.usage import (
    GpuUse,
    UsageMeter,
    gateway_of,
    parse_gpus,
    run_delay_s,
    server_children,
)


@pytest.fixture
def busy() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    yield process
    process.kill()
    process.wait()


def test_a_process_that_computes_is_seen_and_one_that_is_gone_is_left_out(
    busy: subprocess.Popen[bytes],
) -> None:
    meter = UsageMeter()
    gone = 2**22 - 7
    names = {busy.pid: "inference", gone: "avatar 1", os.getpid(): "load conductor"}
    first = meter.sample(names)
    assert "avatar 1" not in first.run
    # Only what is used between two samples counts.
    assert first.run["inference"] == 0.0
    deadline = time.monotonic() + 20
    used = 0.0
    while used < 20 and time.monotonic() < deadline:
        time.sleep(0.3)
        sample = meter.sample(names)
        used = sample.run["inference"]
    assert used >= 20
    assert sample.run["load conductor"] < used
    assert 0 < sample.busy <= 1


def test_times_of_processes_with_one_name_are_added(busy: subprocess.Popen[bytes]) -> None:
    meter = UsageMeter()
    alone = meter.sample({busy.pid: "load viewers", os.getpid(): "load viewers"})
    assert set(alone.run) == {"load viewers"}


@pytest.mark.skipif(not os.path.exists("/proc/self/schedstat"), reason="no schedstat here")
def test_waiting_for_a_core_is_read_from_every_thread() -> None:
    assert run_delay_s(os.getpid()) > 0
    assert run_delay_s(2**22 - 7) == 0.0


def test_gpus_are_read_from_nvidia_smi() -> None:
    text = "0, NVIDIA H100 80GB HBM3, 87, 61234, 81559\n1, NVIDIA H100 80GB HBM3, [N/A], 0, 81559\n"
    assert parse_gpus(text) == [GpuUse(0, "NVIDIA H100 80GB HBM3", 87.0, 61_234.0, 81_559.0)]
    assert parse_gpus("No devices were found\n") == []


def test_children_of_a_gateway_are_found_and_strangers_are_none(
    busy: subprocess.Popen[bytes],
) -> None:
    assert busy.pid in server_children(os.getpid())
    assert server_children(2**22 - 7) == []
    # Not a process of this program: its parent is no gateway.
    assert gateway_of(busy.pid) is None


def test_processes_are_named_after_their_part_and_session() -> None:
    pids = Pids(gateway=1, inference=2, avatars={"a": 3, "b": 4, "c": 5}, others=[6])
    assert pids.named({"a": 0, "b": 1}, 10, [11, 12]) == {
        1: "gateway",
        2: "inference",
        3: "avatar 1",
        4: "avatar 2",
        5: "other",
        6: "other",
        10: "load conductor",
        11: "load viewers",
        12: "load viewers",
    }


def test_of_a_server_elsewhere_only_our_own_processes_are_named() -> None:
    assert Pids(inference=2, avatars={"a": 3}).named({"a": 0}, 10, [11]) == {
        10: "load conductor",
        11: "load viewers",
    }
