"""Two verdicts on a model, a GPU and a number of sessions: does it fit, and can one talk with it?

The fit is decided by all bytes that lie in memory; conversation by the bytes and operations that
each token needs. Everything is computed for the hardest moment, when all sessions talk at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from avatar_server.capacity.planner.catalogue import (
    PRECISIONS,
    Gpu,
    LanguageModel,
    find_gpu,
    find_model,
)
from avatar_server.capacity.planner.roofline import Roofline
from avatar_server.capacity.planner.voice import Voice, voice

GIB = 2.0**30
MEMORY_SHARE = 0.95
"""Of the memory that may be planned; the rest goes to fragmentation and the driver."""
GPU_SHARE = 0.7
"""Of the GPU's time that may be planned: above it, requests that meet by chance wait too long."""
SPEECH_MARGIN = 1.5
"""Tokens must come this much faster than speech uses them up."""
HOURS_PER_MONTH = 730.0
MOST_SESSIONS = 256
"""The search for how many sessions fit ends here."""


@dataclass(frozen=True)
class Workload:
    """What the sessions do."""

    sessions: int = 4
    context_tokens: int = 8_192
    """Kept for each session."""
    cached_tokens: int = 1_200
    """Of a prompt: persona, routes and history, which the prefix cache holds."""
    new_tokens: int = 200
    """Of a prompt: the utterance and the facts found for it."""
    first_clause_tokens: int = 12
    """Of the reply, before speech synthesis can begin."""
    reply_tokens: int = 60
    """Of the whole reply."""
    turn_every_s: float = 12.0
    """From one utterance of a session to the next."""
    endpoint_ms: float = 300.0
    """Silence after which a turn is over (`turns.end_ms`)."""
    pause_ms: float = 200.0
    """Silence after which recognition starts (`turns.pause_ms`)."""
    budget_ms: float = 800.0
    """Voice-to-voice latency that a turn may take."""
    neural: bool = False
    """A neural renderer shares the GPU."""


@dataclass(frozen=True)
class Plan:
    """The verdicts and what they rest on."""

    gpu: Gpu
    model: LanguageModel
    precision: str
    workload: Workload
    memory_gib: dict[str, float]
    latency_ms: dict[str, float]
    """Of one turn by stage, while all sessions talk."""
    tokens_per_second: float
    """Of each session, while all generate."""
    gpu_share: float
    """Of the GPU's time, at the workload's pace."""
    cpu_cores: float
    binding: str
    """The resource that is nearest to its bound, or furthest over it."""
    reasons: list[str] = field(default_factory=list)
    """In words: why it does not fit or cannot converse."""
    sessions_max: int | None = None
    """Most sessions that fit and converse; none where it was not searched."""

    @property
    def memory_bound_gib(self) -> float:
        """Memory that may be planned."""
        return self.gpu.memory_gib * MEMORY_SHARE

    @property
    def fits(self) -> bool:
        """Whether everything lies in the GPU's memory."""
        return sum(self.memory_gib.values()) <= self.memory_bound_gib

    @property
    def voice_to_voice_ms(self) -> float:
        """Sum of the stages."""
        return sum(self.latency_ms.values())

    @property
    def usable(self) -> bool:
        """Whether it fits and holds a conversation."""
        return not self.reasons

    def price(self, price_per_hour: float | None) -> float:
        """USD for an hour of the GPU: the given, else the assumed."""
        return self.gpu.price_per_hour if price_per_hour is None else price_per_hour

    def cost_per_avatar_month(self, price_per_hour: float | None = None) -> float:
        """USD for one avatar that runs all month, see `price`."""
        return self.price(price_per_hour) * HOURS_PER_MONTH / self.workload.sessions


def make_plan(
    gpu: str, model: str, workload: Workload | None = None, *, search: bool = True
) -> Plan:
    """The plan for names as `find_gpu` and `find_model` take them; raises `PlanError`.

    `search` also finds the most sessions that fit and converse.
    """
    workload = workload or Workload()
    hardware = find_gpu(gpu)
    _, language_model, precision = find_model(model)
    plan = _plan(hardware, language_model, precision, workload)
    if not search:
        return plan
    best = 0
    for sessions in range(1, MOST_SESSIONS + 1):
        tried = _plan(hardware, language_model, precision, replace(workload, sessions=sessions))
        if not tried.usable:
            break
        best = sessions
    return replace(plan, sessions_max=best)


def _plan(gpu: Gpu, model: LanguageModel, precision: str, workload: Workload) -> Plan:
    roofline = Roofline(model, precision, gpu)
    figures = voice()
    sessions = workload.sessions
    memory = _memory(model, precision, workload, figures)
    step_ms = roofline.decode_ms(sessions, workload.cached_tokens + workload.new_tokens)
    latency = _latency(roofline, step_ms, workload, figures)
    tokens_per_second = 1_000 / step_ms
    share = _gpu_share(roofline, workload, figures)
    cores = (
        sessions * figures.media.session_cores.value
        + figures.media.inference_cores.value
        + figures.media.gateway_cores.value
    )
    plan = Plan(
        gpu, model, precision, workload, memory, latency, tokens_per_second, share, cores, ""
    )
    needed = figures.speech.tokens_per_second.value * SPEECH_MARGIN
    loads = {
        "gpu memory": sum(memory.values()) / plan.memory_bound_gib,
        "voice-to-voice latency": plan.voice_to_voice_ms / workload.budget_ms,
        "tokens per second": needed / tokens_per_second,
        "gpu time": share / GPU_SHARE,
    }
    said = {
        "gpu memory": f"{sum(memory.values()):.1f} GiB are needed, "
        f"{plan.memory_bound_gib:.1f} of {gpu.memory_gib:.1f} GiB may be planned",
        "voice-to-voice latency": f"a reply begins after {plan.voice_to_voice_ms:.0f} ms, "
        f"over the budget of {workload.budget_ms:.0f} ms",
        "tokens per second": f"{tokens_per_second:.1f} tokens a second in each session, "
        f"speech needs {needed:.0f}",
        "gpu time": f"{share:.0%} of the GPU's time would be used, above the bound of "
        f"{GPU_SHARE:.0%}",
    }
    reasons = [said[name] for name, load in loads.items() if load > 1]
    binding = max(loads, key=lambda name: loads[name])
    return replace(plan, reasons=reasons, binding=binding)


def _memory(
    model: LanguageModel, precision: str, workload: Workload, figures: Voice
) -> dict[str, float]:
    sessions = workload.sessions
    parts = {
        "weights": model.weight_bytes(PRECISIONS[precision]) / GIB,
        "vision_and_drafting": model.beside_bytes(PRECISIONS[precision]) / GIB,
        # A routing request and a reply of one session can run at once, on one shared prefix.
        "kv_cache": sessions * workload.context_tokens * model.kv_bytes_per_token() / GIB,
        "linear_attention_state": 2 * sessions * model.state_bytes() / GIB,
        "graphs": figures.engine.graphs_gib.value,
        "activations": figures.engine.activations_gib.value,
        "contexts": figures.engine.context_gib.value,
        "stt": figures.stt.memory_gib.value,
        "tts": figures.tts.memory_gib.value,
    }
    if workload.neural:
        parts["neural_renderer"] = figures.neural.memory_gib.value
    return parts


def _latency(
    roofline: Roofline, step_ms: float, workload: Workload, figures: Voice
) -> dict[str, float]:
    """Stage by stage, all sessions asking at the same moment.

    STT, routing, the reply's first clause and TTS of one session run one after another; those of
    the others are in the way as far as a stage cannot be batched: recognition and synthesis are
    taken one by one, the mean session waits for half of the others.
    """
    waiting = (workload.sessions + 1) / 2
    heard = workload.pause_ms + figures.stt.utterance_ms.value * waiting
    first = roofline.first_token_ms(workload.new_tokens * workload.sessions, workload.cached_tokens)
    return {
        "endpoint": workload.endpoint_ms,
        "stt": max(0.0, heard - workload.endpoint_ms),
        "route": first,
        "llm": roofline.first_token_ms(workload.new_tokens, workload.cached_tokens)
        + (workload.first_clause_tokens - 1) * step_ms,
        "tts": figures.tts.first_audio_ms.value * waiting,
        "media": figures.media.playout_ms.value,
    }


def _gpu_share(roofline: Roofline, workload: Workload, figures: Voice) -> float:
    """GPU seconds a second, sessions taking turns at their own pace.

    Decoding is counted as if two sessions were in a batch where there are several: replies overlap
    only now and then.
    """
    batch = min(workload.sessions, 2)
    decoding = workload.reply_tokens * roofline.decode_ms(batch, workload.cached_tokens) / batch
    speech_ms = workload.reply_tokens / figures.speech.tokens_per_second.value * 1_000
    turn_ms = (
        figures.stt.utterance_ms.value
        + 2 * roofline.first_token_ms(workload.new_tokens, workload.cached_tokens)
        + decoding
        + speech_ms * figures.tts.real_time_factor.value
    )
    return workload.sessions * turn_ms / (workload.turn_every_s * 1_000)
