"""What work costs is learned from doing it."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from avatar_server.inference.scheduler import CostModel, Prior


def test_before_anything_was_seen_the_prior_is_all_there_is() -> None:
    costs = CostModel({"stt": Prior(0.1, 0.05)})
    assert costs.expected_s("stt", 2.0) == pytest.approx(0.2)
    assert costs.predict_s("stt", 2.0) > 0.2
    assert costs.predict_s("unknown") > 0
    assert costs.stages() == {}


def test_one_observation_moves_the_level_and_keeps_the_shape() -> None:
    costs = CostModel({"stt": Prior(0.1, 0.05)})
    costs.observe("stt", 2.0, 2.0)
    assert costs.expected_s("stt", 2.0) == pytest.approx(2.0)
    assert costs.expected_s("stt", 4.0) == pytest.approx(3.0)


def test_a_line_is_found_whatever_the_prior_said() -> None:
    costs = CostModel({"stt": Prior(5.0, 0.0)})
    random_ = random.Random(1)
    for _ in range(300):
        size = random_.uniform(1, 10)
        costs.observe("stt", size, 0.2 + 0.03 * size)
    assert costs.expected_s("stt", 1.0) == pytest.approx(0.23, rel=0.1)
    assert costs.expected_s("stt", 10.0) == pytest.approx(0.5, rel=0.1)


def test_95_of_100_jobs_stay_below_what_is_predicted() -> None:
    costs = CostModel()
    random_ = random.Random(2)
    below = 0
    for number in range(2_000):
        size = random_.uniform(1, 10)
        seconds = (0.1 + 0.02 * size) * random_.lognormvariate(0, 0.3)
        if number >= 200:
            below += seconds <= costs.predict_s("s", size)
        costs.observe("s", size, seconds)
    assert 0.92 <= below / 1_800 <= 0.98


def test_a_machine_that_becomes_slower_is_noticed_within_some_jobs() -> None:
    costs = CostModel()
    for _ in range(100):
        costs.observe("s", 1.0, 0.1)
    for _ in range(60):
        costs.observe("s", 1.0, 0.4)
    assert costs.expected_s("s") == pytest.approx(0.4, rel=0.25)


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(0, 60)), max_size=40), st.floats(0, 1_000))
def test_predictions_are_never_negative_nor_below_the_mean(
    seen: list[tuple[float, float]], size: float
) -> None:
    costs = CostModel()
    for at, seconds in seen:
        costs.observe("s", at, seconds)
    assert 0 <= costs.expected_s("s", size) <= costs.predict_s("s", size) < float("inf")


def test_impossible_observations_are_ignored() -> None:
    costs = CostModel()
    for size, seconds in ((-1.0, 1.0), (1.0, -1.0), (1.0, float("nan")), (1.0, float("inf"))):
        costs.observe("s", size, seconds)
    assert costs.seen("s") == 0


def test_what_was_learned_can_be_kept_and_soon_gives_way_to_what_is_seen_now() -> None:
    costs = CostModel()
    for size in range(1, 60):
        costs.observe("s", size, 0.1 * size)
    later = CostModel()
    later.restore(json.loads(json.dumps(costs.snapshot())))
    assert later.expected_s("s", 10.0) == pytest.approx(costs.expected_s("s", 10.0), rel=0.25)
    assert later.seen("s") == 0
    for _ in range(30):
        later.observe("s", 10.0, 3.0)
    assert later.expected_s("s", 10.0) == pytest.approx(3.0, rel=0.25)


@pytest.mark.parametrize(
    "broken",
    [
        {"s": 3},
        {"s": {"weight": 1.0}},
        {"s": {"weight": 1.0, "sums": [1, 2], "ratios": []}},
        {"s": {"weight": 0.0, "sums": [1, 2, 3, 4, 5], "ratios": []}},
        {"s": {"weight": 1.0, "sums": [1, 2, 3, 4, float("nan")], "ratios": []}},
        [1, 2],
    ],
)
def test_a_broken_snapshot_changes_nothing(broken: object) -> None:
    costs = CostModel()
    with pytest.raises(ValueError, match=r"snapshot|impossible|could not convert"):
        costs.restore(broken)  # type: ignore[arg-type]
    assert costs.stages() == {}
