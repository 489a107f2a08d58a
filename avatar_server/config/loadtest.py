"""Settings of the load test: how its viewers behave, and what a machine has to reach."""

from __future__ import annotations

from pydantic import Field, model_validator

from avatar_server.config.base import Section


class LoadTestSettings(Section):
    """`avatar-server load`."""

    min_fps_p5: float = Field(default=29.5, ge=0)
    """Objective: pictures a second in all but the worst 5% of all sessions' seconds."""
    freeze_ms: float = Field(default=100.0, gt=0)
    """A picture that stands for longer than this is a freeze."""
    max_freezes: int = Field(default=0, ge=0)
    """Objective: freezes of all viewers together."""
    audio_buffer_ms: float = Field(default=100.0, gt=0)
    """Sound that a viewer's player holds back: a packet later than this, or lost, is a gap. About
    what browsers hold on a good network."""
    max_audio_gaps: int = Field(default=0, ge=0)
    """Objective: gaps in the sound of all viewers together."""
    max_voice_to_voice_p95_ms: float | None = Field(default=None, gt=0)
    """Objective: latency of all but the slowest 5% of the turns; none: `turns.budget_ms`."""
    min_answered: float = Field(default=1.0, ge=0, le=1)
    """Objective: share of the turns that are answered."""
    answer_timeout_s: float = Field(default=15.0, gt=0)
    """A turn without an answer by then counts as not answered."""
    interrupt_share: float = Field(default=0.15, ge=0, le=1)
    """Share of the replies that a viewer speaks over."""
    pause_min_s: float = Field(default=0.6, ge=0)
    """Shortest time between the end of a reply and the viewer's next words."""
    pause_max_s: float = Field(default=2.5, ge=0)
    """Longest."""
    max_lag_ms: float = Field(default=20.0, gt=0)
    """The load test's own processes may get the CPU so much too late (95th percentile): beyond,
    its figures are about itself."""

    @model_validator(mode="after")
    def _consistent(self) -> LoadTestSettings:
        if self.pause_max_s < self.pause_min_s:
            raise ValueError("pause_max_s must not be below pause_min_s")
        return self
