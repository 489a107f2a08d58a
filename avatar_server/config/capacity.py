"""Settings of admission and overload: how full a machine may get, and what gives way first."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from avatar_server.config.base import Section


class OverloadSettings(Section):
    """When quality steps down so that frames and sound stay on time; see design, section 5."""

    enabled: bool = True
    """Off: nothing is ever reduced, and an overloaded machine drops frames."""
    late_share_high: float = Field(default=0.03, gt=0, le=1)
    """Share of late frames of the worst session from which one more level is taken."""
    late_share_low: float = Field(default=0.005, ge=0, le=1)
    """Share of late frames below which a level may be given back."""
    frame_cost_high: float = Field(default=0.85, gt=0)
    """Drawing and encoding a frame, as a share of the time between frames, likewise."""
    frame_cost_low: float = Field(default=0.6, ge=0)
    """Likewise."""
    wait_high_ms: float = Field(default=600.0, gt=0)
    """Wait of somebody's job before it runs (the longest queue's 75th percentile), likewise."""
    wait_low_ms: float = Field(default=200.0, ge=0)
    """Likewise."""
    rise_s: float = Field(default=5.0, ge=0)
    """Above a high mark for this long takes one more level."""
    settle_s: float = Field(default=3.0, ge=0)
    """After a change, the time in which its effect is awaited before the next one."""
    fall_s: float = Field(default=15.0, gt=0)
    """Below all low marks for this long gives one level back."""


class CapacitySettings(Section):
    """How many sessions fit."""

    admission: Literal["measured", "fixed"] = "measured"
    """`measured`: a session starts only where this machine has room for it, and never more than
    `sessions.max_sessions`. `fixed`: only that number counts (2 where it is `auto`)."""
    recalibrate: bool = False
    """Measure this machine anew even where figures of an earlier start are at hand."""
    cpu_share: float = Field(default=0.85, gt=0, le=1)
    """Of the CPU cores, what the frames of all sessions may take while as many speak at once as
    is likely (98%)."""
    inference_share: float = Field(default=0.85, gt=0, lt=1)
    """Of what frames leave (or of the GPU), what speech and language may take on average."""
    memory_share: float = Field(default=0.9, gt=0, le=1)
    """Of the memory there was at the start, what the server may take."""
    turn_interval_s: float = Field(default=14.0, gt=1)
    """Expected time between two turns of a conversation."""
    speaking_share: float = Field(default=0.45, gt=0, le=1)
    """Expected share of a conversation's time in which the avatar speaks."""
    generated_share: float = Field(default=0.5, ge=0, le=1)
    """Expected share of the answers that the language model makes; facts answer the others."""
    overload: OverloadSettings = OverloadSettings()
