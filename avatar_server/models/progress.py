"""Telling a person how far a fetch is."""

from __future__ import annotations

from types import TracebackType
from typing import Protocol

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.progress import Progress as Bars


class Progress(Protocol):
    """Called while a model is fetched, from the thread that fetches it."""

    def __call__(self, name: str, done_bytes: int, total_bytes: int) -> None:
        """`done_bytes` never falls; `done_bytes == total_bytes` says that `name` is complete."""
        ...


class RichProgress:
    """One bar a model in the terminal; a context manager.

    with RichProgress() as progress:
        store.ensure(names, progress)
    """

    def __init__(self, console: Console | None = None) -> None:
        self._bars = Bars(
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            console=console or Console(stderr=True),
        )
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> RichProgress:
        self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bars.stop()

    def __call__(self, name: str, done_bytes: int, total_bytes: int) -> None:
        if name not in self._tasks:
            self._tasks[name] = self._bars.add_task(name, total=total_bytes)
        self._bars.update(self._tasks[name], completed=done_bytes, total=total_bytes)
