"""`avatar-server bench turn`: the latency that a viewer feels, over real spoken turns.

A synthetic viewer joins a real server over WebRTC, speaks, and measures by its own audio clock:
from its last audible sample leaving to the packet with the reply's first audible sample arriving.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from avatar_server.config import TtsSettings
from avatar_server.loadtest.server import ServerProcess
from avatar_server.loadtest.speech import QUESTIONS, Utterance, recorded, spoken
from avatar_server.loadtest.viewer import SyntheticViewer
from avatar_server.protocol import events

ANSWER_TIMEOUT_S = 15.0
"""A turn without an answer by then counts as not answered."""

SETTLE_S = 0.8
"""Silence between a reply's end and the next utterance."""


def bench_turn(
    *,
    utterances: int = 22,
    speech: Path | None = None,
    url: str | None = None,
    avatar: str | None = None,
    arguments: Sequence[str] = (),
    progress: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Speak `utterances` turns to one session and return the figures.

    `speech` is a folder of recordings to speak instead of synthesised questions. Without `url` a
    server is started with `arguments` and ended again. Keys: `turns`, `answered`,
    `voice_to_voice_ms` {`p50`,`p95`,`max`}, `server_voice_to_voice_ms` (by the server's own
    trace), `stages_ms` {stage: {`p50`,`p95`}} (durations), `session` (medians of the server's
    `fps`, `render_ms`, `encode_ms` and `bitrate_bps`, half of the time speaking), `each` (one
    entry a turn).
    """
    progress("preparing speech")
    lines = recorded(speech) if speech else _synthesised(min(utterances, len(QUESTIONS)))
    chosen = [lines[i % len(lines)] for i in range(utterances)]
    with ExitStack() as stack:
        if url is None:
            progress("starting a server")
            url = stack.enter_context(ServerProcess(arguments)).url
        return asyncio.run(_run(url, avatar, chosen, progress))


def _synthesised(count: int) -> list[Utterance]:
    from avatar_server.inference.tts import build_synthesizer
    from avatar_server.models import ModelStore

    synthesizer = build_synthesizer(ModelStore(), TtsSettings(engine="piper"), 1)
    return spoken(synthesizer, QUESTIONS[:count], synthesizer.voices()[0])


async def _run(
    url: str, avatar: str | None, lines: list[Utterance], progress: Callable[[str], None]
) -> dict[str, Any]:
    import httpx

    if avatar is None:
        async with httpx.AsyncClient(base_url=url) as http:
            avatar = str((await http.get("/v1/avatars")).json()[0]["name"])
    each: list[dict[str, Any]] = []
    async with SyntheticViewer(url, avatar=avatar, video="count") as viewer:
        # The greeting is the first turn.
        await viewer.wait_for(events.TurnDone, timeout_s=60.0)
        await _quiet(viewer, since=time.monotonic())
        for number, line in enumerate(lines, 1):
            each.append(await _turn(viewer, line))
            latency = each[-1]["voice_to_voice_ms"]
            told = "no answer" if latency is None else f"{latency:.0f} ms"
            progress(f"turn {number}/{len(lines)}: {told}  {line.text[:50]}")
        stats = [event for _, event in viewer.events if isinstance(event, events.Stats)][3:]
    return {**summary(each), "session": _session(stats)}


async def _turn(viewer: SyntheticViewer, line: Utterance) -> dict[str, Any]:
    started, _ = viewer.microphone.say(line.pcm)
    ended = started + line.voiced_end
    deadline = ended + ANSWER_TIMEOUT_S
    first: float | None = None
    while first is None and time.monotonic() < deadline:
        await asyncio.sleep(0.02)
        # A reply can start before our last sample has left only if we were cut off.
        first = viewer.received.first_audible_after(started + 0.25)
    entry: dict[str, Any] = {
        "text": line.text,
        "heard": "",
        "reply": "",
        "voice_to_voice_ms": None if first is None else (first - ended) * 1_000,
        "server_voice_to_voice_ms": None,
        "acknowledged_ms": None,
        "stages_ms": {},
    }
    if first is not None:
        done = await viewer.wait_for(events.TurnDone, since=started, timeout_s=30.0)
        entry["server_voice_to_voice_ms"] = done.voice_to_voice_ms
        if done.acknowledged_ms is not None and done.voice_to_voice_ms is not None:
            # What was heard first was no answer.
            entry["acknowledged_ms"] = entry["voice_to_voice_ms"]
            entry["voice_to_voice_ms"] += done.voice_to_voice_ms - done.acknowledged_ms
        entry["stages_ms"] = {stage: list(span) for stage, span in done.stages_ms.items()}
        await _quiet(viewer, since=first)
    since = [event for when, event in viewer.events if when >= started]
    entry["heard"] = " ".join(e.text for e in since if isinstance(e, events.Heard) and e.final)
    captions = {e.clause: e.spoken for e in since if isinstance(e, events.Caption)}
    entry["reply"] = " ".join(captions[clause] for clause in sorted(captions))
    return entry


async def _quiet(viewer: SyntheticViewer, since: float) -> None:
    """Wait until the avatar has been silent and idle for a moment."""
    deadline = time.monotonic() + 40.0
    while time.monotonic() < deadline:
        await asyncio.sleep(0.05)
        states = [e for _, e in viewer.events if isinstance(e, events.State)]
        loud = viewer.received.last_audible()
        idle = bool(states) and states[-1].state == "idle"
        if idle and time.monotonic() - max(loud or since, since) > SETTLE_S:
            return


def summary(each: list[dict[str, Any]]) -> dict[str, Any]:
    """The figures of `bench turn` from its turns."""
    felt = [e["voice_to_voice_ms"] for e in each if e["voice_to_voice_ms"] is not None]
    server = [e["server_voice_to_voice_ms"] for e in each if e["server_voice_to_voice_ms"]]
    stages: dict[str, list[float]] = defaultdict(list)
    for entry in each:
        for stage, (start, end) in entry["stages_ms"].items():
            stages[stage].append(end - start)
    return {
        "turns": len(each),
        "answered": len(felt),
        "voice_to_voice_ms": _quantiles(felt),
        "server_voice_to_voice_ms": _quantiles(server),
        "stages_ms": {stage: _quantiles(values) for stage, values in stages.items()},
        "each": each,
    }


def _session(stats: list[events.Stats]) -> dict[str, float]:
    """Medians of what the server said once a second of its pictures, over the whole talk."""
    if not stats:
        return {}
    return {
        name: round(float(np.median([getattr(each, name) for each in stats])), 2)
        for name in ("fps", "render_ms", "encode_ms", "bitrate_bps")
    }


def _quantiles(values: list[float]) -> dict[str, float | None]:
    if not values:
        return {"p50": None, "p95": None, "max": None}
    return {
        "p50": round(float(np.percentile(values, 50)), 1),
        "p95": round(float(np.percentile(values, 95)), 1),
        "max": round(max(values), 1),
    }
