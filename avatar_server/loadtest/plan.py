"""What a run of the load test is to do."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from avatar_server.loadtest.target import LoadError
from avatar_server.loadtest.usage import AVATAR, GATEWAY, INFERENCE

_KILL = re.compile(r"(?P<process>[a-z]+)(:(?P<number>\d+))?@(?P<at>\d+(\.\d+)?)")


@dataclass(frozen=True, slots=True)
class KillOrder:
    """Kill `process` ("avatar" of session `number`, from 0, or "inference") after `at_s`."""

    process: str
    number: int
    at_s: float


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """`sessions` with `viewers` each, `talkers` of them talking, for `duration_s`.

    `avatars` are taken in turn; none: all that the server has. `speech` is a folder of clips.
    """

    sessions: int
    viewers: int
    talkers: int
    duration_s: float
    speech: Path
    avatars: list[str] = field(default_factory=list)
    kills: list[KillOrder] = field(default_factory=list)
    seed: int = 0


def parse_kill(text: str, sessions: int, duration_s: float) -> KillOrder:
    """`avatar@20`, `avatar:2@20` (the second session's) or `inference@30`.

    Raises `LoadError` for anything else.
    """
    match = _KILL.fullmatch(text.strip())
    if match is None:
        raise LoadError(f"--kill {text!r}: write it as avatar:2@20 or inference@30 (seconds)")
    process, at_s = match["process"], float(match["at"])
    if process == GATEWAY:
        raise LoadError(
            f"--kill {text!r}: the gateway is the server; its end is the end of all its processes"
        )
    if process not in (AVATAR, INFERENCE) or (match["number"] and process != AVATAR):
        raise LoadError(f"--kill {text!r}: the processes are avatar:1 to avatar:N and inference")
    number = int(match["number"] or 1)
    if not 1 <= number <= sessions:
        raise LoadError(f"--kill {text!r}: there are {sessions} session(s)")
    if at_s >= duration_s:
        raise LoadError(f"--kill {text!r}: the load lasts {duration_s:g} s only")
    return KillOrder(process, number - 1, at_s)
