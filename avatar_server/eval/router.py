"""How often a router is right, where it is not, how sure it may be, and how long it takes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from avatar_server.inference.llm.router import Decision, Example, Router, load_examples

CALIBRATION_BINS = 10

Progress = Callable[[str, int, int], None]
"""Called with the engine's name, rows done and rows in all."""


class Elsewhere:
    """Marks routers whose work is not the calling thread's."""


@dataclass(frozen=True, slots=True)
class Judged:
    """A row and what was decided about it."""

    example: Example
    decision: Decision
    seconds: float
    """CPU time of the deciding thread; where a router decides elsewhere, time that passed."""

    @property
    def route_right(self) -> bool:
        return self.decision.route == self.example.route

    @property
    def right(self) -> bool:
        """Route and continuation both."""
        return self.route_right and self.decision.continuation == self.example.continuation


def eval_router(
    dataset: Path | Sequence[Example],
    engines: Mapping[str, Router],
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Figures by engine's name. Raises `DatasetError` for a file that cannot be used.

    A decision is right when route and continuation are both right. Latency is CPU time of the
    deciding thread, so that other work on the machine does not count; of a language model, which
    works elsewhere, it is the time that passes.
    """
    examples = load_examples(dataset, lenient=True) if isinstance(dataset, Path) else list(dataset)
    if not examples:
        raise ValueError("there are no rows to evaluate on")
    results: dict[str, Any] = {}
    for name, router in engines.items():
        judged = []
        for done, example in enumerate(examples, 1):
            judged.append(judge(router, example))
            if progress is not None:
                progress(name, done, len(examples))
        results[name] = figures(judged)
    return results


def judge(router: Router, example: Example) -> Judged:
    """Let the router decide about one row."""
    clock = time.perf_counter if isinstance(router, Elsewhere) else time.thread_time
    start = clock()
    decision = router.decide(example.text, example.history)
    return Judged(example, decision, clock() - start)


def figures(judged: Sequence[Judged]) -> dict[str, Any]:
    """What `--json` holds for one engine. Shares are 0..1, times are milliseconds."""
    continuing = [item for item in judged if item.example.continuation]
    milliseconds = np.array([item.seconds * 1000 for item in judged])
    labels, table = confusion(judged)
    by_language = {}
    for lang in sorted({item.example.lang for item in judged}):
        of_lang = [item for item in judged if item.example.lang == lang]
        by_language[lang] = {
            "n": len(of_lang),
            "accuracy": _share(of_lang),
            "continuation_accuracy": _share([i for i in of_lang if i.example.continuation]),
        }
    asked = [item for item in judged if item.decision.ask_back]
    return {
        "accuracy": _share(judged),
        "continuation_accuracy": _share(continuing),
        "route_accuracy": float(np.mean([item.route_right for item in judged])),
        "macro_f1": macro_f1(table),
        "n": len(judged),
        "n_continuation": len(continuing),
        "latency_ms": {
            "p50": float(np.percentile(milliseconds, 50)),
            "p95": float(np.percentile(milliseconds, 95)),
        },
        "ece": calibration_error(judged),
        "calibration": reliability(judged),
        "ask_back": {
            "share": len(asked) / len(judged),
            "accuracy_of_the_rest": _share([i for i in judged if not i.decision.ask_back]),
        },
        "by_language": by_language,
        "confusion": {"labels": labels, "rows_are_true": table.tolist()},
    }


def confusion(judged: Sequence[Judged]) -> tuple[list[str], np.ndarray[Any, Any]]:
    """Labels, and how often each (row) was taken for each (column). "+" marks continuations."""
    pairs = [
        (
            item.example.route + "+" * item.example.continuation,
            item.decision.route + "+" * item.decision.continuation,
        )
        for item in judged
    ]
    labels = sorted({label for pair in pairs for label in pair})
    table = np.zeros((len(labels), len(labels)), np.int64)
    for true, decided in pairs:
        table[labels.index(true), labels.index(decided)] += 1
    return labels, table


def macro_f1(table: np.ndarray[Any, Any]) -> float:
    """Mean F1 over the labels that occur in truth, continuations apart."""
    hits = np.diag(table).astype(float)
    f1 = 2 * hits / np.maximum(table.sum(0) + table.sum(1), 1)
    return float(f1[table.sum(1) > 0].mean())


def reliability(judged: Sequence[Judged]) -> list[dict[str, float]]:
    """For each bin of confidence that has any: how sure, how often right, and how many."""
    sure = np.array([item.decision.confidence for item in judged])
    right = np.array([item.right for item in judged], float)
    bins = np.minimum((sure * CALIBRATION_BINS).astype(int), CALIBRATION_BINS - 1)
    return [
        {
            "confidence": float(sure[bins == number].mean()),
            "accuracy": float(right[bins == number].mean()),
            "n": int((bins == number).sum()),
        }
        for number in range(CALIBRATION_BINS)
        if (bins == number).any()
    ]


def calibration_error(judged: Sequence[Judged]) -> float:
    """Expected calibration error: mean gap between confidence and share right, ten even bins.

    Naeini et al., "Obtaining Well Calibrated Probabilities Using Bayesian Binning" (2015).
    """
    return sum(
        abs(each["confidence"] - each["accuracy"]) * each["n"] / len(judged)
        for each in reliability(judged)
    )


def _share(judged: Sequence[Judged]) -> float | None:
    return float(np.mean([item.right for item in judged])) if judged else None
