"""Counting what viewers leave behind."""

from __future__ import annotations

import os
import sys

import pytest

from avatar_server.bench.joins import PacketCount, bench_joins, process_figures


def count(numbers: list[int]) -> PacketCount:
    packets = PacketCount()
    for number in numbers:
        packets.add(7, number & 0xFFFF, number // 2 * 3_000, number / 60)
    return packets


def test_a_missing_packet_is_found_across_a_wrap_and_out_of_order() -> None:
    around = list(range(65_500, 65_600))
    assert count(around).missing == 0
    around[10], around[12] = around[12], around[10]
    assert count(around).missing == 0
    del around[50]
    assert count(around).missing == 1
    assert count(around).received == 99


def test_retransmissions_are_not_counted() -> None:
    packets = count([1, 2, 4])
    packets.add(8, 3, 0, 0.0)
    assert (packets.received, packets.missing) == (3, 1)
    packets.add(7, 3, 3_000, 1.0)
    assert packets.missing == 0


def test_the_longest_gap_between_pictures_is_measured() -> None:
    assert count([0, 2, 4, 10]).longest_gap_ms == pytest.approx(100)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux has /proc")
def test_an_open_file_is_seen() -> None:
    before = process_figures(os.getpid())
    reading, writing = os.pipe()
    assert process_figures(os.getpid())["fds"] == before["fds"] + 2
    os.close(reading)
    os.close(writing)
    assert before["rss_kib"] > 10_000
    assert before["threads"] >= 1


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux has /proc")
def test_a_dozen_joins_leave_nothing_behind_and_the_watcher_misses_nothing() -> None:
    figures = bench_joins(count=12)
    for kind in ("avatar", "gateway"):
        assert figures[kind]["after"]["fds"] <= figures[kind]["before"]["fds"] + 2
    assert figures["watcher"]["video"]["missing"] == figures["watcher"]["audio"]["missing"] == 0
    assert figures["watcher"]["video"]["frames"] > 100
