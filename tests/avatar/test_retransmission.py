"""What is sent again, and what is not, in virtual time."""

from __future__ import annotations

from avatar_server.avatar.retransmission import Retransmissions


def filled(count: int = 1024) -> Retransmissions:
    history = Retransmissions()
    for number in range(count):
        history.keep(number & 0xFFFF, number * 90, True, b"%d" % number)
    return history


def test_a_keyframe_and_a_second_after_it_can_be_asked_for_and_nothing_older() -> None:
    history = filled(70_000)
    newest = 70_000 & 0xFFFF
    kept = history.take(newest - 1024, 1.0, None, None)
    assert kept is not None
    assert kept.payload == b"%d" % (70_000 - 1024)
    assert history.take(newest - 1025, 1.0, None, None) is None
    assert history.take(newest, 1.0, None, None) is None


def test_a_packet_is_not_sent_again_before_the_last_answer_can_have_failed() -> None:
    history = filled()
    sent = [k for k in range(100) if history.take(7, k / 100, 0.25, None) is not None]
    assert sent == [0, 25, 50, 75]
    assert history.take(8, 1.0, None, None) is not None
    assert history.take(8, 1.05, None, None) is None
    assert history.take(8, 1.11, None, None) is not None


def test_a_full_link_is_not_filled_further() -> None:
    history = filled()
    sent = 0
    for step in range(200):
        now = 1 + step / 20
        sent += sum(history.take(n, now, 0.05, 480_000) is not None for n in range(70))
    # A burst, and then 50 packets a second: 480 kbit/s.
    assert 128 + 480 < sent < 128 + 520


def test_after_a_short_outage_all_that_was_missed_is_sent_at_once() -> None:
    history = filled()
    assert sum(history.take(n, 1.0, 0.05, 600_000) is not None for n in range(120)) == 120
