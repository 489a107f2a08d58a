"""Settings of recordings."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from avatar_server.config.base import Section
from avatar_server.paths import data_dir


class RecordingSettings(Section):
    """What is recorded of sessions, where it lies, and for how long."""

    enabled: bool = False
    """Record every session, unless the operator who launches it says otherwise. Viewers are told
    before they join and while it is recorded."""
    viewer_sound: bool = True
    """Whether viewers' microphones are recorded, too, or the avatar alone."""
    viewer_text: bool = True
    """Whether what viewers said and typed is written into captions and turn log of a recording."""
    folder: Path | None = None
    """Where recordings lie; none: `recordings` in the data folder."""
    keep_days: float | None = Field(default=30.0, gt=0)
    """Recordings are deleted this long after they ended; none: never for their age."""
    keep_gb: float | None = Field(default=20.0, gt=0)
    """The oldest are deleted where all together take more (10^9 bytes); none: never for that."""
    keep_free_gb: float = Field(default=1.0, ge=0)
    """Recording stops, and the conversation goes on, where the disk has less room than this."""
    part_minutes: float = Field(default=60.0, ge=0.05)
    """A longer conversation is recorded in several files of this length."""

    @property
    def path(self) -> Path:
        """The folder of all recordings."""
        return self.folder or data_dir() / "recordings"
