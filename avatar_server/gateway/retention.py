"""Deletes recordings when their time is over, and says so in the audit log."""

from __future__ import annotations

import asyncio
import contextlib
import logging

from avatar_server.config import Settings
from avatar_server.recording.store import RecordingStore
from avatar_server.security import AuditLog

SWEEP_EVERY_S = 600.0
"""How late a recording may go; also how long a disk bound may be exceeded."""
ACTOR = "retention"

log = logging.getLogger(__name__)


class Retention:
    """Sweeps at the start and from then on. `start` first, `stop` at the end."""

    def __init__(self, settings: Settings, audit: AuditLog | None = None) -> None:
        self._settings = settings.recording
        self._store = RecordingStore(settings.recording.path)
        self._audit = (audit or AuditLog()) if settings.security.audit else None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Sweep now, and regularly."""
        self._task = asyncio.create_task(self._run(), name="retention")

    async def stop(self) -> None:
        """End; twice is once."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    def sweep(self) -> None:
        """Delete what is due. Blocks; called on a thread."""
        for deletion in self._store.sweep(self._settings):
            outcome = deletion.why
            if deletion.failure:
                outcome = f"failed: {deletion.failure}"
                log.error("recording %s cannot be deleted: %s", deletion.id, deletion.failure)
            else:
                log.info("recording %s was deleted: %s", deletion.id, deletion.why)
            if self._audit is not None:
                self._audit.note(ACTOR, "", "recording.delete", deletion.id, outcome)

    async def _run(self) -> None:
        while True:
            try:
                await asyncio.to_thread(self.sweep)
            except Exception:
                # The next one may do better; without any, recordings would stay for ever.
                log.exception("recordings whose time is over could not be looked for")
            await asyncio.sleep(SWEEP_EVERY_S)
