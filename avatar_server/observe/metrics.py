"""Every metric the server exports, with its buckets, in one place.

One `Metrics` belongs to one gateway and owns its registry, so that several can live in one
process (tests) without meeting.
"""

from __future__ import annotations

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)

from avatar_server.capacity.admission import Capacity
from avatar_server.protocol.messages import AvatarStatus, InferenceStatus, TurnTrace

# The bounds follow what people notice: below 0.3 s is as quick as a person, above 2 s is a wait.
LATENCY_BUCKETS_S = (0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0, 1.2, 1.5, 2.0, 3.0, 5.0, 10.0)
STAGE_BUCKETS_S = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.8, 1.2, 2.0, 5.0)
START_BUCKETS_S = (0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0)
HTTP_BUCKETS_S = (0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 20.0)

LLM_FIGURES = {
    "requests": "Requests since the engine was made.",
    "labelled": "Of these, label requests.",
    "cancelled": "Requests ended before they were finished.",
    "failed": "Requests that failed.",
    "prompt_tokens": "Prompt tokens read.",
    "cached_tokens": "Prompt tokens taken from the cache instead.",
    "reply_tokens": "Tokens generated.",
    "restarts": "Times the engine ended by itself.",
    "running": "Requests in work.",
    "waiting": "Requests waiting in the engine.",
    "cache_used": "Share of the key-value cache in use.",
}
"""Of the engine since the inference process started, which may be restarted: gauges."""


class Metrics:
    """The gateway's metrics; `render` gives the text that Prometheus reads."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry(auto_describe=True)
        self.sessions = Gauge("avatar_sessions", "Sessions by state.", ["state"], registry=registry)
        self.session_slots = Gauge(
            "avatar_session_slots", "Sessions that may run at once.", registry=registry
        )
        self.capacity_used = Gauge(
            "avatar_capacity_used_ratio",
            "Predicted use of a resource, as a share of its bound, with all slots in use.",
            ["resource"],
            registry=registry,
        )
        self.overload_level = Gauge(
            "avatar_overload_level",
            "Measures in force against overload: 0 none, 5 all.",
            registry=registry,
        )
        self.overload_changes = Counter(
            "avatar_overload_changes_total",
            "Overload levels taken and given back.",
            ["direction"],
            registry=registry,
        )
        self.sessions_started = Counter(
            "avatar_sessions_started_total", "Sessions that became ready.", registry=registry
        )
        self.sessions_refused = Counter(
            "avatar_sessions_refused_total", "Sessions refused.", ["reason"], registry=registry
        )
        self.sessions_ended = Counter(
            "avatar_sessions_ended_total", "Sessions that ended.", ["reason"], registry=registry
        )
        self.session_start_s = Histogram(
            "avatar_session_start_seconds",
            "From the request to an avatar that takes viewers.",
            buckets=START_BUCKETS_S,
            registry=registry,
        )
        self.viewers = Gauge("avatar_viewers", "Viewers of all sessions.", registry=registry)
        self.viewers_joined = Counter(
            "avatar_viewers_joined_total", "Offers that were answered.", registry=registry
        )
        self.joins_failed = Counter(
            "avatar_joins_failed_total", "Offers refused.", ["status"], registry=registry
        )
        self.restarts = Counter(
            "avatar_process_restarts_total",
            "Processes that ended unasked and were started again.",
            ["role", "cause"],
            registry=registry,
        )
        self.process_cpu_s = Gauge(
            "avatar_process_cpu_seconds",
            "CPU time of a child process.",
            ["role", "session"],
            registry=registry,
        )
        self.process_rss_bytes = Gauge(
            "avatar_process_rss_bytes",
            "Resident memory of a child process.",
            ["role", "session"],
            registry=registry,
        )
        self.fps = Gauge("avatar_fps", "Frames sent a second.", ["session"], registry=registry)
        self.late_frames = Gauge(
            "avatar_late_frames", "Frames that missed their tick.", ["session"], registry=registry
        )
        self.render_s = Gauge(
            "avatar_render_seconds", "Drawing one frame.", ["session"], registry=registry
        )
        self.encode_s = Gauge(
            "avatar_encode_seconds", "Encoding one frame.", ["session"], registry=registry
        )
        self.bitrate_bps = Gauge(
            "avatar_video_bitrate_bps", "Encoded video.", ["session"], registry=registry
        )
        self.low_viewers = Gauge(
            "avatar_low_viewers",
            "Viewers who are sent the smaller picture because of their link.",
            ["session"],
            registry=registry,
        )
        self.missed_faces = Gauge(
            "avatar_missed_faces",
            "Frames whose face the lip-sync network did not draw in time.",
            ["session"],
            registry=registry,
        )
        self.recording_s = Gauge(
            "avatar_recording_seconds",
            "Recorded of a session by its present process.",
            ["session"],
            registry=registry,
        )
        self.recording_cpu_s = Gauge(
            "avatar_recording_cpu_seconds",
            "CPU time that writing the recording took.",
            ["session"],
            registry=registry,
        )
        self.recording_dropped = Gauge(
            "avatar_recording_dropped",
            "Pictures, pieces of sound and so on that could not be written in time.",
            ["session"],
            registry=registry,
        )
        self.recording_stopped = Gauge(
            "avatar_recording_stopped",
            "1 where a session's recording ended before the talk did.",
            ["session"],
            registry=registry,
        )
        self.turns = Counter(
            "avatar_turns_total", "Finished turns.", ["kind", "outcome"], registry=registry
        )
        self.voice_to_voice_s = Histogram(
            "avatar_voice_to_voice_seconds",
            "From the viewer's last voiced sample to the first audible sample of the reply.",
            buckets=LATENCY_BUCKETS_S,
            registry=registry,
        )
        self.stage_s = Histogram(
            "avatar_turn_stage_seconds",
            "Length of one stage of a turn.",
            ["stage"],
            buckets=STAGE_BUCKETS_S,
            registry=registry,
        )
        self.over_budget = Counter(
            "avatar_turns_over_budget_total",
            "Turns that missed their budget, by the stage that overran most.",
            ["stage"],
            registry=registry,
        )
        self.acknowledged = Counter(
            "avatar_turns_acknowledged_total",
            "Turns whose wait was covered by a remark.",
            registry=registry,
        )
        self.inference_ready = Gauge(
            "avatar_inference_ready", "1 while the models can answer.", registry=registry
        )
        self.inference_queue = Gauge(
            "avatar_inference_queue_depth", "Jobs waiting.", ["stage"], registry=registry
        )
        self.inference_running = Gauge(
            "avatar_inference_jobs_running",
            "Jobs that an engine does now.",
            ["stage"],
            registry=registry,
        )
        self.inference_busy = Gauge(
            "avatar_inference_busy_ratio",
            "Share of the last seconds in which an engine was at work.",
            ["stage"],
            registry=registry,
        )
        self.inference_missed = Gauge(
            "avatar_inference_deadlines_missed",
            "Jobs done too late since the inference process started.",
            ["stage"],
            registry=registry,
        )
        self.inference_jobs = Gauge(
            "avatar_inference_jobs_done",
            "Jobs done since the inference process started.",
            ["stage"],
            registry=registry,
        )
        self.model_memory = Gauge(
            "avatar_model_memory_bytes",
            "Memory that a model holds.",
            ["stage", "device", "kind"],
            registry=registry,
        )
        self.llm = {
            name: Gauge(f"avatar_llm_{name}", text, registry=registry)
            for name, text in LLM_FIGURES.items()
        }
        self.faces = Gauge(
            "avatar_faces",
            "Faces since the inference process started: drawn in time, too late, or dropped; and "
            "the steps of the network.",
            ["kind"],
            registry=registry,
        )
        self.inference_failures = Gauge(
            "avatar_inference_jobs_failed",
            "Jobs failed since the inference process started.",
            registry=registry,
        )
        self.http_requests = Counter(
            "avatar_http_requests_total",
            "HTTP requests.",
            ["method", "route", "status"],
            registry=registry,
        )
        self.http_s = Histogram(
            "avatar_http_request_seconds",
            "Time to answer an HTTP request.",
            ["route"],
            buckets=HTTP_BUCKETS_S,
            registry=registry,
        )

    def render(self) -> bytes:
        """All metrics in Prometheus' text format."""
        return generate_latest(self.registry)

    def capacity(self, capacity: Capacity, level: int) -> None:
        """Take over how many sessions fit, what of, and the overload level."""
        self.session_slots.set(capacity.fits)
        self.overload_level.set(level)
        for use in capacity.uses:
            self.capacity_used.labels(use.resource.value).set(use.share)

    def avatar_status(self, status: AvatarStatus) -> None:
        """Take over what an avatar process measured of itself."""
        session = status.session
        self.fps.labels(session).set(status.fps)
        self.late_frames.labels(session).set(status.late_frames)
        self.render_s.labels(session).set(status.render_ms / 1e3)
        self.encode_s.labels(session).set(status.encode_ms / 1e3)
        self.bitrate_bps.labels(session).set(status.bitrate_bps)
        self.low_viewers.labels(session).set(status.low_viewers)
        self.missed_faces.labels(session).set(status.missed_faces)
        self.process_cpu_s.labels("avatar", session).set(status.cpu_s)
        self.process_rss_bytes.labels("avatar", session).set(status.rss_bytes)

        if (recording := status.recording) is not None:
            self.recording_s.labels(session).set(recording.written_s)
            self.recording_cpu_s.labels(session).set(recording.cpu_s)
            self.recording_dropped.labels(session).set(recording.dropped)
            self.recording_stopped.labels(session).set(bool(recording.problem))

    def forget_session(self, session: str) -> None:
        """Drop a session's own series, or they would pile up for ever."""
        for gauge in (
            self.fps,
            self.late_frames,
            self.render_s,
            self.encode_s,
            self.bitrate_bps,
            self.low_viewers,
            self.missed_faces,
            self.recording_s,
            self.recording_cpu_s,
            self.recording_dropped,
            self.recording_stopped,
        ):
            _remove(gauge, session)
        _remove(self.process_cpu_s, "avatar", session)
        _remove(self.process_rss_bytes, "avatar", session)

    def inference_status(self, status: InferenceStatus) -> None:
        """Take over what the inference process says of itself."""
        self.inference_ready.set(status.ready)
        self.inference_failures.set(status.jobs_failed)
        for stage, depth in status.queue_depth.items():
            self.inference_queue.labels(stage).set(depth)
        for gauge, figures in (
            (self.inference_running, status.running),
            (self.inference_busy, status.busy),
            (self.inference_missed, status.deadlines_missed),
        ):
            for stage, figure in figures.items():
                gauge.labels(stage).set(figure)
        for stage, done in status.jobs_done.items():
            self.inference_jobs.labels(stage).set(done)
        for stage, memory in status.memory.items():
            for kind in ("weights", "cache", "working"):
                gauge = self.model_memory.labels(stage, memory.device, kind)
                gauge.set(getattr(memory, kind))
        for kind, count in status.faces.items():
            self.faces.labels(kind).set(count)
        for name, gauge in self.llm.items():
            gauge.set(status.llm.get(name, 0.0))
        self.process_cpu_s.labels("inference", "").set(status.cpu_s)
        self.process_rss_bytes.labels("inference", "").set(status.rss_bytes)

    def turn(self, trace: TurnTrace) -> None:
        """Count a finished turn."""
        self.turns.labels(trace.kind, trace.outcome).inc()
        if trace.voice_to_voice_ms is not None:
            self.voice_to_voice_s.observe(trace.voice_to_voice_ms / 1e3)
        if trace.overran:
            self.over_budget.labels(trace.overran).inc()
        if trace.acknowledged_ms is not None:
            self.acknowledged.inc()
        for span in trace.stages:
            self.stage_s.labels(span.stage).observe(max(0.0, span.end - span.start))


def _remove(gauge: Gauge, *labels: str) -> None:
    # A session that ended before its first status has no series; removing none is no error.
    try:
        gauge.remove(*labels)
    except KeyError:
        return
