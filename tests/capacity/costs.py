"""Costs of made-up machines, for tests of what follows from them."""

from __future__ import annotations

from typing import Any

import msgspec

from avatar_server.capacity.machine import Machine
from avatar_server.config import Settings, settings_from_values
from avatar_server.protocol.costs import FrameCosts, StageCosts

FRAMES = FrameCosts(
    avatar="theo",
    render_ms=6.0,
    encode_ms=4.0,
    idle_frame_ms=3.0,
    audio_ms_per_s=8.0,
    rss_bytes=130_000_000,
)
STAGES = StageCosts(
    stt_s=0.2,
    stt_device="cpu",
    endpoint_s=0.1,
    retrieve_s=0.005,
    llm_prefill_per_s=100.0,
    llm_decode_per_s=50.0,
    llm_decode_many_per_s=50.0,
    llm_device="cpu",
    tts_first_s=0.15,
    tts_rtf=0.12,
    tts_device="cpu",
    rss_bytes=800_000_000,
)


def frames(**changes: Any) -> FrameCosts:
    return msgspec.structs.replace(FRAMES, **changes)


def stages(**changes: Any) -> StageCosts:
    return msgspec.structs.replace(STAGES, **changes)


def on_gpu(**changes: Any) -> StageCosts:
    """A fast GPU that does everything but the end-of-turn check."""
    values = {
        "stt_s": 0.06,
        "stt_device": "gpu",
        "llm_prefill_per_s": 20_000.0,
        "llm_decode_per_s": 100.0,
        "llm_decode_many_per_s": 400.0,
        "llm_device": "gpu",
        "tts_first_s": 0.05,
        "tts_rtf": 0.03,
        "tts_device": "gpu",
        **changes,
    }
    return stages(**values)


def machine(cores: float = 2.0, memory_gb: float = 16.0) -> Machine:
    return Machine(cpu="test", cores=cores, memory_bytes=round(memory_gb * 1e9))


def settings(**sections: Any) -> Settings:
    return settings_from_values(sections)
