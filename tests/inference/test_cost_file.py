"""What was learned of the costs outlives the process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from avatar_server.clock import ManualClock
from avatar_server.config import settings_from_values
from avatar_server.inference.cost_file import cost_file, load_costs, save_costs
from avatar_server.inference.scheduler import Engine
from avatar_server.inference.workers import Workers


@pytest.fixture
def workers() -> Iterator[Workers]:
    made = Workers(ManualClock(), [Engine("stt")])
    yield made
    made.close(2.0)


def test_the_next_run_begins_with_what_this_one_learned(tmp_path: Path, workers: Workers) -> None:
    path = tmp_path / "costs" / "here.json"
    for _ in range(10):
        workers.observe("stt", 3.0, 0.7)
    save_costs(path, workers)
    later = Workers(ManualClock(), [Engine("stt")])
    try:
        load_costs(path, later)
        assert later.costs.expected_s("stt", 3.0) == pytest.approx(0.7, rel=0.05)
    finally:
        later.close(2.0)
    assert [p.name for p in path.parent.iterdir()] == ["here.json"]


@pytest.mark.parametrize("text", ["", "[]", '{"stt": 1}', "\x00"])
def test_a_broken_file_is_no_error(tmp_path: Path, workers: Workers, text: str) -> None:
    path = tmp_path / "costs.json"
    path.write_text(text)
    load_costs(path, workers)
    assert workers.costs.stages() == {}
    load_costs(tmp_path / "missing.json", workers)


def test_other_models_have_another_file_and_the_key_of_an_endpoint_does_not_matter() -> None:
    base = settings_from_values({})
    other = settings_from_values({"stt": {"model": "whisper-base.en"}})
    keyed = settings_from_values({"llm": {"api_key": "secret"}})
    assert cost_file(base) != cost_file(other)
    assert cost_file(base) == cost_file(keyed)


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path, workers: Workers) -> None:
    workers.observe("stt", 3.0, 0.7)
    blocked = tmp_path / "file"
    blocked.write_text("")
    save_costs(blocked / "costs.json", workers)
    assert blocked.read_text() == ""
