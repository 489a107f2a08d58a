"""The load test's progress on a terminal, or as lines where there is none."""

from __future__ import annotations

import time
from dataclasses import dataclass
from types import TracebackType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from avatar_server.loadtest.record import RunRecord
from avatar_server.loadtest.results import ANY_REPORT, Joined, Refused, Second, Turn

_LINE_EVERY_S = 10.0


@dataclass(slots=True)
class _Row:
    avatar: str = ""
    state: str = "joining"
    fps: float = 0.0
    slowest: float = 60.0
    freezes: int = 0
    turns: int = 0
    answered: int = 0
    latest_ms: float | None = None


class LiveProgress:
    """Implements `run.Progress`. A context manager; may be used for several runs in turn."""

    def __init__(self, console: Console, duration_s: float) -> None:
        self._console = console
        self._rows: dict[int, _Row] = {}
        self._duration_s = duration_s
        self._bar = Progress(
            TextColumn("{task.description}"), BarColumn(None), TimeRemainingColumn(), expand=True
        )
        self._task = self._bar.add_task("starting", total=None)
        self._live = Live(self._view(None), console=console, refresh_per_second=2)
        self._phase = ""
        self._line_at = 0.0

    def __enter__(self) -> LiveProgress:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.stop()

    def begin(self) -> None:
        """A new run."""
        self._rows.clear()
        self._bar.update(self._task, total=None, completed=0)

    def phase(self, text: str) -> None:
        self._phase = text
        self._bar.update(self._task, description=text)
        if text == "measuring":
            self._bar.reset(self._task, total=self._duration_s, description=text)
            self._line_at = time.monotonic()
        if self._console.is_terminal:
            self._live.update(self._view(None))
        else:
            self._console.print(text)

    def report(self, report: ANY_REPORT) -> None:
        row = self._rows.setdefault(report.session, _Row())
        match report:
            case Joined():
                row.avatar, row.state = report.avatar, "joined"
            case Refused():
                row.state = f"refused: {report.message}"
                if not self._console.is_terminal:
                    self._console.print(f"session {report.session + 1} {row.state}")
            case Second():
                row.state, row.fps = report.state, report.fps
                if self._phase == "measuring":
                    row.slowest = min(row.slowest, report.fps)
                    row.freezes += report.freezes
            case Turn():
                row.turns += 1
                row.answered += report.answered_at is not None
                row.latest_ms = report.voice_to_voice_ms

    def second(self, record: RunRecord) -> None:
        done = max(0.0, time.monotonic() - record.start)
        self._bar.update(self._task, completed=min(done, self._duration_s))
        if self._console.is_terminal:
            self._live.update(self._view(record))
        elif time.monotonic() - self._line_at >= _LINE_EVERY_S:
            self._line_at = time.monotonic()
            turns = sum(row.turns for row in self._rows.values())
            answered = sum(row.answered for row in self._rows.values())
            slowest = min((row.fps for row in self._rows.values()), default=0.0)
            self._console.print(
                f"{done:4.0f} s: {answered} of {turns} turns answered, slowest picture rate "
                f"{slowest:.1f}/s, CPU {100 * record.usage[-1].busy:.0f}%"
            )

    def _view(self, record: RunRecord | None) -> RenderableType:
        table = Table(
            "session", "avatar", "state", "fps", "slowest", "freezes", "turns", "last", expand=True
        )
        for number, row in sorted(self._rows.items()):
            latest = "" if row.latest_ms is None else f"{row.latest_ms:.0f} ms"
            slowest = "" if row.slowest == 60.0 else f"{row.slowest:.1f}"
            table.add_row(
                str(number + 1),
                row.avatar,
                row.state,
                f"{row.fps:.1f}",
                slowest,
                str(row.freezes),
                f"{row.answered}/{row.turns}",
                latest,
            )
        parts: list[RenderableType] = [table]
        if record is not None and record.usage:
            latest_use = record.usage[-1]
            used = ", ".join(f"{name} {ms:.0f}" for name, ms in sorted(latest_use.run.items()))
            parts.append(f"CPU {100 * latest_use.busy:.0f}% of the machine; ms a second: {used}")
        return Group(*parts, self._bar)
