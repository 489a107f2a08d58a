"""What the server's processes have used, as far as they report it."""

from __future__ import annotations

import os
import resource
from dataclasses import dataclass

from avatar_server.gateway.control import Control


@dataclass(frozen=True, slots=True)
class ProcessUse:
    """What a process has used: CPU seconds since its start, and resident bytes (0: not known)."""

    role: str
    session: str
    pid: int
    cpu_s: float
    rss_bytes: int


def process_use(control: Control) -> list[ProcessUse]:
    """This process and all of its children."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    found = [ProcessUse("gateway", "", os.getpid(), used.ru_utime + used.ru_stime, 0)]
    if (one := control.models.status) is not None:
        found.append(ProcessUse("inference", "", one.pid, one.cpu_s, one.rss_bytes))
    for entry in control.registry.sessions():
        if entry.status is not None and entry.pid is not None:
            status = entry.status
            found.append(ProcessUse("avatar", entry.id, entry.pid, status.cpu_s, status.rss_bytes))
    return found
