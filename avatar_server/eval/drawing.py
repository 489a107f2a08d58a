"""The figures as people look at them: a table side by side, and a picture of the confusions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from rich.table import Table

CELL_PX, MARGIN_PX, TITLE_PX = 64, 150, 44
_INK, _PAPER, _GOOD, _BAD = (40, 40, 40), (255, 255, 255), (150, 190, 90), (70, 110, 230)


def comparison(results: Mapping[str, Mapping[str, Any]]) -> Table:
    """One column an engine."""
    table = Table(title="Routing")
    table.add_column("")
    for name in results:
        table.add_column(name, justify="right")
    engines = list(results.values())

    def row(title: str, cells: list[str]) -> None:
        table.add_row(title, *cells)

    row("utterances", [f"{e['n']} ({e['n_continuation']} continuations)" for e in engines])
    row("right (route and continuation)", [_percent(e["accuracy"]) for e in engines])
    row("right on continuations", [_percent(e["continuation_accuracy"]) for e in engines])
    row("route alone right", [_percent(e["route_accuracy"]) for e in engines])
    row("macro-F1", [f"{e['macro_f1']:.3f}" for e in engines])
    row("calibration error", [f"{e['ece']:.3f}" for e in engines])
    row("asks back", [_percent(e["ask_back"]["share"]) for e in engines])
    row("right of the rest", [_percent(e["ask_back"]["accuracy_of_the_rest"]) for e in engines])
    for lang in sorted({lang for e in engines for lang in e["by_language"]}):
        shares = [e["by_language"].get(lang, {}) for e in engines]
        row(
            f"{lang}: right / on continuations",
            [
                f"{_percent(s.get('accuracy'))} / {_percent(s.get('continuation_accuracy'))}"
                for s in shares
            ],
        )
    row(
        "ms p50 / p95 (CPU, or passed)",
        [f"{e['latency_ms']['p50']:.1f} / {e['latency_ms']['p95']:.1f}" for e in engines],
    )
    return table


def confusion_picture(results: Mapping[str, Mapping[str, Any]]) -> NDArray[np.uint8]:
    """The engines' confusion tables side by side, BGR of shape (height, width, 3).

    A row is what an utterance was, a column what it was taken for; shades are shares of a row.
    """
    tables = [_picture(name, result) for name, result in results.items()]
    height = max(table.shape[0] for table in tables)
    return np.hstack(
        [
            cv2.copyMakeBorder(t, 0, height - t.shape[0], 0, 0, cv2.BORDER_CONSTANT, value=_PAPER)
            for t in tables
        ]
    )


def write_picture(path: Path, results: Mapping[str, Mapping[str, Any]]) -> None:
    """As PNG. Raises `OSError` where the file cannot be written."""
    done, encoded = cv2.imencode(".png", confusion_picture(results))
    if not done:
        raise OSError(f"cannot encode {path} as PNG")
    path.write_bytes(encoded.tobytes())


def _picture(name: str, result: Mapping[str, Any]) -> NDArray[np.uint8]:
    labels = result["confusion"]["labels"]
    table = np.array(result["confusion"]["rows_are_true"])
    size = len(labels) * CELL_PX
    canvas = np.full((TITLE_PX + MARGIN_PX + size + 16, MARGIN_PX + size + 16, 3), 255, np.uint8)
    top, left = TITLE_PX + MARGIN_PX, MARGIN_PX
    _write(canvas, f"{name}: {_percent(result['accuracy'])} right", (12, 30), 0.7)
    _write(canvas, "is (row) / taken for (column)", (12, TITLE_PX + 14), 0.42)
    totals = np.maximum(table.sum(axis=1, keepdims=True), 1)
    for row, label in enumerate(labels):
        _write(canvas, label, (10, top + row * CELL_PX + CELL_PX // 2 + 5), 0.5)
        for column in range(len(labels)):
            share = float(table[row, column] / totals[row, 0])
            tint = np.array(_GOOD if row == column else _BAD) * share + 255 * (1 - share)
            corner = (left + column * CELL_PX, top + row * CELL_PX)
            opposite = (corner[0] + CELL_PX - 2, corner[1] + CELL_PX - 2)
            cv2.rectangle(canvas, corner, opposite, tint.tolist(), cv2.FILLED)
            if table[row, column]:
                _centred(canvas, str(table[row, column]), corner)
    strip = np.full((size, MARGIN_PX, 3), 255, np.uint8)
    for column, label in enumerate(labels):
        _write(strip, label, (10, column * CELL_PX + CELL_PX // 2 + 5), 0.5)
    # Column names read upwards: written as rows, then turned a quarter.
    turned = cv2.rotate(strip, cv2.ROTATE_90_COUNTERCLOCKWISE)
    canvas[TITLE_PX + 20 : top, left : left + size] = turned[20:]
    return canvas


def _write(canvas: NDArray[np.uint8], text: str, at: tuple[int, int], scale: float) -> None:
    cv2.putText(canvas, text, at, cv2.FONT_HERSHEY_SIMPLEX, scale, _INK, 1, cv2.LINE_AA)


def _centred(canvas: NDArray[np.uint8], text: str, corner: tuple[int, int]) -> None:
    (width, height), _ = cv2.getTextSize(text, cv2.FONT_HERSHEY_SIMPLEX, 0.5, 1)
    at = (corner[0] + (CELL_PX - width) // 2, corner[1] + (CELL_PX + height) // 2)
    _write(canvas, text, at, 0.5)


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share * 100:.1f}%"
