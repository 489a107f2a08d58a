"""What the inference process knows of each avatar's session."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from avatar_server.clock import Clock
from avatar_server.config import Settings
from avatar_server.inference.deciding import build_planner
from avatar_server.inference.llm.responder import Responder
from avatar_server.inference.llm.retrieval import FactIndex
from avatar_server.inference.llm.tools import ToolCaller
from avatar_server.inference.loading import Models
from avatar_server.inference.planning import Planner
from avatar_server.inference.replies import Voice
from avatar_server.inference.tts import choose_voice
from avatar_server.inference.workers import Workers
from avatar_server.protocol.messages import OpenSession


@dataclass(slots=True, eq=False)
class Session:
    """One avatar: what it asked for, and what is being done for it."""

    opened: OpenSession
    peer: bytes
    heard_at: float
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when voice and planner are there."""
    opening: asyncio.Task[None] | None = None
    voice: Voice | None = None
    planner: Planner | None = None
    jobs: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    uncommitted: dict[str, asyncio.Event] = field(default_factory=dict)


async def build_session(
    opened: OpenSession,
    models: Models,
    settings: Settings,
    workers: Workers,
    caller: ToolCaller,
    clock: Clock,
) -> tuple[Voice, Planner]:
    """The voice and the planner that `opened` asks for.

    Raises `ValueError` for routes that cannot be used.
    """
    voice = choose_voice(models.synthesizer.voices(), opened.voice, opened.voice_fallbacks)
    index, _ = await workers["retrieve"].call(
        opened.session, lambda: FactIndex(opened.facts, models.encoder)
    )
    responder = Responder(
        opened.persona,
        index,
        models.encoder,
        settings.llm,
        name=opened.avatar.replace("-", " ").title(),
        language=opened.language,
        small_talk=models.small_talk if opened.language.startswith("en") else None,
    )
    planner = await build_planner(opened, responder, models.router, workers, caller, clock)
    pitch = opened.pitch.get(voice, 1.0)
    return Voice(voice, opened.speed, opened.language, pitch), planner
