"""The audit log: who did what, and when. One JSON object a line, only ever appended."""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path

import msgspec

from avatar_server.paths import data_dir

log = logging.getLogger(__name__)


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An action of an operator, or a refusal."""

    time: str
    """UTC, ISO 8601."""
    actor: str
    """A key's name, or `local` where no key is needed."""
    address: str
    action: str
    """Like `session.create`."""
    target: str = ""
    outcome: str = "done"


class AuditLog:
    """Appends to a file. A log that cannot be written is told once and stops nothing."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or data_dir() / "audit.jsonl"
        self._told = False

    def note(
        self, actor: str, address: str, action: str, target: str = "", outcome: str = "done"
    ) -> None:
        """Write one entry, whole, even where several processes write."""
        entry = AuditEntry(
            time=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            actor=actor,
            address=address,
            action=action,
            target=target,
            outcome=outcome,
        )
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            handle = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                os.write(handle, msgspec.json.encode(entry) + b"\n")
            finally:
                os.close(handle)
        except OSError as error:
            if not self._told:
                self._told = True
                log.error("the audit log %s cannot be written: %s", self.path, error)
