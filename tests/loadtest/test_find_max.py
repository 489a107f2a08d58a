"""The search for the most sessions."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from avatar_server.loadtest.find_max import find_max


def search(carries: int, first: int = 1, most: int = 256, gpus: int = 0) -> dict[str, Any]:
    """Search on a machine that carries so many; returns `find_max`, with the `runs` it took."""
    runs: list[int] = []

    async def run(sessions: int) -> dict[str, Any]:
        runs.append(sessions)
        fine = sessions <= carries
        return {
            "sessions": sessions,
            "video": {"fps_p5": 30.0},
            "turns": {"voice_to_voice_ms": {"p50": 1.0, "p95": 2.0}},
            "gpu": [{}] * gpus,
            "verdict": {
                "pass": fine,
                "reasons": [] if fine else ["too slow"],
                "binding": "stage:stt" if fine else "cpu",
            },
        }

    figures = asyncio.run(find_max(run, first, most))
    assert len(runs) == len(set(runs))
    if carries >= 1:
        assert figures["sessions"] == figures["find_max"]["sessions"]
    return {**figures["find_max"], "runs": runs}


@pytest.mark.parametrize("carries", [1, 2, 3, 4, 5, 7, 8, 13, 100])
@pytest.mark.parametrize("first", [1, 3, 4])
def test_the_border_is_found_exactly(carries: int, first: int) -> None:
    found = search(carries, first)
    assert found["sessions"] == carries
    assert found["binding"] == "cpu"
    assert found["reasons"] == ["too slow"]
    assert len(found["runs"]) <= 16


def test_a_machine_that_carries_none_is_told() -> None:
    found = search(0, first=4)
    assert found["sessions"] == 0
    assert found["runs"] == [4, 2, 1]


def test_the_search_ends_at_the_most_it_may_make() -> None:
    found = search(1_000, most=16)
    assert found["sessions"] == 16
    assert found["binding"] is None


def test_sessions_are_also_given_for_each_gpu() -> None:
    assert search(6, gpus=2)["per_gpu"] == 3.0
    assert search(6)["per_gpu"] is None
