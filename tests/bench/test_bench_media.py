"""The media benchmark, short and with few viewers: the figures are there and hang together."""

from __future__ import annotations

from avatar_server.bench.media import bench_media, print_table


def test_the_figures_are_complete_and_a_further_viewer_costs_little() -> None:
    figures = bench_media(1.0, (1, 3))
    for key in ("render_ms", "convert_ms", "encode_ms"):
        assert 0 < figures[key]["p50"] <= figures[key]["p95"]
    assert set(figures["viewer_cpu_ms_per_s"]) == {"1", "3"}
    for kind in ("session", "reply"):
        parts = figures[f"{kind}_parts_cpu_ms_per_s"]
        assert set(parts) == {"drawing", "encoding", "audio", "sending"}
        assert all(part > 0 for part in parts.values())
    whole = figures["session_cpu_ms_per_s"]
    assert abs(sum(figures["session_parts_cpu_ms_per_s"].values()) - whole) < 0.01 * whole
    assert figures["packets_per_s"] > 10
    # Encoding again for each viewer is what the product avoids, on any machine.
    parts = figures["reply_parts_cpu_ms_per_s"]
    assert figures["further_viewer_cpu_ms_per_s"]["3"] < parts["encoding"] + parts["drawing"]
    assert figures["ratio_vp8_session"] < figures["ratio_vp8_first_viewer"]
    assert figures["stock_vp8_session_cpu_ms_per_s"] > 0
    assert figures["stock_h264_session_cpu_ms_per_s"] > 0
    assert figures["loop_lag_p95_ms"] > 0
    print_table(figures)
