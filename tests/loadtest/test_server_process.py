"""A server of our own ends with us, however we end."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

SCRIPT = """
import subprocess, sys, time
from avatar_server.loadtest import server
# Stands in for `serve`: what matters is whether it is left behind.
real = subprocess.Popen
server.subprocess.Popen = lambda command, **more: real(
    [sys.executable, "-c", "import time; time.sleep(60)"], **more
)
server.ServerProcess._wait_until_ready = lambda self: None
with server.ServerProcess() as started:
    print(started.process.pid, flush=True)
    time.sleep(60)
"""


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False
    return state not in "ZX"


def test_a_sigterm_leaves_no_server_behind() -> None:
    ours = subprocess.Popen([sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, text=True)
    assert ours.stdout is not None
    server = int(ours.stdout.readline())
    assert alive(server)
    ours.terminate()
    assert ours.wait(20) == 128 + signal.SIGTERM
    deadline = time.monotonic() + 5
    while alive(server) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not alive(server)
