"""ONNX Runtime as speech uses it: few threads, no spinning, derived graphs kept in the cache."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import onnxruntime

from avatar_server.inference.tts.contract import SAMPLE_RATE_HZ, SpeechPiece, TtsError
from avatar_server.inference.tts.onnxgraph import GraphError, OnnxGraph
from avatar_server.paths import cache_dir

_EDITION = 1
"""To be raised when the way graphs are derived changes: older files are then not used."""


def open_session(path: Path, threads: int) -> Any:
    """An `onnxruntime.InferenceSession` on the CPU; raises `TtsError`."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    # A spinning worker burns a core that the avatars need.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(
            str(path), sess_options=options, providers=["CPUExecutionProvider"]
        )
    except Exception as error:  # the runtime raises its own classes, which share only this base
        raise TtsError(f"the speech model {path} cannot be loaded: {error}") from error


def rtf_of(pieces: Iterable[SpeechPiece], threads: int) -> float:
    """Real-time factor of making `pieces`.

    With one thread that thread's CPU time counts, which other processes disturb less than the
    time on the wall; with more there is no such clock for all of them.
    """
    clock = time.thread_time if threads == 1 else time.perf_counter
    begun = clock()
    samples = sum(piece.pcm.size for piece in pieces)
    return (clock() - begun) * SAMPLE_RATE_HZ / max(samples, 1)


def derived(source: Path, parts: dict[str, Callable[[OnnxGraph], OnnxGraph]]) -> dict[str, Path]:
    """Graphs made of `source` by `parts`, made once and kept in the cache; by the same names.

    Raises `TtsError` where `source` is not shaped as a part expects.
    """
    folder = cache_dir() / "tts" / f"{source.stem}-{_fingerprint(source)}-{_EDITION}"
    paths = {name: folder / f"{name}.onnx" for name in parts}
    if all(path.is_file() for path in paths.values()):
        return paths
    try:
        graph = OnnxGraph.load(source)
        for name, make in parts.items():
            make(graph).save(paths[name])
    except GraphError as error:
        raise TtsError(f"{source}: {error}") from error
    except OSError as error:
        raise TtsError(f"cannot write {folder}: {error.strerror}") from error
    return paths


def _fingerprint(source: Path) -> str:
    """Of size, time and both ends: enough to notice another file, without reading it all."""
    status = source.stat()
    digest = hashlib.sha256(f"{status.st_size}:{status.st_mtime_ns}".encode())
    with source.open("rb") as file:
        digest.update(file.read(65_536))
        file.seek(max(0, status.st_size - 65_536))
        digest.update(file.read(65_536))
    return digest.hexdigest()[:16]
