"""The comparison A B A B."""

from __future__ import annotations

from typing import Any

from avatar_server.config import LoadTestSettings
from avatar_server.loadtest.compare import compare
from avatar_server.loadtest.document import document
from avatar_server.loadtest.report import report
from avatar_server.loadtest.verdict import verdict
from tests.loadtest.records import record


def test_both_variants_run_twice_in_turn_and_their_chief_figures_are_kept() -> None:
    asked: list[list[str]] = []

    def run(changed: list[str]) -> dict[str, Any]:
        asked.append(changed)
        made = record(len(asked))
        figures = document(made, LoadTestSettings())
        figures["verdict"] = verdict(figures, LoadTestSettings(), 1_200)
        return figures

    figures = compare(run, ["scheduler.policy=fifo"])
    assert asked == [[], ["scheduler.policy=fifo"], [], ["scheduler.policy=fifo"]]
    runs = figures["compare"]["runs"]
    assert [each["variant"] for each in runs] == ["A", "B", "A", "B"]
    assert [each["turns"] for each in runs] == [2, 4, 6, 8]
    assert figures["sessions"] == 1
    assert runs[0]["voice_to_voice_p95_ms"] == figures["turns"]["voice_to_voice_ms"]["p95"]
    assert "scheduler.policy=fifo" in report(figures)
