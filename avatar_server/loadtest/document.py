"""The figures of a run as one JSON document.

The keys are the load test's public format; `FIGURES` in `docs/load.md` says what each means.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from typing import Any

from avatar_server.config import LoadTestSettings
from avatar_server.loadtest.figures import (
    fps_by_second,
    freezes,
    intervals_ms,
    missed_frames,
    percentile,
    quantiles,
    stage_quantiles,
    within,
)
from avatar_server.loadtest.record import RunRecord
from avatar_server.loadtest.results import Finished, Turn
from avatar_server.loadtest.streams import audio_gaps
from avatar_server.loadtest.usage import AVATAR, GATEWAY, INFERENCE, LOAD, OTHER

JOIN_OVERLAP_S = 3.0
"""After a kill, turns and pictures count again this long after the process is back."""


class ViewerFigures:
    """What one viewer received in [start, end)."""

    def __init__(
        self, viewer: Finished, start: float, end: float, settings: LoadTestSettings
    ) -> None:
        self.session, self.viewer = viewer.session, viewer.viewer
        shown = [at for connection in viewer.connections for at in connection.shown]
        self.fps = fps_by_second(shown, start, end)
        self.steps_ms = intervals_ms(shown, start, end)
        self.freezes = freezes(self.steps_ms, settings.freeze_ms)
        self.missed = 0
        self.gaps = []
        self.offsets_ms: list[float] = []
        self.packets_lost = 0
        octets = 0.0
        for connection in viewer.connections:
            self.missed += missed_frames(connection.pts[within(connection.shown, start, end)])
            part = within(connection.audio_arrived, start, end)
            packets = zip(connection.audio_pts[part], connection.audio_arrived[part], strict=True)
            self.gaps += audio_gaps(list(packets), buffer_s=settings.audio_buffer_ms / 1e3)
            self.offsets_ms += connection.offsets_ms
            self.packets_lost += connection.packets_lost
            octets += connection.octets
        self.kbit_per_s = octets * 8e-3 / max(end - (shown[0] if shown else start), 1.0)


def disturbed(record: RunRecord, session: int, start: float, end: float) -> bool:
    """Whether a kill of the session's own process, or of inference, falls in [start, end]."""
    return any(
        kill.session in (None, session)
        and start <= (kill.back_at or record.end) + JOIN_OVERLAP_S
        and end >= kill.at
        for kill in record.kills
    )


def spared(record: RunRecord, viewers: Iterable[ViewerFigures]) -> list[ViewerFigures]:
    """The viewers whose own avatar was not killed: their pictures must not have suffered."""
    hit = {kill.session for kill in record.kills}
    return [viewer for viewer in viewers if viewer.session not in hit]


def counted(record: RunRecord) -> list[Turn]:
    """The turns of the measured time that no kill disturbed."""
    return [
        turn
        for turn in record.turns
        if record.start <= turn.said_at < record.end
        and not disturbed(record, turn.session, turn.said_at, turn.answered_at or turn.ended_at)
    ]


def document(record: RunRecord, settings: LoadTestSettings) -> dict[str, Any]:
    """All figures but the verdict."""
    viewers = [
        ViewerFigures(viewer, record.start, record.end, settings) for viewer in record.finished
    ]
    judged = spared(record, viewers)
    turns = counted(record)
    latencies = [t.voice_to_voice_ms for t in turns if t.voice_to_voice_ms is not None]
    barge_in = [t.barge_in_ms for t in turns if t.barge_in_ms is not None]
    fps = [rate for viewer in judged for rate in viewer.fps]
    steps = [step for viewer in judged for step in viewer.steps_ms]
    offsets = [abs(offset) for viewer in judged for offset in viewer.offsets_ms]
    figures: dict[str, Any] = {
        "sessions": record.sessions,
        "viewers_per_session": record.viewers,
        "duration_s": round(record.duration_s, 2),
        "video": {
            "fps_p5": percentile(fps, 5, 2),
            "fps_p50": percentile(fps, 50, 2),
            "freezes": sum(len(viewer.freezes) for viewer in judged),
            "frame_interval_p99_ms": percentile(steps, 99, 2),
            "frame_interval_max_ms": percentile(steps, 100, 2),
            "missed_frames": sum(viewer.missed for viewer in judged),
        },
        "audio": {
            "gaps": sum(len(viewer.gaps) for viewer in judged),
            "gap_ms": round(sum(gap.length_s for v in judged for gap in v.gaps) * 1e3, 1),
            "av_offset_p95_ms": percentile(offsets, 95, 2),
        },
        "turns": {
            "count": len(turns),
            "answered": sum(turn.answered_at is not None for turn in turns),
            "cut_off": sum(turn.cut_off for turn in turns),
            "acknowledged": sum(turn.acknowledged_at is not None for turn in turns),
            "voice_to_voice_ms": quantiles(latencies),
            "first_sound_ms": quantiles(
                [t.first_sound_ms for t in turns if t.first_sound_ms is not None]
            ),
            "stages_ms": stage_quantiles([turn.stages_ms for turn in turns]),
            "ledger_ms": {
                stage: quantiles([t.ledger_ms[stage][0] for t in turns if stage in t.ledger_ms])
                for stage in sorted({stage for turn in turns for stage in turn.ledger_ms})
            },
            "overran": dict(Counter(turn.overran for turn in turns if turn.overran)),
        },
        "barge_in_ms": {
            **quantiles(barge_in),
            "count": len(barge_in),
            "missed": sum(turn.missed_interruption for turn in turns),
        },
        "cpu_ms_per_s": cpu_figures(record),
    }
    if gpu := gpu_figures(record):
        figures["gpu"] = gpu
    figures["joins"] = {
        "accepted": len(record.joined),
        "rejected": len(record.refused),
        "reasons": sorted({refused.message for refused in record.refused}),
        "took_s": quantiles([joined.took_s for joined in record.joined.values()], 2),
    }
    lags = [lag for viewer in record.finished for at, lag in viewer.lags if at >= record.start]
    figures["load"] = {
        "lag_ms": quantiles(lags),
        "talkers": record.talkers,
        "notes": record.notes,
    }
    if record.kills:
        figures["kills"] = kill_figures(record, viewers)
    figures["detail"] = detail(record, viewers)
    return figures


def cpu_figures(record: RunRecord) -> dict[str, Any]:
    """CPU by kind of process, all of a kind together, in ms a second of the measured time."""
    samples = [s for s in record.usage if record.start < s.at <= record.end + 1.0]
    figures: dict[str, Any] = {}
    if not samples:
        return dict.fromkeys((GATEWAY, AVATAR, INFERENCE, LOAD))
    for role in (GATEWAY, AVATAR, INFERENCE, LOAD, OTHER):
        run = [sum(v for n, v in s.run.items() if n.split(" ")[0] == role) for s in samples]
        # Without a view of the server's processes its figures are unknown, not zero.
        known = any(n.split(" ")[0] == role for s in samples for n in s.run)
        figures[role] = round(sum(run) / len(run), 1) if known else None
    figures["waiting"] = {
        role: round(
            sum(v for s in samples for n, v in s.wait.items() if n.split(" ")[0] == role)
            / len(samples),
            1,
        )
        for role in (GATEWAY, AVATAR, INFERENCE, LOAD)
    }
    figures["foreign"] = round(sum(s.foreign for s in samples) / len(samples), 1)
    figures["cores"] = os.cpu_count()
    figures["machine"] = round(sum(s.busy for s in samples) / len(samples), 3)
    return figures


def gpu_figures(record: RunRecord) -> list[dict[str, Any]]:
    """Use of each GPU over the measured time."""
    by_index: dict[int, list[Any]] = {}
    for sample in record.usage:
        if record.start < sample.at <= record.end + 1.0:
            for gpu in sample.gpu:
                by_index.setdefault(gpu.index, []).append(gpu)
    return [
        {
            "index": index,
            "name": uses[0].name,
            "percent_mean": round(sum(use.percent for use in uses) / len(uses), 1),
            "percent_p95": percentile([use.percent for use in uses], 95),
            "memory_mib_max": max(use.used_mib for use in uses),
            "memory_mib": uses[0].total_mib,
        }
        for index, uses in sorted(by_index.items())
    ]


def kill_figures(record: RunRecord, viewers: list[ViewerFigures]) -> list[dict[str, Any]]:
    """What each kill did to the others, and how long the killed one was gone."""
    out = []
    for kill in record.kills:
        others = [v for v in record.finished if v.session != kill.session]
        end = (kill.back_at or record.end) + JOIN_OVERLAP_S
        shown = [
            [at for connection in viewer.connections for at in connection.shown]
            for viewer in others
        ]
        steps = [step for times in shown for step in intervals_ms(times, kill.at, end)]
        missed = sum(
            missed_frames(connection.pts[within(connection.shown, kill.at - 0.1, end)])
            for viewer in others
            for connection in viewer.connections
        )
        own = [v for v in record.finished if v.session == kill.session]
        dark = [
            max(intervals_ms([at for c in v.connections for at in c.shown], kill.at, end))
            for v in own
        ]
        out.append(
            {
                "process": kill.process,
                "at_s": round(kill.at - record.start, 2),
                "back_after_s": round(kill.back_at - kill.at, 2) if kill.back_at else None,
                "others": {
                    "sessions": len({v.session for v in others}),
                    "missed_frames": missed,
                    "frame_interval_max_ms": percentile(steps, 100, 2),
                },
                "own_longest_still_ms": round(max(dark), 1) if dark else None,
            }
        )
    return out


def detail(record: RunRecord, viewers: list[ViewerFigures]) -> dict[str, Any]:
    """By session, by turn and by second, for whoever asks why. Moments in s from the start."""

    def at(moment: float | None) -> float | None:
        return None if moment is None else round(moment - record.start, 3)

    return {
        "server": record.server,
        "viewers": [
            {
                "session": v.session,
                "viewer": v.viewer,
                "fps_p5": percentile(v.fps, 5, 2),
                "freezes_ms": [round(step, 1) for step in v.freezes],
                "missed_frames": v.missed,
                "frame_interval_p99_ms": percentile(v.steps_ms, 99, 2),
                "audio_gaps": [
                    {"at_s": at(gap.at), "ms": round(gap.length_s * 1e3, 1)} for gap in v.gaps
                ],
                "av_offset_ms": quantiles(v.offsets_ms),
                "kbit_per_s": round(v.kbit_per_s, 1),
                "packets_lost": v.packets_lost,
                "fps": [round(rate, 2) for rate in v.fps],
            }
            for v in viewers
        ],
        "turns": [
            {
                "session": t.session,
                "at_s": at(t.said_at),
                "ended_s": at(t.ended_at),
                "answered_s": at(t.answered_at),
                "text": t.text,
                "heard": t.heard,
                "reply": t.reply,
                "voice_to_voice_ms": _rounded(t.voice_to_voice_ms),
                "server_voice_to_voice_ms": _rounded(t.server_voice_to_voice_ms),
                "first_sound_ms": _rounded(t.first_sound_ms),
                "stages_ms": {stage: list(span) for stage, span in t.stages_ms.items()},
                "ledger_ms": {stage: list(span) for stage, span in t.ledger_ms.items()},
                "overran": t.overran,
                "interruption": t.interruption,
                "barge_in_ms": _rounded(t.barge_in_ms),
                "missed_interruption": t.missed_interruption,
                "cut_off": t.cut_off,
                "lost": t.lost,
            }
            for t in sorted(record.turns, key=lambda t: t.said_at)
        ],
        "usage": [
            {
                "at_s": at(s.at),
                "busy": round(s.busy, 3),
                "foreign_ms": round(s.foreign, 1),
                "run_ms": {name: round(ms, 1) for name, ms in s.run.items()},
                "wait_ms": {name: round(ms, 1) for name, ms in s.wait.items()},
                **({"gpu_percent": [gpu.percent for gpu in s.gpu]} if s.gpu else {}),
            }
            for s in record.usage
        ],
        "refused": [
            {"session": r.session, "viewer": r.viewer, "status": r.status, "message": r.message}
            for r in record.refused
        ],
        "events": [
            {"session": v.session, "viewer": v.viewer, "at_s": at(when), "what": what}
            for v in record.finished
            for when, what in v.events
        ],
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)
