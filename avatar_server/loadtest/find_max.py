"""The most sessions that meet the objective: doubled until it breaks, then halved towards it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

Run = Callable[[int], Awaitable[dict[str, Any]]]


async def find_max(run: Run, first: int, most: int) -> dict[str, Any]:
    """Figures of the best passing run (else of the last), with `find_max` added.

    `run` gives the figures of that many sessions, `verdict` included. `find_max` has `sessions`
    (0: not even one), `per_gpu` (None without a GPU), `binding` and `reasons` of the first number
    that broke it, and the `steps`. A number that passes is taken to mean that smaller ones do.
    """
    steps: list[dict[str, Any]] = []
    best: dict[str, Any] | None = None
    broken: dict[str, Any] | None = None
    low, high = 0, most + 1
    sessions = min(first, most)
    figures: dict[str, Any] = {}
    while low + 1 < high:
        figures = await run(sessions)
        steps.append(_step(sessions, figures))
        if figures["verdict"]["pass"]:
            low, best = sessions, figures
        else:
            high, broken = sessions, figures
        sessions = min(2 * low, most) if high > most else (low + high) // 2
    result = best or figures
    gpus = len(result.get("gpu", ()))
    verdict = broken["verdict"] if broken else {"binding": None, "reasons": []}
    return {
        **result,
        "find_max": {
            "sessions": low,
            "per_gpu": round(low / gpus, 2) if gpus else None,
            "binding": verdict["binding"],
            "reasons": verdict["reasons"],
            "steps": steps,
        },
    }


def _step(sessions: int, figures: dict[str, Any]) -> dict[str, Any]:
    latency = figures["turns"]["voice_to_voice_ms"]
    return {
        "sessions": sessions,
        "pass": figures["verdict"]["pass"],
        "reasons": figures["verdict"]["reasons"],
        "binding": figures["verdict"]["binding"],
        "fps_p5": figures["video"]["fps_p5"],
        "voice_to_voice_p50_ms": latency["p50"],
        "voice_to_voice_p95_ms": latency["p95"],
    }
