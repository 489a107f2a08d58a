"""The report: whole, readable as XML where it is SVG, and without anything from elsewhere."""

from __future__ import annotations

import re
import xml.etree.ElementTree as xml
from html.parser import HTMLParser

import pytest

from avatar_server.config import LoadTestSettings
from avatar_server.loadtest.document import document
from avatar_server.loadtest.plots import histogram, line_plot, nice_ticks, stacked_plot
from avatar_server.loadtest.record import Kill, RunRecord
from avatar_server.loadtest.report import report
from avatar_server.loadtest.results import Turn
from avatar_server.loadtest.verdict import verdict
from tests.loadtest.records import START, record


def page(run: RunRecord) -> str:
    figures = document(run, LoadTestSettings())
    figures["verdict"] = verdict(figures, LoadTestSettings(), 1_200)
    return report(figures)


class _Balance(HTMLParser):
    """Notes tags that are opened and not closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_report_shows_every_plot_and_loads_nothing() -> None:
    run = record(4)
    run.kills.append(Kill("avatar 2", 7, START + 4, 1, back_at=START + 5))
    text = page(run)
    balance = _Balance()
    balance.feed(text)
    assert balance.open == []
    pictures = re.findall(r"<svg.*?</svg>", text, flags=re.S)
    assert len(pictures) == 6
    for picture in pictures:
        xml.fromstring(picture)
    assert "avatar 2 killed" in text
    assert "session 4" in text
    assert not re.search(r"(src|href)=|url\(|@import|<script", text)


def test_words_of_viewers_cannot_become_markup() -> None:
    run = record()
    run.turns.append(
        Turn(
            session=0,
            text="<b>&",
            said_at=START + 3,
            ended_at=START + 4,
            answered_at=START + 5,
            heard="<script>alert(1)</script>",
        )
    )
    text = page(run)
    assert "<script>" not in text
    assert "&lt;script&gt;" in text


def test_a_run_without_viewers_has_a_report_too() -> None:
    text = page(RunRecord(1, 1, 1, start=START, end=START + 10))
    assert "nothing was measured" in text


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 10, [0, 2, 4, 6, 8, 10]),
        (0, 1_234, [0, 250, 500, 750, 1_000, 1_250]),
        (-30, 95, [-50, -25, 0, 25, 50, 75, 100]),
        (0, 0.4, [0, 0.1, 0.2, 0.3, 0.4]),
    ],
)
def test_ticks_are_round_and_hold_all_values(
    low: float, high: float, expected: list[float]
) -> None:
    assert nice_ticks(low, high) == expected


def test_one_value_and_equal_values_can_be_drawn() -> None:
    for plot in (
        histogram("h", [5.0], x_name="ms"),
        histogram("h", [-200.0, -100.0], x_name="ms"),
        line_plot("l", {"a": [(1.0, 30.0)]}, x_name="s", y_name=""),
        line_plot("l", {"a": [(0.0, 30.0), (1.0, None), (2.0, 30.0)]}, x_name="s", y_name=""),
        stacked_plot("s", [0, 1], {"a": [0, 0]}, x_name="s", y_name="", y_most=1),
    ):
        picture = re.findall(r"<svg.*?</svg>", plot, flags=re.S)
        xml.fromstring(picture[0])
        assert "nan" not in plot
