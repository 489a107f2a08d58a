"""The figures of a load test for a person at a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table


def print_figures(console: Console, figures: Mapping[str, Any]) -> None:
    """The figures, what they mean for the objective, and the way there."""
    video, audio, turns = figures["video"], figures["audio"], figures["turns"]
    table = Table(
        "received by the viewers",
        "",
        title=f"{figures['sessions']} session(s), {figures['viewers_per_session']} viewer(s) each, "
        f"{figures['duration_s']:.0f} s",
    )
    for name, value in (
        ("pictures a second, p5 / p50", _pair(video["fps_p5"], video["fps_p50"], 2)),
        ("freezes / frames left out", f"{video['freezes']} / {video['missed_frames']}"),
        (
            "between pictures, p99 / longest (ms)",
            _pair(video["frame_interval_p99_ms"], video["frame_interval_max_ms"]),
        ),
        ("gaps in the sound", f"{audio['gaps']} ({audio['gap_ms']:.0f} ms)"),
        ("picture after sound, p95 (ms)", _number(audio["av_offset_p95_ms"])),
        ("turns answered", f"{turns['answered']} of {turns['count']}"),
        ("voice to voice, p50 / p95 / longest (ms)", _three(turns["voice_to_voice_ms"])),
        ("wait covered by an acknowledgement", str(turns["acknowledged"])),
        ("interruption heard until silence, p50 / p95 (ms)", _three(figures["barge_in_ms"])),
        (
            "joins accepted / refused",
            f"{figures['joins']['accepted']} / {figures['joins']['rejected']}",
        ),
    ):
        table.add_row(name, value)
    console.print(table)
    if stages := turns["stages_ms"]:
        stage_table = Table("stage of a turn (ms)", "p50", "p95", "longest")
        for stage, values in stages.items():
            stage_table.add_row(stage, *(_number(values[q]) for q in ("p50", "p95", "max")))
        console.print(stage_table)
    cpu = figures["cpu_ms_per_s"]
    cpu_table = Table("CPU (ms a second)", "used", "waited for a core")
    for role in ("gateway", "avatar", "inference", "load"):
        cpu_table.add_row(role, _number(cpu[role]), _number(cpu.get("waiting", {}).get(role)))
    if (foreign := cpu.get("foreign")) is not None:
        cpu_table.add_row("other programs", _number(foreign), "")
    console.print(cpu_table)
    for kill in figures.get("kills", ()):
        back = kill["back_after_s"]
        console.print(
            f"{kill['process']} killed after {kill['at_s']} s: "
            f"{'back after ' + str(back) + ' s' if back is not None else 'not back'}; "
            f"others missed {kill['others']['missed_frames']} frame(s), longest interval "
            f"{_number(kill['others']['frame_interval_max_ms'])} ms"
        )
    if compared := figures.get("compare"):
        console.print(_compared(compared))
    if found := figures.get("find_max"):
        most = f"{found['sessions']} session(s) meet the objective"
        per_gpu = f", {found['per_gpu']} for each GPU" if found["per_gpu"] is not None else ""
        border = f"; the next step runs into: {found['binding']}" if found["binding"] else ""
        console.print(f"[bold]{most}{per_gpu}{border}[/bold]")
        for reason in found["reasons"]:
            console.print(f"  {reason}")
    print_verdict(console, figures["verdict"])


def print_verdict(console: Console, verdict: Mapping[str, Any]) -> None:
    """Pass or not, why, and what ran out."""
    for caveat in verdict["caveats"]:
        console.print(f"[yellow]{caveat}[/yellow]")
    if verdict["pass"]:
        console.print("[green]The objective is met.[/green]")
    for reason in verdict["reasons"]:
        console.print(f"[red]missed:[/red] {reason}")
    if verdict["binding"]:
        console.print(f"What is nearest to its limit: {verdict['binding']}")


def _compared(compared: Mapping[str, Any]) -> Table:
    table = Table(
        *(
            "run",
            "fps p5",
            "freezes",
            "frames left out",
            "gaps",
            "answered",
            "p50",
            "p95",
            "longest",
        ),
        title=f"B: {', '.join(compared['settings'])} (voice to voice in ms)",
    )
    for run in compared["runs"]:
        table.add_row(
            run["variant"],
            _number(run["fps_p5"], 2),
            *(str(run[name]) for name in ("freezes", "missed_frames", "audio_gaps")),
            f"{run['answered']}/{run['turns']}",
            *(_number(run[f"voice_to_voice_{name}_ms"]) for name in ("p50", "p95", "max")),
        )
    return table


def _number(value: float | None, digits: int = 0) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def _pair(first: float | None, second: float | None, digits: int = 1) -> str:
    return f"{_number(first, digits)} / {_number(second, digits)}"


def _three(values: Mapping[str, float | None]) -> str:
    return " / ".join(_number(values[q]) for q in ("p50", "p95", "max"))
