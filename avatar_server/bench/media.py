"""`avatar-server bench media`: what a session's pictures and sound cost in CPU time.

Two child processes: one is measured, the other holds the viewers. In the same run the product's
path is compared with the usual one on aiortc (an RGB array a frame, encoded for each viewer).
Times are CPU times, which a busy machine inflates less than wall time, but still does.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any

from rich.console import Console
from rich.table import Table

from avatar_server.bench.children import child
from avatar_server.bench.clip import TALK_S

_SETTLE_S = 1.5
"""After a join, before measuring: keyframes and handshakes are over by then."""
_FPS = 30


def bench_media(seconds: float = 10, viewers: int | Sequence[int] = (1, 4, 16)) -> dict[str, Any]:
    """Measure and return the figures (CPU ms; `{"p50", "p95"}` where a step is repeated).

    `viewers`: how many viewers to measure with; one number is measured besides 1, 4 and 16.
    `seconds` is the length of each measurement.

    - `render_ms`, `convert_ms`, `encode_ms`: each step of one frame; `static_ms`: the packets of a
      picture that did not change; `stock_convert_ms`: RGB to I420 as the usual path does it.
    - `session_cpu_ms_per_s`: everything in the avatar process with one viewer, in a talk: the
      avatar listens and speaks, half of the time each. Of it `session_parts_cpu_ms_per_s`
      {"drawing", "encoding", "audio", "sending"}.
    - `reply_session_cpu_ms_per_s`: the same in the middle of an endless reply that runs through all
      mouth shapes, which no conversation does; `reply_parts_cpu_ms_per_s`. All that follows is
      measured in that reply, since the usual path plays it, too.
    - `viewer_cpu_ms_per_s` {"1", "4", "16"}: all but drawing, encoding and Opus, by viewer;
      `further_viewer_cpu_ms_per_s` {"4", "16"}: what each viewer after the first adds.
    - `stock_vp8_session_cpu_ms_per_s`, `stock_h264_session_cpu_ms_per_s`: the usual path with
      one viewer, drawing not included. It costs as much again for each further viewer.
    - `ratio_*_first_viewer`: the usual path's cost by ours in the same reply, drawing included in
      neither; `ratio_*_session`: by all of ours, drawing included; `ratio_*_further_viewer`.
    - `loop_lag_p95_ms` with the most viewers; `packets_per_s` and `bytes_per_s` by viewer, as
      they arrived; `late_frames_per_s`.

    All costs are for 30 frames a second: they are scaled up where the machine was too busy for
    that (`fps`, `stock_*_fps` say what was reached).

    Raises `BenchError` where a child process fails.
    """
    counts = {1, 4, 16, viewers} if isinstance(viewers, int) else {1, *viewers}
    return asyncio.run(_bench(seconds, sorted(counts)))


async def _bench(seconds: float, counts: list[int]) -> dict[str, Any]:
    async with child("media_server") as server:
        figures = await server.ask(do="pieces")
    (talk,) = await _measure_path("talk", [1], max(seconds, TALK_S))
    by_count = await _measure_path("reply", counts, seconds)
    first, most = by_count[0], by_count[-1]
    sending = {count: _parts(at)["sending"] for count, at in zip(counts, by_count, strict=True)}
    further = {
        str(count): (cost - sending[1]) / (count - 1)
        for count, cost in sending.items()
        if count > 1
    }
    figures |= {
        "session_cpu_ms_per_s": talk["cpu_ms_per_s"],
        "session_parts_cpu_ms_per_s": _parts(talk),
        "reply_session_cpu_ms_per_s": first["cpu_ms_per_s"],
        "reply_parts_cpu_ms_per_s": _parts(first),
        "viewer_cpu_ms_per_s": {str(count): cost / count for count, cost in sending.items()},
        "further_viewer_cpu_ms_per_s": further,
        "loop_lag_p95_ms": most["loop_lag_p95_ms"],
        "loop_lag_p50_ms": most["loop_lag_p50_ms"],
        "fps": most["frames_per_s"],
        "late_frames_per_s": most["late_frames_per_s"],
        "packets_per_s": most["received_packets_per_s"] / counts[-1],
        "bytes_per_s": most["received_octets_per_s"] / counts[-1],
    }
    ours = first["cpu_ms_per_s"]
    for codec in ("VP8", "H264"):
        (stock,) = await _measure_path(codec, [1], seconds)
        cost = stock["cpu_ms_per_s"]
        name = codec.lower()
        figures[f"stock_{name}_session_cpu_ms_per_s"] = cost
        figures[f"stock_{name}_fps"] = stock["frames_per_s"]
        figures[f"stock_{name}_bytes_per_s"] = stock["received_octets_per_s"]
        figures[f"ratio_{name}_session"] = cost / ours
        figures[f"ratio_{name}_first_viewer"] = cost / (ours - first["drawing_cpu_ms_per_s"])
        if further:
            figures[f"ratio_{name}_further_viewer"] = cost / further[str(counts[-1])]
    rounded: dict[str, Any] = _rounded(figures)
    return rounded


def _parts(measured: dict[str, float]) -> dict[str, float]:
    """Where the process's CPU time went."""
    audio, drawing = measured["audio_cpu_ms_per_s"], measured["drawing_cpu_ms_per_s"]
    return {
        "drawing": drawing,
        "encoding": measured["video_cpu_ms_per_s"] - drawing,
        "audio": audio,
        "sending": measured["cpu_ms_per_s"] - measured["video_cpu_ms_per_s"] - audio,
    }


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return round(value, 3) if isinstance(value, float) else value


async def _measure_path(path: str, counts: list[int], seconds: float) -> list[dict[str, Any]]:
    results = []
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(child("media_server"))
        viewers = await stack.enter_async_context(child("media_viewers"))
        await server.ask(do="start", path=path)
        present = 0
        for count in counts:
            for number in range(present, count):
                offer = await viewers.ask(do="offer")
                answer = await server.ask(do="offer", viewer=f"v{number}", sdp=offer["sdp"])
                await viewers.ask(do="accept", sdp=answer["sdp"])
            present = count
            await asyncio.sleep(_SETTLE_S)
            before, began = await viewers.ask(do="count"), time.monotonic()
            measured = await server.ask(do="measure", seconds=seconds, lag=True)
            after, took = await viewers.ask(do="count"), time.monotonic() - began
            for key in ("packets", "octets"):
                measured[f"received_{key}_per_s"] = (after[key] - before[key]) / took
            # On a machine too busy for all frames the cost is that of the frames not left out.
            scale = _FPS / min(measured["frames_per_s"], _FPS)
            for key in [key for key in measured if key.endswith("cpu_ms_per_s")]:
                measured[key] *= scale
            results.append(measured)
        await viewers.ask(do="leave")
    return results


def print_table(figures: dict[str, Any]) -> None:
    """The figures for a person."""
    console = Console(highlight=False)
    frame = Table("one frame (CPU ms)", "p50", "p95", title=f"Media path, {figures['source']}")
    for key, name in (
        ("render_ms", "draw into I420"),
        ("convert_ms", "hand over to the encoder"),
        ("encode_ms", "encode H.264 and packetise"),
        ("static_ms", "the same picture again"),
        ("stock_convert_ms", "usual path: RGB to I420"),
    ):
        frame.add_row(name, *(f"{figures[key][q]:.2f}" for q in ("p50", "p95")))
    console.print(frame)
    costs = Table("CPU ms per second", "this server", "usual, VP8", "usual, H.264")
    vp8, h264 = (figures[f"stock_{c}_session_cpu_ms_per_s"] for c in ("vp8", "h264"))
    parts = figures["session_parts_cpu_ms_per_s"]
    costs.add_row(
        "a talk with one viewer, all in", f"{figures['session_cpu_ms_per_s']:.0f}", "", ""
    )
    for name, cost in parts.items():
        costs.add_row(f"  of it {name}", f"{cost:.0f}", "", "")
    ours = figures["reply_session_cpu_ms_per_s"]
    drawing = figures["reply_parts_cpu_ms_per_s"]["drawing"]
    costs.add_row(
        "an endless reply with one viewer",
        f"{ours:.0f}",
        f"({figures['ratio_vp8_session']:.1f}x)",
        f"({figures['ratio_h264_session']:.1f}x)",
    )
    costs.add_row(
        "the same without drawing",
        f"{ours - drawing:.0f}",
        f"{vp8:.0f} ({figures['ratio_vp8_first_viewer']:.1f}x)",
        f"{h264:.0f} ({figures['ratio_h264_first_viewer']:.1f}x)",
    )
    for count, cost in figures["further_viewer_cpu_ms_per_s"].items():
        costs.add_row(
            f"each further viewer, of {count}",
            f"{cost:.1f}",
            f"{vp8:.0f} ({vp8 / cost:.0f}x)",
            f"{h264:.0f} ({h264 / cost:.0f}x)",
        )
    console.print(costs)
    console.print(
        f"event loop lag p95 {figures['loop_lag_p95_ms']:.1f} ms; per viewer "
        f"{figures['packets_per_s']:.0f} packets/s, {8e-3 * figures['bytes_per_s']:.0f} kbit/s; "
        f"{figures['fps']:.1f} frames/s, {figures['late_frames_per_s']:.1f} late"
    )
