"""A real `avatar-server serve` with fake children, started for a test."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.gateway.support import FAKES


@dataclass
class Server:
    process: subprocess.Popen[bytes]
    output: Path
    url: str

    def text(self) -> str:
        return self.output.read_text()

    def children(self) -> list[int]:
        """All descendants."""
        found: list[int] = []
        queue = [self.process.pid]
        while queue:
            parent = queue.pop()
            for task in Path(f"/proc/{parent}/task").glob("*/children"):
                pids = [int(pid) for pid in task.read_text().split()]
                found += pids
                queue += pids
        return found


StartServer = Callable[..., Server]


def serving(tmp_path: Path) -> Iterator[StartServer]:
    """Yields what starts servers; all end with it."""
    servers: list[Server] = []

    def starting(*arguments: str, inference: str = "", wait_for: str = "Ctrl-C ends") -> Server:
        output = tmp_path / f"output{len(servers)}"
        environment = {
            **os.environ,
            "FAKE_AVATARS": str(tmp_path),
            "FAKE_INFERENCE": inference,
            "AVATAR_SERVER_CACHE": str(tmp_path / "cache"),
            "AVATAR_SERVER_DATA": str(tmp_path / "data"),
            "PYTHONUNBUFFERED": "1",
        }
        with output.open("wb") as file:
            process = subprocess.Popen(
                [sys.executable, str(FAKES / "serve.py"), "serve", "--port", "0", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=environment,
            )
        server = Server(process, output, "")
        servers.append(server)
        deadline = time.monotonic() + 40
        while wait_for not in server.text():
            assert process.poll() is None, server.text()
            assert time.monotonic() < deadline, server.text()
            time.sleep(0.05)
        found = re.search(r"(https?)://localhost:(\d+)/", server.text())
        assert found is not None
        server.url = f"{found[1]}://127.0.0.1:{found[2]}"
        return server

    yield starting
    for server in servers:
        if server.process.poll() is None:
            server.process.kill()
            server.process.wait()


def run_cli(folder: Path, *arguments: str) -> tuple[int, str]:
    """Exit code and output of `avatar-server` with these arguments."""
    environment = {
        **os.environ,
        "FAKE_AVATARS": str(folder),
        "AVATAR_SERVER_DATA": str(folder / "data"),
        "COLUMNS": "200",
        "TERM": "dumb",
    }
    done = subprocess.run(
        [sys.executable, str(FAKES / "serve.py"), *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=environment,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr
