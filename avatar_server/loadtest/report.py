"""The load test's report: one HTML file with everything in it, for light and dark screens."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from avatar_server.loadtest.plots import bars, histogram, line_plot, spans, stacked_plot

_SLOWEST = 12
_LEAST_RATE = 20.0
"""The plot begins there, or lower where the rate was: a missing picture is to be seen."""

_STYLE = """
:root { color-scheme: light dark; --page: #fbfaf7; --ink: #23211d; --soft: #6d6860;
  --line: #ddd8cd; --card: #ffffff; --good: #1d7a45; --bad: #b3341f; --warn: #8a5a00;
  --s0: #2f6db3; --s1: #d9822b; --s2: #4a9a5a; --s3: #b0413e; --s4: #7a5bab; --s5: #8a6a4f;
  --s6: #c563a3; --s7: #6f7680; --s8: #a7a327; --s9: #2a9aa5; }
@media (prefers-color-scheme: dark) { :root { --page: #16171a; --ink: #e9e6df; --soft: #a09a8e;
  --line: #34363b; --card: #1e2024; --good: #5cc98a; --bad: #f08a75; --warn: #e0b055;
  --s0: #6fa8e8; --s1: #f0a860; --s2: #7ccb8b; --s3: #e8827e; --s4: #b09ae0; --s5: #c2a283;
  --s6: #e59acb; --s7: #a3abb5; --s8: #d6d25f; --s9: #63c9d3; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 60rem; padding: 2rem 1.2rem 4rem; background: var(--page);
  color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; margin: 0 0 .3rem; } h2 { font-size: 1.1rem; margin: 2.2rem 0 .5rem; }
.verdict { border-left: 4px solid var(--good); padding: .6rem 1rem; background: var(--card); }
.verdict.missed { border-color: var(--bad); } .verdict ul { margin: .3rem 0; padding-left: 1.2rem; }
.caveat { color: var(--warn); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); gap: .7rem;
  margin: 1rem 0; }
.tile { background: var(--card); border: 1px solid var(--line); border-radius: 8px;
  padding: .6rem .8rem; }
.tile b { display: block; font-size: 1.35rem; font-variant-numeric: tabular-nums; }
.tile span { color: var(--soft); font-size: .85rem; }
figure { margin: 0; background: var(--card); border: 1px solid var(--line); border-radius: 8px;
  padding: .8rem; }
svg { width: 100%; height: auto; display: block; }
svg text { fill: var(--soft); font: 11px system-ui, sans-serif; }
.grid { stroke: var(--line); fill: none; } .mark { stroke: var(--ink); stroke-dasharray: 4 3;
  fill: none; }
.line { fill: none; stroke-width: 1.6; } .area { stroke: none; opacity: .85; }
.legend { margin: .4rem 0 0; font-size: .85rem; color: var(--soft); }
.legend span { margin-right: 1rem; white-space: nowrap; }
.key { display: inline-block; width: .8em; height: .8em; border-radius: 2px; margin-right: .35em; }
.empty, .note { color: var(--soft); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; }
th, td { text-align: left; padding: .25rem .7rem .25rem 0; border-bottom: 1px solid var(--line);
  vertical-align: top; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
summary { cursor: pointer; color: var(--soft); margin: .6rem 0; }
"""


def _series_style() -> str:
    return "".join(
        f".line.s{n} {{ stroke: var(--s{n}); }} .area.s{n} {{ fill: var(--s{n}); }} "
        f".key.s{n} {{ background: var(--s{n}); }}\n"
        for n in range(10)
    )


def write_report(path: Path, figures: Mapping[str, Any]) -> None:
    """Write the report of `figures` (with `detail`) to `path`."""
    path.write_text(report(figures), encoding="utf-8")


def report(figures: Mapping[str, Any]) -> str:
    """The report as HTML."""
    detail = figures["detail"]
    marks = {f"{kill['process']} killed": kill["at_s"] for kill in figures.get("kills", ())}
    title = (
        f"{figures['sessions']} session(s), {figures['viewers_per_session']} viewer(s) each, "
        f"{figures['duration_s']:.0f} s"
    )
    sections = [
        _verdict(figures["verdict"]),
        _tiles(figures),
        _found(figures),
        _compared(figures.get("compare")),
        _section("Voice to voice", _latencies(figures), _LATENCY_NOTE),
        _section("Pictures a second, as received", _rates(detail, marks)),
        _section("Stages of a turn", _stages(figures), _STAGE_NOTE),
        _section("The slowest turns, stage by stage", _slowest(detail)),
        _section("CPU used", _cpu(figures, marks)),
        _section("Ready, and waiting for a core", _waiting(detail, marks), _WAIT_NOTE),
        _gpu(detail, marks),
        _kills(figures.get("kills", ())),
        _turn_table(detail["turns"]),
        _server(detail["server"]),
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Load test: {escape(title)}</title><style>{_STYLE}{_series_style()}</style></head>"
        f"<body><h1>Load test</h1><p class='note'>{escape(title)}</p>{''.join(sections)}"
        "</body></html>\n"
    )


_LATENCY_NOTE = (
    "From the viewer's last audible sample to the packet with the reply's first audible one, by "
    "the viewer's clock."
)
_STAGE_NOTE = "As the server reports them. They overlap: recognition runs while the end is awaited."
_WAIT_NOTE = (
    "The time that threads stood ready without getting a core, all threads of a process together. "
    "Where it is large, the process is slow because others have the cores."
)


def _verdict(verdict: Mapping[str, Any]) -> str:
    kind = "verdict" if verdict["pass"] else "verdict missed"
    head = "The objective is met." if verdict["pass"] else "The objective is missed."
    reasons = "".join(f"<li>{escape(reason)}</li>" for reason in verdict["reasons"])
    caveats = "".join(f'<p class="caveat">{escape(text)}</p>' for text in verdict["caveats"])
    binding = escape(verdict["binding"] or "not known")
    return (
        f'<div class="{kind}"><b>{head}</b><ul>{reasons}</ul>{caveats}'
        f"Nearest to its limit: {binding}.</div>"
    )


def _tiles(figures: Mapping[str, Any]) -> str:
    video, audio, turns = figures["video"], figures["audio"], figures["turns"]
    latency, joins = turns["voice_to_voice_ms"], figures["joins"]
    tiles = (
        (_number(video["fps_p5"], 1), "pictures a second, p5"),
        (str(video["freezes"]), "freezes"),
        (_number(video["frame_interval_p99_ms"], 1), "ms between pictures, p99"),
        (str(audio["gaps"]), "gaps in the sound"),
        (f"{turns['answered']} of {turns['count']}", "turns answered"),
        (_number(latency["p50"]), "ms voice to voice, p50"),
        (_number(latency["p95"]), "ms voice to voice, p95"),
        (_number(figures["barge_in_ms"]["p95"]), "ms to stop when spoken over, p95"),
        (_number(audio["av_offset_p95_ms"]), "ms between picture and sound, p95"),
        (f"{joins['accepted']} / {joins['rejected']}", "joins accepted / refused"),
    )
    inside = "".join(
        f'<div class="tile"><b>{escape(value) or "–"}</b><span>{escape(name)}</span></div>'
        for value, name in tiles
    )
    return f'<div class="tiles">{inside}</div>'


def _found(figures: Mapping[str, Any]) -> str:
    found = figures.get("find_max")
    if found is None:
        return ""
    rows = [
        (
            step["sessions"],
            "met" if step["pass"] else "missed",
            _number(step["fps_p5"], 2),
            _number(step["voice_to_voice_p50_ms"]),
            _number(step["voice_to_voice_p95_ms"]),
            step["binding"] or "",
            "; ".join(step["reasons"]),
        )
        for step in found["steps"]
    ]
    head = ("sessions", "objective", "fps p5", "p50 ms", "p95 ms", "nearest to its limit", "why")
    most = f"<p><b>{found['sessions']}</b> session(s) meet the objective"
    if found["per_gpu"] is not None:
        most += f", {found['per_gpu']} for each GPU"
    if found["binding"]:
        most += f"; one step more runs into: {escape(found['binding'])}"
    return f"<h2>How many sessions</h2>{most}.</p>{_table(head, rows)}"


def _compared(compared: Mapping[str, Any] | None) -> str:
    if compared is None:
        return ""
    keys = (
        *("variant", "fps_p5", "freezes", "missed_frames", "audio_gaps", "answered", "turns"),
        *("voice_to_voice_p50_ms", "voice_to_voice_p95_ms", "voice_to_voice_max_ms"),
    )
    rows = [["" if run[key] is None else run[key] for key in keys] for run in compared["runs"]]
    head = [key.replace("_", " ") for key in keys]
    note = f"B: {', '.join(compared['settings'])}. The plots below are the first run's."
    return f"<h2>Compared</h2>{_table(head, rows)}<p class='note'>{escape(note)}</p>"


def _latencies(figures: Mapping[str, Any]) -> str:
    values = [
        turn["voice_to_voice_ms"]
        for turn in figures["detail"]["turns"]
        if turn["voice_to_voice_ms"] is not None
    ]
    quantiles = figures["turns"]["voice_to_voice_ms"]
    marks = {name: quantiles[name] for name in ("p50", "p95") if quantiles[name] is not None}
    return histogram("Voice to voice", values, x_name="ms", marks=marks)


def _rates(detail: Mapping[str, Any], marks: Mapping[str, float]) -> str:
    series = {
        f"session {viewer['session'] + 1}": [
            (float(second) + 0.5, rate) for second, rate in enumerate(viewer["fps"])
        ]
        for viewer in sorted(detail["viewers"], key=lambda v: (v["session"], v["viewer"]))
        if viewer["viewer"] == 0
    }
    return line_plot(
        "Pictures a second",
        series,
        x_name="s",
        y_name="pictures a second",
        y_from=_LEAST_RATE,
        marks=marks,
    )


def _stages(figures: Mapping[str, Any]) -> str:
    rows = {
        stage: (values["p50"], values["p95"])
        for stage, values in figures["turns"]["stages_ms"].items()
        if values["p50"] is not None
    }
    return bars("Stages of a turn", rows, x_name="ms", names=("p50", "p95"))


def _slowest(detail: Mapping[str, Any]) -> str:
    turns = [t for t in detail["turns"] if t["voice_to_voice_ms"] is not None and t["stages_ms"]]
    turns.sort(key=lambda turn: -float(turn["voice_to_voice_ms"]))
    rows = {
        f"{number}. {turn['text'] or 'session ' + str(turn['session'] + 1)}": [
            (stage, float(span[0]), float(span[1])) for stage, span in turn["stages_ms"].items()
        ]
        for number, turn in enumerate(turns[:_SLOWEST], 1)
    }
    return spans("The slowest turns", rows, x_name="ms from the viewer's last audible sample")


def _by_name(samples: Sequence[Mapping[str, Any]], key: str) -> dict[str, list[float]]:
    names = sorted({name for sample in samples for name in sample[key]})
    return {name: [float(s[key].get(name, 0.0)) for s in samples] for name in names}


def _cpu(figures: Mapping[str, Any], marks: Mapping[str, float]) -> str:
    samples = figures["detail"]["usage"]
    series = _by_name(samples, "run_ms")
    series["other programs"] = [float(sample["foreign_ms"]) for sample in samples]
    return stacked_plot(
        "CPU used",
        [sample["at_s"] for sample in samples],
        series,
        x_name="s",
        y_name="ms a second (dashed: all cores)",
        y_most=1e3 * (figures["cpu_ms_per_s"].get("cores") or 1),
        marks=marks,
    )


def _waiting(detail: Mapping[str, Any], marks: Mapping[str, float]) -> str:
    samples = detail["usage"]
    series = {
        name: [(float(s["at_s"]), value) for s, value in zip(samples, values, strict=True)]
        for name, values in _by_name(samples, "wait_ms").items()
    }
    return line_plot(
        "Waiting for a core", series, x_name="s", y_name="ms a second", y_from=0, marks=marks
    )


def _gpu(detail: Mapping[str, Any], marks: Mapping[str, float]) -> str:
    samples = [sample for sample in detail["usage"] if "gpu_percent" in sample]
    if not samples:
        return ""
    count = max(len(sample["gpu_percent"]) for sample in samples)
    series = {
        f"GPU {n}": [(float(s["at_s"]), s["gpu_percent"][n]) for s in samples] for n in range(count)
    }
    plot = line_plot("GPU", series, x_name="s", y_name="percent", y_from=0, marks=marks)
    return _section("GPU use", plot)


def _kills(kills: Iterable[Mapping[str, Any]]) -> str:
    rows = [
        (
            kill["process"],
            _number(kill["at_s"], 1),
            _number(kill["back_after_s"], 2),
            kill["others"]["sessions"],
            kill["others"]["missed_frames"],
            _number(kill["others"]["frame_interval_max_ms"], 1),
            _number(kill["own_longest_still_ms"]),
        )
        for kill in kills
    ]
    if not rows:
        return ""
    head = (
        "process",
        "killed at s",
        "back after s",
        "other sessions",
        "frames they missed",
        "their longest interval, ms",
        "own longest still, ms",
    )
    return f"<h2>Killed processes</h2>{_table(head, rows)}"


def _turn_table(turns: Sequence[Mapping[str, Any]]) -> str:
    rows = [
        (
            turn["session"] + 1,
            _number(turn["at_s"], 1),
            turn["text"],
            turn["heard"],
            turn["reply"],
            _number(turn["voice_to_voice_ms"]) or _why(turn),
            _number(turn["barge_in_ms"]),
        )
        for turn in turns
    ]
    head = ("session", "at s", "said", "heard", "answered", "ms", "stopped after ms")
    return f"<details><summary>All {len(turns)} turns</summary>{_table(head, rows)}</details>"


def _why(turn: Mapping[str, Any]) -> str:
    if turn["lost"]:
        return "connection lost"
    if turn["cut_off"]:
        return "cut off"
    return "not noticed" if turn["missed_interruption"] else "no answer"


def _server(server: Mapping[str, Any]) -> str:
    models = "".join(
        f"<tr><td>{escape(str(stage))}</td><td>{escape(str(model))}</td></tr>"
        for stage, model in server.get("models", {}).items()
    )
    version = escape(str(server.get("version", "")))
    return f"<h2>Server</h2><p>avatar_server {version}</p><table>{models}</table>"


def _section(title: str, content: str, note: str = "") -> str:
    tail = f'<p class="note">{escape(note)}</p>' if note else ""
    return f"<h2>{escape(title)}</h2><figure>{content}</figure>{tail}"


def _table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    top = "".join(f"<th>{escape(name)}</th>" for name in head)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f'<div class="scroll"><table><tr>{top}</tr>{body}</table></div>'


def _number(value: float | None, digits: int = 0) -> str:
    return "" if value is None else f"{value:.{digits}f}"
