"""Rates, freezes, offsets and quantiles."""

from __future__ import annotations

import pytest

from avatar_server.loadtest.figures import (
    AudibleTimes,
    av_offsets_ms,
    fps_by_second,
    freezes,
    intervals_ms,
    missed_frames,
    percentile,
    quantiles,
    stage_quantiles,
    within,
)

STEADY = [n / 30 for n in range(301)]


def test_steady_pictures_are_thirty_in_every_second_wherever_it_begins() -> None:
    for start in (0.0, 0.011, 0.0333):
        assert fps_by_second(STEADY, start, start + 9) == pytest.approx([30.0] * 9, abs=0.01)


def test_one_lost_picture_is_seen_in_its_second_only() -> None:
    shown = [at for at in STEADY if at != STEADY[100]]
    rates = fps_by_second(shown, 0.01, 9.01)
    assert rates[3] == pytest.approx(29.0, abs=0.05)
    assert [rate for n, rate in enumerate(rates) if n != 3] == pytest.approx([30.0] * 8, abs=0.05)


def test_a_second_without_pictures_has_none() -> None:
    shown = [at for at in STEADY if not 3 <= at < 5]
    assert fps_by_second(shown, 0.0, 8.0)[3:5] == [0.0, 0.0]
    assert fps_by_second([], 0.0, 2.0) == [0.0, 0.0]


def test_a_freeze_is_longer_than_the_bound_and_not_as_long() -> None:
    assert freezes([33.3, 100.0, 99.9], 100.0) == []
    assert freezes([33.3, 100.1], 100.0) == [100.1]


def test_an_interval_of_exactly_100_ms_in_a_stream_is_no_freeze() -> None:
    shown = [0.0, 0.1, 0.2, 0.301, 0.4]
    steps = intervals_ms(shown, 0.0, 0.4)
    assert freezes(steps, 100.0) == pytest.approx([101.0])


def test_a_picture_that_stands_at_the_end_counts_as_long_as_it_stood() -> None:
    assert max(intervals_ms([0.0, 0.033, 0.066], 0.0, 1.0)) == pytest.approx(934.0)
    assert max(intervals_ms([0.0, 0.033, 0.066, 1.01], 0.0, 1.0)) == pytest.approx(33.0)


def test_pictures_before_the_window_begin_its_first_interval() -> None:
    assert intervals_ms([0.0, 0.5, 0.6, 2.0], 0.4, 0.7) == pytest.approx([500.0, 100.0])


def test_no_pictures_at_all_are_one_long_interval() -> None:
    assert intervals_ms([], 1.0, 3.0) == [2_000.0]


def test_frames_that_the_stream_leaves_out_are_counted_by_its_own_step() -> None:
    thirty = [n * 3_000 for n in range(50)]
    assert missed_frames(thirty) == 0
    assert missed_frames([pts for pts in thirty if pts not in (9_000, 12_000, 60_000)]) == 3
    assert missed_frames([n * 6_000 for n in range(50)]) == 0
    assert missed_frames([]) == 0


def test_percentiles_are_interpolated() -> None:
    assert quantiles([1.0, 2.0, 3.0, 4.0, 5.0]) == {"p50": 3.0, "p95": 4.8, "max": 5.0}
    assert quantiles([7.0]) == {"p50": 7.0, "p95": 7.0, "max": 7.0}
    assert quantiles([]) == {"p50": None, "p95": None, "max": None}
    assert percentile([10.0, 20.0], 5) == 10.5
    assert percentile([], 5) is None


def test_lengths_of_stages_are_taken_over_the_turns_that_have_them() -> None:
    turns = [{"stt": (0.0, 100.0), "llm": (100.0, 150.0)}, {"stt": (50.0, 250.0)}]
    stages = stage_quantiles(turns)
    assert stages["stt"]["p50"] == 150.0
    assert stages["llm"] == {"p50": 50.0, "p95": 50.0, "max": 50.0}


def test_a_window_takes_its_beginning_and_leaves_its_end() -> None:
    times = [0.0, 1.0, 2.0, 3.0]
    assert times[within(times, 1.0, 3.0)] == [1.0, 2.0]


def test_pictures_are_compared_with_the_sound_of_the_same_moment() -> None:
    audio = [(n * 0.02, n * 0.02 + 0.005) for n in range(100)]
    video = [(n / 30, n / 30 + 0.017) for n in range(45)]
    assert av_offsets_ms(video, audio) == pytest.approx([12.0] * 45)
    assert av_offsets_ms([(5.0, 5.0)], audio) == []
    assert av_offsets_ms(video, []) == []


def heard(*spans: tuple[float, float]) -> AudibleTimes:
    times = AudibleTimes()
    for first, last in spans:
        times.add(first, last)
    return times


def test_sound_is_found_after_a_moment_and_inside_a_piece() -> None:
    times = heard((1.0, 1.02), (1.02, 1.04), (3.0, 3.02))
    assert times.first_after(0.0) == 1.0
    assert times.first_after(1.01) == 1.01
    assert times.first_after(1.04) == 3.0
    assert times.first_after(3.5) is None
    assert times.last == 3.02
    assert times.last_before(2.0) == 1.04
    assert times.last_before(0.5) is None


def test_a_reply_has_stopped_when_it_has_been_silent_long_enough() -> None:
    times = heard((0.0, 0.5), (0.6, 0.9), (1.0, 1.2), (2.0, 2.5))
    assert times.stop_after(0.55, 0.25, until=2.2) == 1.2
    assert times.stop_after(0.55, 0.25, until=1.4) is None
    assert times.stop_after(0.55, 0.25, until=1.45) == 1.2


def test_where_it_was_silent_before_there_is_nothing_to_stop() -> None:
    times = heard((0.0, 0.5), (2.0, 2.5))
    assert times.stop_after(0.8, 0.25, until=1.5) == 0.8
