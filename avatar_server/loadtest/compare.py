"""The same load with one setting changed, in turn: A B A B, so that drift of the machine shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

VARIANTS = ("A", "B", "A", "B")


def compare(run: Callable[[list[str]], dict[str, Any]], changed: list[str]) -> dict[str, Any]:
    """Figures of the first run, with `compare` added.

    `run` takes further `KEY=VALUE` settings; `changed` are those of variant B. `compare` has the
    `settings` of B and the `runs` in their order, each with its `variant` and chief figures.
    """
    first: dict[str, Any] | None = None
    runs = []
    for variant in VARIANTS:
        figures = run(changed if variant == "B" else [])
        first = first or figures
        runs.append(chief_figures(variant, figures))
    assert first is not None
    return {**first, "compare": {"settings": changed, "runs": runs}}


def chief_figures(variant: str, figures: Mapping[str, Any]) -> dict[str, Any]:
    """What runs are compared by."""
    turns, video = figures["turns"], figures["video"]
    latency = turns["voice_to_voice_ms"]
    return {
        "variant": variant,
        "pass": figures["verdict"]["pass"],
        "fps_p5": video["fps_p5"],
        "freezes": video["freezes"],
        "missed_frames": video["missed_frames"],
        "audio_gaps": figures["audio"]["gaps"],
        "turns": turns["count"],
        "answered": turns["answered"],
        "voice_to_voice_p50_ms": latency["p50"],
        "voice_to_voice_p95_ms": latency["p95"],
        "voice_to_voice_max_ms": latency["max"],
        "barge_in_p95_ms": figures["barge_in_ms"]["p95"],
        "machine": figures["cpu_ms_per_s"].get("machine"),
        "caveats": figures["verdict"]["caveats"],
    }
