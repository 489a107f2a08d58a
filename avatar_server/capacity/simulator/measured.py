"""A profile of this machine, from what `serve` measured when it started here."""

from __future__ import annotations

from typing import Any

from avatar_server.capacity.demand import SENDING_CORES
from avatar_server.capacity.figures import CalibrationCache, frames_key, machine_for, stages_key
from avatar_server.capacity.machine import Machine
from avatar_server.capacity.simulator.profile import ProfileError
from avatar_server.config import Settings
from avatar_server.inference.host import host_devices
from avatar_server.protocol.costs import FrameCosts, StageCosts

UTTERANCE_S = 3.0
CLAUSE_CHARS = 62.0
MANY = 4
"""What the measurements were of: speech, a clause, requests at once (`capacity.stages`)."""
GROWS = 0.4
"""Of recognition and of a clause's first piece, the part taken to grow with the length."""
PLAYOUT_MS = 100
CALIBRATED = "measured when the server started here, CPU time of the step alone"


def measured_profile(
    settings: Settings, machine: Machine | None = None, cache: CalibrationCache | None = None
) -> dict[str, Any]:
    """The profile as plain values, for a file. Raises `ProfileError` where nothing was measured."""
    machine, cache = machine or machine_for(settings), cache or CalibrationCache()
    frames = cache.load(FrameCosts, frames_key(machine, settings))
    stages = cache.load(StageCosts, stages_key(machine, settings))
    if frames is None or stages is None:
        raise ProfileError(
            "this machine was not measured with this configuration yet: start "
            "`avatar-server serve` with it once and wait until it is ready"
        )
    return build_profile(settings, machine, frames, stages)


def _drawing(frames: FrameCosts, stages: StageCosts) -> dict[str, Any]:
    """Where frames are drawn, and what that and the encode cost."""
    if not stages.face_s or stages.face_device != "gpu":
        return {"draw_ms": frames.render_ms, "encode_ms": frames.encode_ms}
    further_s = (MANY * stages.face_many_s - stages.face_s) / (MANY - 1)
    return {
        "draw_device": "gpu",
        "draw_ms": round(stages.face_s * 1e3, 3),
        "draw_ms_per_face": round(max(0.0, further_s) * 1e3, 3),
        # The session's own process lays the face over its picture.
        "encode_ms": round(frames.render_ms + frames.encode_ms, 3),
    }


def build_profile(
    settings: Settings, machine: Machine, frames: FrameCosts, stages: StageCosts
) -> dict[str, Any]:
    """The profile of a machine with these costs."""
    used = {stages.stt_device, stages.tts_device, stages.llm_device, "cpu"}
    if stages.face_s:
        used.add(stages.face_device)
    places = {device.name: device.places for device in host_devices(settings)}
    capacity = {"cpu": float(machine.cores), "gpu": 1.0}
    turns = settings.turns
    read = 1e3 / stages.llm_prefill_per_s if stages.llm_prefill_per_s else 0.0
    step = 1e3 / stages.llm_decode_per_s if stages.llm_decode_per_s else 0.0
    many = stages.llm_decode_many_per_s
    together = MANY * 1e3 / many if many else step
    stt_ms, first_ms = stages.stt_s * 1e3, stages.tts_first_s * 1e3
    return {
        "title": f"this machine: {machine.cores:g} cores",
        "budget_ms": turns.budget_ms,
        "devices": {
            name: {"capacity": capacity[name], "places": places[name], "source": "this machine"}
            for name in sorted(used)
            if name in capacity
        },
        "turn": {
            "pause_ms": turns.pause_ms,
            "end_ms": turns.end_ms,
            "max_pause_ms": turns.max_pause_ms,
            "playout_ms": PLAYOUT_MS,
            "source": "the configuration; playout: docs/figures.md, a viewer on the same host",
        },
        "stt": {
            "device": stages.stt_device,
            "fixed_ms": round(stt_ms * (1 - GROWS), 2),
            "per_unit_ms": round(stt_ms * GROWS / UTTERANCE_S, 2),
            "source": f"{CALIBRATED}; {GROWS:.0%} of it taken to grow with the length",
        },
        "endpoint": {
            "device": "cpu",
            "fixed_ms": round(stages.endpoint_s * 1e3, 2),
            "source": CALIBRATED,
        },
        "retrieve": {
            "device": "cpu",
            "fixed_ms": round(stages.retrieve_s * 1e3, 2),
            "source": CALIBRATED,
        },
        "tts_first": {
            "device": stages.tts_device,
            "fixed_ms": round(first_ms * (1 - GROWS), 2),
            "per_unit_ms": round(first_ms * GROWS / CLAUSE_CHARS, 3),
            "source": f"{CALIBRATED}; {GROWS:.0%} of it taken to grow with the length",
        },
        "tts_next": {
            "device": stages.tts_device,
            "fixed_ms": 0,
            "per_unit_ms": round(stages.tts_rtf * 1e3, 2),
            "source": CALIBRATED,
        },
        "piece_s": settings.tts.first_piece_ms / 1e3,
        "llm": {
            "device": stages.llm_device,
            "read_ms_per_token": round(read, 3),
            "read_tokens": 32 if stages.llm_device == "cpu" else 2_048,
            "step_ms": round(step, 3),
            "step_ms_per_sequence": round(max(0.0, (together - step) / (MANY - 1)), 3),
            "source": f"{CALIBRATED}: speeds of one request, and of {MANY} at once",
        },
        "frames": {
            "fps": settings.media.video.fps,
            **_drawing(frames, stages),
            "idle_ms": frames.idle_frame_ms,
            "session_cores": round(SENDING_CORES + frames.audio_ms_per_s / 1e3, 4),
            "source": f"{CALIBRATED} (avatar {frames.avatar}); sending as bench media measures it",
        },
    }
