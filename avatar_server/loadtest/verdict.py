"""Whether a run met the objective, why not, and which resource it ran into."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from avatar_server.config import LoadTestSettings

CPU_FULL = 0.9
"""Share of the machine's cores from which it has nothing left to give."""
FOREIGN_SHARE = 0.05
"""Share of the cores that other programs may take without a word about it."""
GPU_FULL = 90.0
ONE_CORE_MS = 850.0
"""A process whose work is one thread's cannot use much more than a core's 1,000 ms a second."""


def verdict(
    figures: Mapping[str, Any], settings: LoadTestSettings, budget_ms: float
) -> dict[str, Any]:
    """`pass`, `reasons` (sentences; empty for a pass), `binding` and `caveats`.

    `binding` is what ran out, or comes nearest to it: `load` (this test itself: the figures are
    not the server's), `admission` (the server took no more), `foreign` (other programs on the
    machine), `gpu`, `cpu` (the whole machine),
    `inference`, `avatar` or `gateway` (one process on a core of its own), or the `stage` of a
    turn that takes longest, as `stage:stt`, where no resource is short. None where that is not
    known. `caveats` are sentences about what else the figures show than the server.
    """
    reasons = list(_reasons(figures, settings, budget_ms))
    late = _late(figures, settings)
    crowded = _crowded(figures)
    return {
        "pass": not reasons,
        "reasons": reasons,
        "binding": "load" if late else "foreign" if crowded else _binding(figures),
        "caveats": [caveat for caveat in (late, crowded) if caveat],
    }


def _reasons(figures: Mapping[str, Any], settings: LoadTestSettings, budget_ms: float) -> Any:
    joins, video, audio = figures["joins"], figures["video"], figures["audio"]
    turns, barge_in = figures["turns"], figures["barge_in_ms"]
    yield from figures["load"]["notes"]
    if joins["rejected"]:
        yield f"{joins['rejected']} join(s) refused: {'; '.join(joins['reasons'])}"
    if video["fps_p5"] is None:
        yield "no pictures were received"
    elif video["fps_p5"] < settings.min_fps_p5:
        yield f"{video['fps_p5']:.2f} pictures a second at p5, below {settings.min_fps_p5:g}"
    if video["freezes"] > settings.max_freezes:
        yield f"{video['freezes']} freeze(s) of over {settings.freeze_ms:g} ms"
    if audio["gaps"] > settings.max_audio_gaps:
        yield f"{audio['gaps']} gap(s) in the sound, {audio['gap_ms']:.0f} ms together"
    if turns["count"] and turns["answered"] < settings.min_answered * turns["count"]:
        yield f"{turns['count'] - turns['answered']} of {turns['count']} turns not answered"
    limit = settings.max_voice_to_voice_p95_ms or budget_ms
    p95 = turns["voice_to_voice_ms"]["p95"]
    if p95 is not None and p95 > limit:
        yield f"voice to voice {p95:.0f} ms at p95, above {limit:g} ms"
    if barge_in["missed"]:
        yield f"{barge_in['missed']} interruption(s) not noticed"
    for kill in figures.get("kills", ()):
        others = kill["others"]
        if others["missed_frames"]:
            yield (
                f"{others['missed_frames']} frame(s) of others missed when {kill['process']} was "
                "killed"
            )
        if kill["back_after_s"] is None:
            yield f"{kill['process']} did not come back"


def _late(figures: Mapping[str, Any], settings: LoadTestSettings) -> str | None:
    lag = figures["load"]["lag_ms"]["p95"]
    if lag is not None and lag > settings.max_lag_ms:
        return (
            f"The load test's own processes got the CPU {lag:.0f} ms late at p95: its figures are "
            "partly its own. Run it on another machine with --url, or with fewer viewers."
        )
    return None


def _crowded(figures: Mapping[str, Any]) -> str | None:
    cpu = figures["cpu_ms_per_s"]
    share = (cpu.get("foreign") or 0.0) / (1e3 * (cpu.get("cores") or 1))
    if share > FOREIGN_SHARE and cpu["machine"] >= CPU_FULL:
        return (
            f"Other programs took {100 * share:.0f}% of this machine, which was full: the figures "
            "are not the server's alone."
        )
    return None


def _binding(figures: Mapping[str, Any]) -> str | None:
    if figures["joins"]["rejected"]:
        return "admission"
    if any(gpu["percent_mean"] >= GPU_FULL for gpu in figures.get("gpu", ())):
        return "gpu"
    cpu = figures["cpu_ms_per_s"]
    if cpu.get("machine", 0.0) >= CPU_FULL:
        return "cpu"
    sessions = max(1, figures["joins"]["accepted"])
    alone = {
        "inference": cpu.get("inference") or 0.0,
        "avatar": (cpu.get("avatar") or 0.0) / sessions,
        "gateway": cpu.get("gateway") or 0.0,
    }
    fullest = max(alone, key=lambda name: alone[name])
    if alone[fullest] >= ONE_CORE_MS:
        return fullest
    stages = {
        stage: value["p95"]
        for stage, value in figures["turns"]["stages_ms"].items()
        if value["p95"] is not None and stage != "endpoint"
    }
    if stages:
        return f"stage:{max(stages, key=lambda stage: stages[stage])}"
    return None
