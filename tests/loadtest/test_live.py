"""Progress on a terminal and without one."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from avatar_server.loadtest.live import LiveProgress
from avatar_server.loadtest.results import Joined, Refused, Second
from avatar_server.loadtest.table import print_figures
from tests.loadtest.records import START, record, turn
from tests.loadtest.test_document import figures_of


def drive(console: Console) -> None:
    run = record()
    with LiveProgress(console, 10.0) as progress:
        progress.begin()
        progress.phase("session 1 of 2 joins")
        progress.report(Joined(session=0, id="a", avatar="theo", at=START, took_s=1.0))
        progress.report(Refused(session=1, viewer=0, status=503, message="Full.", at=START))
        progress.phase("measuring")
        progress.report(
            Second(session=0, at=START, fps=29.9, state="speaking", lag_ms=1.0, freezes=1)
        )
        progress.report(turn(0, 1.0, 812.0))
        progress._line_at -= 60
        progress.second(run)


def console_of(terminal: bool) -> tuple[Console, io.StringIO]:
    out = io.StringIO()
    return Console(file=out, force_terminal=terminal, width=120, highlight=False), out


def test_without_a_terminal_progress_comes_as_lines() -> None:
    console, out = console_of(terminal=False)
    drive(console)
    text = out.getvalue()
    assert "session 2 refused: Full." in text
    assert "1 of 1 turns answered" in text
    assert "CPU 60%" in text
    assert "\x1b" not in text


def test_on_a_terminal_every_session_has_its_row() -> None:
    console, out = console_of(terminal=True)
    drive(console)
    text = out.getvalue()
    for word in ("theo", "speaking", "29.9", "812 ms", "refused: Full.", "measuring"):
        assert word in text


@pytest.mark.parametrize("sessions", [1, 4])
def test_the_figures_are_printed_with_the_verdict(sessions: int) -> None:
    console, out = console_of(terminal=False)
    figures = figures_of(record(sessions))
    figures["find_max"] = {
        "sessions": 3,
        "per_gpu": 1.5,
        "binding": "cpu",
        "reasons": ["too slow"],
    }
    print_figures(console, figures)
    text = out.getvalue()
    assert f"{2 * sessions} of {2 * sessions}" in text
    assert "The objective is met." in text
    assert "3 session(s) meet the objective, 1.5 for each GPU" in text
