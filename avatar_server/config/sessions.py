"""Settings of sessions and of the talk in them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from avatar_server.config.base import Section

AUTO_SESSIONS = 32
"""More than this many sessions are never planned for where `max_sessions` is `auto`: the models'
caches are made for as many. A machine with room for more is told so by its operator."""
UNMEASURED_SESSIONS = 2
"""Where nothing was measured and `max_sessions` is `auto`."""


class SessionSettings(Section):
    """Sessions and who may join."""

    max_sessions: Annotated[int, Field(ge=1)] | Literal["auto"] = "auto"
    """Running avatars at once, at most; `auto`: as many as this machine has room for."""
    max_viewers: int = Field(default=16, ge=1)
    """Viewers of one session."""
    idle_timeout_s: float = Field(default=30.0, gt=0)
    """A session without viewers ends after this long."""
    start_timeout_s: float = Field(default=20.0, gt=0)
    """An avatar process that is not ready by then is killed."""
    hang_timeout_s: float = Field(default=3.0, ge=2)
    """An avatar process silent for this long is killed and started again; it speaks every 1 s."""
    answer_timeout_s: float = Field(default=8.0, gt=0)
    """An avatar process that has not answered a viewer's offer by then is taken for busy."""
    restart_limit_per_minute: int = Field(default=6, ge=1)
    """An avatar process that ends unasked more often than this ends its session."""
    warm_spares: int = Field(default=1, ge=0, le=8)
    """Avatar processes loaded ahead, so that sessions start, and come back, at once."""

    always_on: list[str] = Field(default=[])
    """Avatars that always have a session, launched with the server and replaced if it ends; a name
    twice is two sessions. Visitors who choose such an avatar get one that nobody uses."""
    max_session_s: float | None = Field(default=None, ge=60)
    """A session ends after this long, however lively; none: never. Not those of `always_on`."""
    notice_s: float = Field(default=60.0, ge=5)
    """The avatar says this long before that the conversation will end."""
    turn_grace_s: float = Field(default=15.0, ge=0, le=120)
    """A turn that is going on when its session's time is over may take so much longer."""

    def at_most(self, otherwise: int = AUTO_SESSIONS) -> int:
        """`max_sessions`, or `otherwise` where that is `auto`."""
        return otherwise if self.max_sessions == "auto" else self.max_sessions


BudgetStage = Literal["endpoint", "stt", "route", "facts", "llm", "tts", "playout"]


class TurnSettings(Section):
    """Turn-taking."""

    speech_threshold: float = Field(default=0.5, gt=0, lt=1)
    """VAD probability from which a frame counts as speech."""
    start_ms: int = Field(default=96, ge=32)
    """Speech of this length opens a turn."""
    barge_in_ms: int = Field(default=150, ge=32)
    """Speech of this length stops a reply."""
    pause_ms: int = Field(default=200, ge=64)
    """At a pause of this length recognition starts, on the chance that the turn is over."""
    end_ms: int = Field(default=300, ge=64)
    """A pause of this length ends the turn where the semantic check says it is complete."""
    max_pause_ms: int = Field(default=1_200, ge=200)
    """A pause of this length ends the turn whatever the check says."""
    end_of_turn_threshold: float = Field(default=0.5, gt=0, lt=1)
    """Probability from which the semantic check counts as complete."""
    max_utterance_s: float = Field(default=30.0, gt=1)
    """Longer speech is cut into turns."""
    pre_roll_ms: int = Field(default=300, ge=0)
    """Sound kept from before speech was noticed."""
    partial_interval_ms: int = Field(default=0, ge=0)
    """Partial transcripts while the viewer speaks, this often; 0 for none."""
    budget_ms: int = Field(default=1_200, ge=200)
    """Voice-to-voice latency that a turn may take."""
    budget_shares: dict[BudgetStage, Annotated[float, Field(ge=0, le=1)]] = Field(
        default={
            "endpoint": 0.25,
            "stt": 0.2,
            "route": 0.05,
            "facts": 0.03,
            "llm": 0.27,
            "tts": 0.13,
            "playout": 0.07,
        }
    )
    """What each stage is granted of it, relative to those that happen; what one saves flows on."""
    acknowledge: bool = True
    """Cover the wait for an answer that will be late with a short remark ("Let me think.")."""
    acknowledge_miss_ms: int = Field(default=1_000, ge=0)
    """An answer must be foreseen to miss the budget by this much: a short wait is better silent,
    and an answer that comes while the remark is said has to wait for its end. With 500, four
    sessions that all talked on 2 cores had most of their answers above 2 s held up so."""
