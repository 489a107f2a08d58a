"""Getting published files: wheels with pip, tarballs with npm, repositories of the hub.

Every function writes into a folder that its caller owns and throws away.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from avatar_server.models.entries import HubSource
from avatar_server.models.errors import FetchError

Meter = Callable[[int], None]
"""Called with the bytes fetched so far by the running download."""

STALL_TIMEOUT_S = 180.0
"""A download that brought no byte for this long is given up: the far side is gone."""
_POLL_S = 0.2

_OFFLINE = (
    "NewConnectionError",
    "NameResolutionError",
    "Temporary failure in name resolution",
    "Network is unreachable",
    "ConnectTimeoutError",
    "Connection refused",
    "ProxyError",
    "ENOTFOUND",
    "EAI_AGAIN",
    "ECONNREFUSED",
    "ETIMEDOUT",
    "LocalEntryNotFoundError",
)
_FULL = ("No space left on device", "ENOSPC", "Disk quota exceeded")


def fetch_wheel(requirement: str, folder: Path, meter: Meter, python: str = sys.executable) -> Path:
    """The wheel of `requirement` (`name==version`), downloaded into `folder`, not installed.

    Follows pip's own settings (index, proxy, certificates). Raises `FetchError`.
    """
    if python == sys.executable and importlib.util.find_spec("pip") is None:
        raise FetchError(
            f"cannot fetch {requirement}: this Python has no pip. "
            f"Run `{python} -m ensurepip`, or install the package {requirement} yourself"
        )
    target = folder / "wheels"
    scratch = folder / "scratch"
    target.mkdir(parents=True, exist_ok=True)
    scratch.mkdir(parents=True, exist_ok=True)
    before = set(target.iterdir())
    command = [
        *(python, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"),
        # Without pip's cache a download is one growing file, and no second copy stays behind.
        *("--no-cache-dir", "--no-input", "--disable-pip-version-check", "--progress-bar", "off"),
        *("--dest", str(target), requirement),
    ]
    _run(command, requirement, {"TMPDIR": str(scratch)}, (target, scratch), meter)
    new = [path for path in target.iterdir() if path not in before]
    if len(new) != 1:
        raise FetchError(f"pip brought no wheel for {requirement}: {sorted(p.name for p in new)}")
    return new[0]


def npm() -> str | None:
    """Path of npm, or nothing where it is not installed."""
    return shutil.which("npm")


def fetch_npm(package: str, folder: Path, meter: Meter) -> Path:
    """The tarball of `package` (`name@version`), downloaded into `folder`. Raises `FetchError`."""
    program = npm()
    if program is None:
        raise FetchError(f"cannot fetch {package}: npm is not installed")
    target = folder / "npm"
    cache = folder / "npm-cache"
    target.mkdir(parents=True, exist_ok=True)
    command = [program, "pack", package, "--ignore-scripts", "--loglevel", "error"]
    command += ["--pack-destination", str(target), "--cache", str(cache)]
    # npm keeps its cache copy and the tarball; the cache alone counts bytes off the network.
    _run(command, package, {"npm_config_update_notifier": "false"}, (cache,), meter)
    found = sorted(target.glob("*.tgz"))
    if len(found) != 1:
        raise FetchError(f"npm brought no tarball for {package}")
    return found[0]


def fetch_hub(source: HubSource, folder: Path, meter: Meter) -> None:
    """The repository's files, downloaded into `folder`. Raises `FetchError`.

    A token for gated repositories is taken from the hub client's own settings.
    """
    script = (
        "import json, sys; from huggingface_hub import snapshot_download; "
        "repo, revision, patterns, folder = json.loads(sys.argv[1]); "
        "snapshot_download(repo, revision=revision, allow_patterns=patterns, local_dir=folder)"
    )
    what = json.dumps([source.repo, source.revision, source.patterns, str(folder)])
    _run(
        [sys.executable, "-c", script, what],
        source.label,
        {"HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_HUB_DISABLE_TELEMETRY": "1"},
        (folder,),
        meter,
    )
    shutil.rmtree(folder / ".cache", ignore_errors=True)


def _run(
    command: list[str],
    what: str,
    environment: Mapping[str, str],
    grows: tuple[Path, ...],
    meter: Meter,
) -> None:
    """Run a downloader, reporting the growth of the folders it writes to."""
    start = sum(map(_size, grows))
    log = grows[0].parent / "download.log"
    with log.open("wb") as sink:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environment},
            cwd=grows[0].parent,
        )
        try:
            done, changed = 0, time.monotonic()
            while True:
                try:
                    code = process.wait(timeout=_POLL_S)
                    break
                except subprocess.TimeoutExpired:
                    grown = sum(map(_size, grows)) - start
                    if grown > done:
                        done, changed = grown, time.monotonic()
                        meter(done)
                    elif time.monotonic() - changed > STALL_TIMEOUT_S:
                        raise FetchError(
                            f"fetching {what} stalled: nothing came for {STALL_TIMEOUT_S:.0f} s. "
                            "Check the network and try again"
                        ) from None
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    if code != 0:
        raise FetchError(explain(what, log.read_text(encoding="utf-8", errors="replace")))


def explain(what: str, output: str) -> str:
    """What a downloader's output means, with what to do about it."""
    if any(sign in output for sign in _FULL):
        return f"cannot fetch {what}: the disk is full"
    if any(sign in output for sign in _OFFLINE):
        return (
            f"cannot fetch {what}: the package index or hub cannot be reached. Check the network "
            "and the proxy settings, or give the model's path in the configuration"
        )
    if "No matching distribution" in output or "E404" in output or "RepositoryNotFound" in output:
        return f"cannot fetch {what}: the configured index does not have it"
    if "No module named pip" in output:
        return f"cannot fetch {what}: this Python has no pip; run `python -m ensurepip`"
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return f"cannot fetch {what}: " + (lines[-1] if lines else "the downloader failed silently")


def _size(folder: Path) -> int:
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            # Files come and go while the downloader works.
            try:
                total += os.lstat(os.path.join(root, name)).st_size
            except OSError:
                continue
    return total
