"""Metrics as Prometheus reads them."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from avatar_server.observe.metrics import Metrics
from avatar_server.protocol.messages import (
    AvatarStatus,
    InferenceStatus,
    RecordingStatus,
    StageSpan,
    TurnTrace,
)


def samples(metrics: Metrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(metrics.render().decode())
        for sample in family.samples
    }


def test_two_gateways_in_one_process_do_not_share_metrics() -> None:
    first, second = Metrics(), Metrics()
    first.viewers_joined.inc()
    assert samples(first)["avatar_viewers_joined_total", ()] == 1
    assert samples(second)["avatar_viewers_joined_total", ()] == 0


def test_a_turn_counts_in_latency_and_stages() -> None:
    metrics = Metrics()
    metrics.turn(
        TurnTrace(
            session="a",
            turn=1,
            kind="speech",
            voice_to_voice_ms=700.0,
            stages=[StageSpan(stage="stt", start=0.1, end=0.3)],
        )
    )
    metrics.turn(TurnTrace(session="a", turn=2, kind="text", outcome="failed"))
    found = samples(metrics)
    assert found["avatar_turns_total", (("kind", "speech"), ("outcome", "answered"))] == 1
    assert found["avatar_turns_total", (("kind", "text"), ("outcome", "failed"))] == 1
    assert found["avatar_voice_to_voice_seconds_count", ()] == 1
    assert found["avatar_voice_to_voice_seconds_bucket", (("le", "0.6"),)] == 0
    assert found["avatar_voice_to_voice_seconds_bucket", (("le", "0.8"),)] == 1
    assert found["avatar_turn_stage_seconds_bucket", (("le", "0.2"), ("stage", "stt"))] == 1


def test_a_sessions_series_end_with_it() -> None:
    metrics = Metrics()
    before = len(samples(metrics))
    metrics.avatar_status(
        AvatarStatus(session="a", state="idle", viewers=2, low_viewers=1, fps=29.9, render_ms=3.0)
    )
    found = samples(metrics)
    assert found["avatar_low_viewers", (("session", "a"),)] == 1
    assert found["avatar_fps", (("session", "a"),)] == 29.9
    assert found["avatar_render_seconds", (("session", "a"),)] == 0.003
    metrics.forget_session("a")
    metrics.forget_session("never reported")
    assert len(samples(metrics)) == before


def test_inference_reports_its_queues() -> None:
    metrics = Metrics()
    metrics.inference_status(
        InferenceStatus(
            ready=True,
            pid=1,
            queue_depth={"stt": 2},
            running={"stt": 1},
            busy={"tts": 0.5},
            deadlines_missed={"tts": 3},
            jobs_done={"tts": 5},
        )
    )
    found = samples(metrics)
    assert found["avatar_inference_ready", ()] == 1
    assert found["avatar_inference_queue_depth", (("stage", "stt"),)] == 2
    assert found["avatar_inference_jobs_done", (("stage", "tts"),)] == 5
    assert found["avatar_inference_jobs_running", (("stage", "stt"),)] == 1
    assert found["avatar_inference_busy_ratio", (("stage", "tts"),)] == 0.5
    assert found["avatar_inference_deadlines_missed", (("stage", "tts"),)] == 3


def test_a_recording_reports_what_it_takes_and_that_it_stopped() -> None:
    metrics = Metrics()
    before = len(samples(metrics))
    recording = RecordingStatus(
        running=False, problem="no room", written_s=60.0, cpu_s=1.2, dropped=4
    )
    metrics.avatar_status(AvatarStatus(session="a", state="idle", viewers=0, recording=recording))
    found = samples(metrics)
    of_a = (("session", "a"),)
    assert found["avatar_recording_seconds", of_a] == 60.0
    assert found["avatar_recording_cpu_seconds", of_a] == 1.2
    assert found["avatar_recording_dropped", of_a] == 4
    assert found["avatar_recording_stopped", of_a] == 1
    metrics.forget_session("a")
    assert len(samples(metrics)) == before
