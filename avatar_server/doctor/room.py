"""How many sessions this machine has room for, which resource binds, and what to change first."""

from __future__ import annotations

from dataclasses import dataclass, field

from avatar_server.avatars import AvatarError, find_avatars
from avatar_server.capacity.admission import Admission
from avatar_server.capacity.demand import WHY, Demand, Resource
from avatar_server.capacity.figures import CalibrationCache, frames_key, machine_for, stages_key
from avatar_server.capacity.frames import measure_frames
from avatar_server.capacity.machine import free_memory_bytes
from avatar_server.clock import MonotonicClock
from avatar_server.config import Settings
from avatar_server.protocol.costs import FrameCosts, StageCosts

ADVICE = {
    Resource.LIMIT: "Raise sessions.max_sessions: the machine itself would carry more.",
    Resource.CPU: "Give it more CPU cores, or draw less: media.video.fps 24, or 960x540 pixels.",
    Resource.INFERENCE: "Give it more CPU cores, move the language model to another machine "
    "(llm.engine: openai), or use a GPU (--config h100).",
    Resource.LATENCY: "Use a faster language model or machine, or allow more time: "
    "turns.budget_ms.",
    Resource.GPU: "Use a faster GPU or a smaller language model: avatar-server plan compares them.",
    Resource.MEMORY: "Give it more memory.",
    Resource.CONTEXT: "Lower llm.context_tokens, or give the language model's cache more memory.",
    Resource.OVERLOAD: "Wait until the load is over.",
}


@dataclass(frozen=True)
class Room:
    """`sessions` and `binding` are none where nothing is known."""

    sessions: int | None
    binding: str | None
    verdict: str
    advice: list[str] = field(default_factory=list)


def room(settings: Settings, *, measure: bool = True) -> Room:
    """What measured costs say; drawing is measured here where no start has done it yet."""
    machine = machine_for(settings)
    cache = CalibrationCache()
    frames = cache.load(FrameCosts, frames_key(machine, settings))
    stages = cache.load(StageCosts, stages_key(machine, settings))
    if frames is None and measure:
        try:
            avatars = find_avatars(settings.avatar_dirs)
            frames = measure_frames(settings, avatars.values())
        except AvatarError as error:
            return Room(None, None, f"It is not known how many sessions fit: {error}.")
        cache.store(frames, frames_key(machine, settings))
    if frames is None:
        return Room(None, None, "It is not known how many sessions fit: nothing was measured yet.")
    admission = Admission(settings, MonotonicClock())
    admission.demand = Demand(settings, machine, frames, stages, free_bytes=free_memory_bytes())
    capacity = admission.capacity()
    count = "1 session" if capacity.fits == 1 else f"{capacity.fits} sessions"
    advice = [ADVICE[capacity.binding]]
    verdict = f"This machine has room for {count}; more do not fit because {WHY[capacity.binding]}."
    if stages is None:
        verdict += " The models' speed is not in this figure."
        advice.append(
            "Start the server once: it measures how fast speech and language run here, and the "
            "number may fall."
        )
    return Room(capacity.fits, capacity.binding.value, verdict, advice)
