"""Figures on labelled data."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

from avatar_server.eval import cli, engines
from avatar_server.eval.drawing import comparison, confusion_picture
from avatar_server.eval.router import eval_router
from avatar_server.inference.llm.router import Decision, Example, Turn

BEFORE = (Turn("user", "play jazz", "command"),)
ROWS = [
    Example("en-1", "en", (), "hello", "small_talk", False),
    Example("en-2", "en", BEFORE, "louder", "command", True, "play jazz louder"),
    Example("en-3", "en", BEFORE, "stop the rain", "command", False),
    Example("ja-1", "ja", (), "なぜ", "unclear", False),
]


class Fixed:
    """Decides the same for everything."""

    def __init__(self, route: str, continuation: bool, confidence: float) -> None:
        self.decision = (route, confidence, continuation)

    def decide(self, text: str, history: Sequence[Turn] = ()) -> Decision:
        route, confidence, continuation = self.decision
        return Decision(route, confidence, continuation, text, confidence < 0.5)


class Perfect:
    """Knows the answers."""

    def decide(self, text: str, history: Sequence[Turn] = ()) -> Decision:
        row = next(row for row in ROWS if row.text == text)
        return Decision(row.route, 1.0, row.continuation, text)


def test_a_perfect_router_is_perfect() -> None:
    figures = eval_router(ROWS, {"perfect": Perfect()})["perfect"]
    assert figures["accuracy"] == figures["continuation_accuracy"] == figures["macro_f1"] == 1
    assert figures["ece"] == 0
    assert (figures["n"], figures["n_continuation"]) == (4, 1)
    assert 0 <= figures["latency_ms"]["p50"] <= figures["latency_ms"]["p95"]


def test_right_means_route_and_continuation_both() -> None:
    figures = eval_router(ROWS, {"fixed": Fixed("command", True, 0.75)})["fixed"]
    assert figures["accuracy"] == 0.25
    assert figures["route_accuracy"] == 0.5
    assert figures["continuation_accuracy"] == 1
    assert figures["ece"] == pytest.approx(0.5)
    assert figures["by_language"]["ja"] == {"n": 1, "accuracy": 0, "continuation_accuracy": None}
    table = np.array(figures["confusion"]["rows_are_true"])
    labels = figures["confusion"]["labels"]
    assert table.sum() == 4
    assert table[labels.index("small_talk"), labels.index("command+")] == 1
    # command+: precision 1/4, recall 1; three labels were never found.
    assert figures["macro_f1"] == pytest.approx((2 * 0.25 / 1.25) / 4)


def test_asking_back_is_counted_apart() -> None:
    figures = eval_router(ROWS, {"unsure": Fixed("command", True, 0.3)})["unsure"]
    assert figures["ask_back"] == {"share": 1.0, "accuracy_of_the_rest": None}


def test_no_rows_is_an_error() -> None:
    with pytest.raises(ValueError, match="no rows"):
        eval_router([], {"perfect": Perfect()})


def test_engines_stand_side_by_side() -> None:
    results = eval_router(ROWS, {"perfect": Perfect(), "fixed": Fixed("stop", False, 0.5)})
    console = Console(record=True, width=120, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(comparison(results))
    text = console.export_text()
    assert "perfect" in text
    assert "100.0%" in text
    assert "0.0%" in text


def test_the_picture_is_coloured_where_the_counts_are() -> None:
    one = confusion_picture(eval_router(ROWS, {"perfect": Perfect()}))
    two = confusion_picture(
        eval_router(ROWS, {"perfect": Perfect(), "fixed": Fixed("stop", False, 0.5)})
    )
    assert two.shape[1] > one.shape[1]
    green = (one[..., 1] > one[..., 2].astype(int) + 60).sum()
    assert green > 3 * 50 * 50


def test_the_command_writes_figures_and_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(engines.ENGINES, "embedding", lambda settings, stack: Perfect())  # type: ignore[arg-type]
    data = tmp_path / "rows.jsonl"
    data.write_text("\n".join(json.dumps(as_row(row)) for row in ROWS), encoding="utf-8")
    figures, picture = tmp_path / "figures.json", tmp_path / "table.png"
    result = CliRunner().invoke(
        cli.eval_app,
        ["router", "--dataset", str(data), "--json", str(figures), "--png", str(picture)],
    )
    assert result.exit_code == 0, result.output
    written = json.loads(figures.read_text())
    assert (written["accuracy"], written["n"], written["n_continuation"]) == (1, 4, 1)
    assert set(written["latency_ms"]) == {"p50", "p95"}
    assert cv2.imread(str(picture)) is not None


def as_row(row: Example) -> dict[str, object]:
    fields: dict[str, object] = {
        "id": row.id,
        "lang": row.lang,
        "history": [{"role": t.role, "text": t.text, "route": t.route} for t in row.history],
        "text": row.text,
        "route": row.route,
        "continuation": row.continuation,
    }
    return fields | ({"resolved": row.resolved} if row.resolved else {})


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--engine", "oracle"], "unknown engine"),
        (["--engine", "embedding,oracle"], "unknown engine"),
        (["--set", "llm.engine"], "key.path=value"),
        (["--engine", "vllm", "--set", "llm.engine=openai"], "llm.base_url"),
        (["--dataset", "absent.jsonl"], "cannot read"),
        (["--json", "/no/such/folder/x.json"], "no folder"),
    ],
)
def test_wrong_use_is_said_in_words(
    arguments: list[str], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(engines.ENGINES, "embedding", lambda settings, stack: Perfect())  # type: ignore[arg-type]
    result = CliRunner().invoke(cli.eval_app, ["router", *arguments])
    assert result.exit_code == 2
    assert words in result.output


def test_several_engines_stand_side_by_side(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(engines.ENGINES, "embedding", lambda settings, stack: Perfect())  # type: ignore[arg-type]
    monkeypatch.setitem(engines.ENGINES, "head", lambda settings, stack: Fixed("stop", False, 0.5))  # type: ignore[arg-type]
    data, figures = tmp_path / "rows.jsonl", tmp_path / "figures.json"
    data.write_text("\n".join(json.dumps(as_row(row)) for row in ROWS), encoding="utf-8")
    arguments = ["--dataset", str(data), "--json", str(figures), "--engine", "embedding,head"]
    result = CliRunner().invoke(cli.eval_app, ["router", *arguments, "--limit", "2"])
    assert result.exit_code == 0, result.output
    written = json.loads(figures.read_text())
    assert {name: each["n"] for name, each in written.items()} == {"embedding": 2, "head": 2}
    assert written["embedding"]["calibration"] == [{"confidence": 1.0, "accuracy": 1.0, "n": 2}]


def test_data_of_others_may_leave_out_what_is_not_needed(tmp_path: Path) -> None:
    row = {"id": "1", "lang": "en", "text": "louder", "route": "command", "continuation": True}
    data = tmp_path / "rows.jsonl"
    data.write_text(json.dumps({**row, "history": []}) + "\n" + json.dumps({**row, "history": []}))
    assert eval_router(data, {"fixed": Fixed("command", True, 1.0)})["fixed"]["accuracy"] == 1


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "line 2"),
        ('{"id": "2"}', "line 2: 'continuation' is missing"),
        (
            '{"id": "2", "lang": "en", "text": "x", "route": "sing", "continuation": false}',
            "none of",
        ),
        ('{"id": "2", "lang": "en", "text": "x", "route": "stop", "continuation": 1}', "true or"),
        (
            '{"id": "2", "lang": "en", "text": "x", "route": "stop", "continuation": false, '
            '"history": "none"}',
            "line 2: 'history' must be a list",
        ),
        ("[]", "line 2: a row must be an object"),
    ],
)
def test_a_bad_row_is_named_by_its_line(tmp_path: Path, line: str, words: str) -> None:
    data = tmp_path / "rows.jsonl"
    data.write_text(json.dumps(as_row(ROWS[0])) + "\n" + line + "\n", encoding="utf-8")
    result = CliRunner().invoke(cli.eval_app, ["router", "--dataset", str(data)])
    assert result.exit_code == 2
    assert words in " ".join(result.output.split())
