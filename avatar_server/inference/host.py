"""The engines and devices of a host, as the scheduler is told of them.

On a CPU host each engine has a thread, and as many of them work at once as there are cores for
inference: more would only take turns on a core, in the order of the operating system instead of
ours. On a GPU host the GPU is such a device, shared by recognition, speech and the language model.
"""

from __future__ import annotations

from avatar_server.capacity.machine import usable_cores
from avatar_server.clock import Clock
from avatar_server.config import Settings
from avatar_server.inference.scheduler import CostModel, Device, Engine, Prior
from avatar_server.inference.workers import Workers
from renderers.neural.network import MAX_BATCH

CPU, GPU = "cpu", "gpu"

PRIORS = {
    "stt": Prior(0.15, 0.03),
    "endpoint": Prior(0.1),
    "route": Prior(0.02),
    "retrieve": Prior(0.01),
    "llm": Prior(0.2, 0.002),
    "tts": Prior(0.08, 0.002),
    "tts.next": Prior(0.05),
}
"""Before anything was measured; sizes are seconds of speech (stt) and characters (llm, tts)."""


def host_devices(settings: Settings) -> list[Device]:
    """What this host's engines share."""
    cores = settings.scheduler.cores or int(usable_cores())
    # With a single place a step of the end-of-turn check would hold up the recogniser.
    return [Device(CPU, max(2, cores)), Device(GPU, settings.scheduler.gpu_places)]


def host_engines(settings: Settings, batches: dict[str, int] | None = None) -> list[Engine]:
    """The engines of the inference process; `batches` are the backends' batch sizes (else 1)."""
    batches = batches or {}
    stt, tts = device_of(settings.stt.device), device_of(settings.tts.device)
    return [
        Engine("stt", batches.get("stt", 1), stt),
        Engine("endpoint", 1, CPU),
        # Some milliseconds: not worth a place.
        Engine("route"),
        Engine("retrieve"),
        Engine("tts", batches.get("tts", 1), tts),
        # Due at the tick, or not wanted at all: it never waits for a place.
        Engine("faces", MAX_BATCH, reserved=True),
    ]


def device_of(name: str) -> str:
    """The device by the name that settings give it."""
    return GPU if name == "cuda" else CPU


def llm_device(settings: Settings) -> str | None:
    """The device on which a reply's decoding takes a place; none where it runs elsewhere."""
    return {"llamacpp": CPU, "vllm": GPU}.get(settings.llm.engine)


def host_workers(settings: Settings, clock: Clock) -> Workers:
    """The threads of the inference process, and what leads them."""
    return Workers(
        clock,
        host_engines(settings),
        host_devices(settings),
        policy=settings.scheduler.policy,
        costs=CostModel(PRIORS),
        ahead_s=settings.scheduler.ahead_s,
    )
