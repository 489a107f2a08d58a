"""Settings of the scheduler."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from avatar_server.config.base import Section


class SchedulerSettings(Section):
    """Who is served first, and how much at once."""

    policy: Literal["laxity", "edf", "fifo", "fair"] = "laxity"
    """`laxity`: what can wait least, without making others miss what they need not; `edf`: the
    earliest deadline; `fifo`: in order of arrival; `fair`: the session that used least."""
    cores: int = Field(default=0, ge=0)
    """Inference steps at once on the CPU; 0: as many as there are cores, and at least 2."""
    gpu_places: int = Field(default=3, ge=1)
    """Inference steps at once on the GPU."""
    ahead_s: float = Field(default=3.0, gt=0)
    """Speech is made this far ahead of what is heard, and no further."""
