"""Pacing, in virtual time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from avatar_server.avatar.encodes import is_repeat
from avatar_server.avatar.pacing import AudioPacer, FramePacer, KeyframePolicy, MediaTimeline


def test_eight_hours_of_frames_and_sound_do_not_drift_apart() -> None:
    frames, audio = FramePacer(30), AudioPacer()
    hours = 8 * 3600
    frames.skip_to(hours - 1)
    step = 0.004
    seen_frames: list[tuple[float, int]] = []
    now = hours - 1.0
    audio.take(now)
    while now < hours:
        if (tick := frames.take(now)) is not None:
            seen_frames.append((now, frames.timestamp(tick.number)))
        if (block := audio.take(now)) is not None:
            assert 0 <= now - block.number * 0.02 < step + 1e-6
        now += step
    for at, timestamp in seen_frames:
        assert 0 <= at - timestamp / 90_000 < step + 1e-6
    assert 29 <= len(seen_frames) <= 31


def test_a_frame_is_not_made_before_its_time() -> None:
    pacer = FramePacer(30)
    assert pacer.take(0.0) == (0, 0)
    assert pacer.take(0.033) is None
    assert pacer.take(1 / 30) == (1, 0)


def test_a_stall_drops_frames_before_they_are_made_and_queues_none() -> None:
    pacer = FramePacer(30)
    pacer.take(0.0)
    tick = pacer.take(0.5)
    assert tick == (15, 14)
    assert pacer.take(0.5) is None


def test_a_frame_late_by_less_than_a_period_is_still_made() -> None:
    pacer = FramePacer(30)
    pacer.take(0.0)
    assert pacer.take(2.9 / 30) == (1, 0)
    assert pacer.take(2.9 / 30) == (2, 0)


def test_sound_catches_up_after_a_short_stall() -> None:
    pacer = AudioPacer()
    pacer.take(0.0)
    made = []
    while (tick := pacer.take(0.1)) is not None:
        made.append(tick)
    assert [tick.number for tick in made] == [1, 2, 3, 4, 5]
    assert all(tick.skipped == 0 for tick in made)


def test_sound_later_than_that_is_left_out_and_told() -> None:
    pacer = AudioPacer()
    pacer.take(0.0)
    tick = pacer.take(1.0)
    assert tick == (50, 49)
    assert pacer.take(1.0) is None


@given(st.lists(st.floats(0, 0.7), max_size=60), st.sampled_from([15, 24, 25, 30, 60]))
def test_whatever_the_stalls_numbers_only_rise_and_add_up(steps: list[float], fps: int) -> None:
    frames, audio, now = FramePacer(fps), AudioPacer(), 0.0
    next_frame = next_block = 0
    for step in steps:
        now += step
        while (tick := frames.take(now)) is not None:
            assert tick.number == next_frame + tick.dropped
            assert tick.number / fps <= now + 1e-6
            assert now - tick.number / fps < 2 / fps + 1e-6
            next_frame = tick.number + 1
        while (block := audio.take(now)) is not None:
            assert block.number == next_block + block.skipped
            assert now - block.number * 0.02 <= 0.22 + 1e-6
            next_block = block.number + 1


def test_many_requests_are_answered_by_one_keyframe_per_interval() -> None:
    policy = KeyframePolicy(0.5, 10.0)
    keyframes = []
    for index in range(90):
        policy.request()
        if policy.take(index / 30):
            keyframes.append(index)
    assert keyframes == [0, 15, 30, 45, 60, 75]


def test_a_keyframe_comes_without_a_request_after_the_longest_interval() -> None:
    policy = KeyframePolicy(0.5, 2.0)
    assert [k for k in range(150) if policy.take(k / 30)] == [0, 60, 120]


def test_a_request_made_too_early_is_kept() -> None:
    policy = KeyframePolicy(0.5, 10.0)
    assert policy.take(0.0)
    policy.request()
    assert not policy.take(0.1)
    assert policy.take(0.5)
    assert not policy.take(1.5)


def test_ntp_and_media_time_advance_together() -> None:
    timeline = MediaTimeline(epoch=100.0, ntp_epoch=3_900_000_000.25)
    assert timeline.media_time(103.5) == 3.5
    assert timeline.ntp(3.5) - timeline.ntp(0.0) == int(3.5 * (1 << 32))
    assert timeline.ntp(0.0) >> 32 == 3_900_000_000


def test_a_picture_that_stands_is_repeated_then_refined_then_repeated_for_good() -> None:
    shown = "".join("r" if is_repeat(unchanged) else "e" for unchanged in range(16))
    assert shown == "errr" + "eeeeeeee" + "rrrr"
