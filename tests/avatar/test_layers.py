"""Which encode a viewer is given, in virtual time."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from avatar_server.avatar.layers import LayerPolicy
from avatar_server.avatar.packets import Layer

ENOUGH = 1_000_000


class Viewer:
    """Reports once a second what it is told to see."""

    def __init__(self) -> None:
        self.policy = LayerPolicy(ENOUGH)
        self.now = 100.0
        self.layers: list[Layer] = []

    def see(self, seconds: int, loss: float = 0.0, *estimates: float) -> None:
        for second in range(seconds):
            if estimates:
                self.policy.on_estimate(self.now, estimates[second % len(estimates)])
            self.layers.append(self.policy.on_loss(self.now, loss, 60))
            self.now += 1.0


def moves(layers: list[Layer]) -> int:
    return sum(a != b for a, b in itertools.pairwise(layers))


def test_a_good_link_keeps_the_full_picture() -> None:
    viewer = Viewer()
    viewer.see(600, 0.02)
    assert set(viewer.layers) == {"full"}


def test_a_low_estimate_alone_is_no_reason_to_move() -> None:
    # It starts at what arrives and grows slowly, however good the link is.
    viewer = Viewer()
    viewer.see(120, 0.0, *(150_000 * 1.08**k for k in range(24)))
    assert set(viewer.layers) == {"full"}


def test_lasting_loss_moves_the_viewer_within_three_reports() -> None:
    viewer = Viewer()
    viewer.see(5)
    viewer.see(3, 0.25)
    assert viewer.layers[-1] == "low"


def test_an_estimate_that_falls_again_and_again_moves_the_viewer() -> None:
    viewer = Viewer()
    viewer.see(4, 0.0, 700_000, 700_000, 560_000, 500_000)
    assert viewer.layers[-1] == "low"


def test_one_fall_or_one_blackout_does_not() -> None:
    viewer = Viewer()
    viewer.see(2, 0.0, 700_000, 560_000)
    viewer.see(20, 0.0, 570_000)
    viewer.see(1, 0.95)
    viewer.see(20)
    assert set(viewer.layers) == {"full"}


def test_falls_of_an_estimate_that_is_ample_all_the_same_do_not() -> None:
    viewer = Viewer()
    viewer.see(30, 0.0, 9_000_000, 5_000_000)
    assert set(viewer.layers) == {"full"}


def test_the_full_picture_is_tried_again_after_a_hold_that_doubles_with_each_failure() -> None:
    viewer = Viewer()
    for _ in range(900):
        viewer.see(1, 0.0 if viewer.policy.layer == "low" else 0.25)
    at = [k for k in range(1, 900) if viewer.layers[k] != viewer.layers[k - 1]]
    stays = [b - a for a, b in zip(at[::2], at[1::2], strict=False)]
    assert stays[:5] == [15, 30, 60, 120, 120]
    # A trial is over as soon as it is known to fail.
    assert max(b - a for a, b in zip(at[1::2], at[2::2], strict=False)) <= 3


def test_a_link_that_recovered_gets_the_full_picture_back_and_keeps_it() -> None:
    viewer = Viewer()
    viewer.see(10, 0.3)
    assert viewer.layers[-1] == "low"
    viewer.see(300)
    assert viewer.layers[-1] == "full"
    assert moves(viewer.layers[20:]) <= 1


def test_where_the_estimate_says_there_is_room_it_does_not_wait_long() -> None:
    viewer = Viewer()
    viewer.see(3, 0.3)
    assert viewer.layers[-1] == "low"
    viewer.see(6, 0.0, 2_000_000)
    assert viewer.layers[-1] == "full"


def test_a_few_packets_lost_by_chance_at_the_start_are_no_reason() -> None:
    policy = LayerPolicy(ENOUGH)
    assert policy.on_loss(0.2, 0.3, 20) == "full"
    assert policy.on_loss(0.5, 0.3, 15) == "full"
    assert policy.on_loss(1.5, 0.05, 50) == "full"


def test_reports_that_come_with_every_request_count_for_the_packets_they_are_of() -> None:
    policy = LayerPolicy(ENOUGH)
    # Half of 50 packets a second is lost, and each second half of ten reports says so.
    layers = [policy.on_loss(k / 10, float(k % 2), 5) for k in range(60)]
    assert layers.index("low") <= 35
    policy = LayerPolicy(ENOUGH)
    # One packet in twenty.
    assert {policy.on_loss(k / 10, 0.5 * (k % 10 == 0), 5) for k in range(600)} == {"full"}


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(50e3, 5e6)), max_size=400))
def test_whatever_is_reported_moves_are_seldom(reports: list[tuple[float, float]]) -> None:
    viewer = Viewer()
    for loss, estimate in reports:
        viewer.see(1, loss, estimate)
    at = [k for k in range(1, len(reports)) if viewer.layers[k] != viewer.layers[k - 1]]
    ups = [k for k in at if viewer.layers[k] == "full"]
    assert all(b - a >= 2 for a, b in zip(at, ups, strict=False) if b > a)
    assert len(ups) <= len(reports) / 3
