"""What a number of sessions demands of each resource: pure arithmetic on measured costs.

The bounds, and why they are what they are, are in docs/design.md, section 5.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from avatar_server.capacity.machine import Machine
from avatar_server.config import Settings
from avatar_server.protocol.costs import FrameCosts, StageCosts

GATEWAY_CORES = 0.05
"""The gateway's own work: heartbeats, HTTP, metrics."""
GATEWAY_BYTES = 200 << 20
SENDING_CORES = 0.06
"""One viewer's packets, their encryption and the session's event loop, as `bench media` measures
(docs/figures.md); the heartbeats correct it."""
LIKELY = 2.05
"""Standard deviations above the mean that 98% of a normal distribution stay below."""

# A turn of the expected conversation. Lengths are those of the turns in `bench turn`.
RECOGNITIONS = 1.5
"""Of one utterance: every second one is paused in, and recognised at the pause, too."""
NEW_TOKENS = 60
"""Of a prompt that no cache holds yet: the viewer's words and a fact."""
AHEAD_TOKENS = 90
"""Read into the cache after a turn, while nobody waits."""
REPLY_TOKENS = 35
CLAUSE_TOKENS = 9
"""Of a reply's first clause, after which its voice can begin."""
REPLY_S = 6.0
"""Of speech in a reply."""
PROMPT_STEP_TOKENS = 32
"""Read at once by the engine on the CPU, without interruption."""
STEPS_WAITED = 3
"""Queues that a turn waits in, one after the other: recognition, language model, voice."""


class Resource(StrEnum):
    """What may run out. The words are for the operator API and for metrics."""

    LIMIT = "max_sessions"
    CPU = "cpu"
    INFERENCE = "inference"
    LATENCY = "latency"
    GPU = "gpu"
    MEMORY = "memory"
    CONTEXT = "context"
    OVERLOAD = "overload"


WHY = {
    Resource.LIMIT: "the setting sessions.max_sessions allows no more",
    Resource.CPU: "the CPU cores would not draw and encode one more session's frames in time",
    Resource.INFERENCE: "speech and language would not keep up on the CPU time that frames leave",
    Resource.LATENCY: "answers would come too late",
    Resource.GPU: "the GPU would not keep up with speech and language",
    Resource.MEMORY: "memory would not do for one more",
    Resource.CONTEXT: "the language model's cache would not hold one more conversation",
}


@dataclass(frozen=True, slots=True)
class Use:
    """Predicted use of a resource, and the bound that it must stay under."""

    resource: Resource
    used: float
    bound: float
    unit: str

    @property
    def share(self) -> float:
        """Of the bound; above 1 there is no room."""
        if self.bound <= 0:
            return math.inf if self.used > 0 else 0.0
        return self.used / self.bound


@dataclass(frozen=True, slots=True)
class Corrections:
    """What running sessions taught: factors on the measured costs."""

    frames: float = 1.0
    inference: float = 1.0


@dataclass(frozen=True, slots=True)
class TurnCost:
    """One turn's work on one device, in its seconds."""

    total_s: float = 0.0
    waited_for_s: float = 0.0
    """The part somebody waits for in silence, which goes first."""
    pieces_s: tuple[tuple[float, float], ...] = ()
    """(how many, how long) of the steps that cannot be interrupted."""


class Demand:
    """Predicts what `n` sessions take of this machine."""

    def __init__(
        self,
        settings: Settings,
        machine: Machine,
        frames: FrameCosts,
        stages: StageCosts | None = None,
        *,
        free_bytes: int = 0,
    ) -> None:
        """`free_bytes`: memory there was when the server started; 0: the machine's. Without
        `stages`, which are measured later than frames, inference counts as free.
        """
        self._settings, self._machine = settings, machine
        self._frames, self._stages = frames, stages
        self._free_bytes = free_bytes or machine.memory_bytes

    def uses(self, sessions: int, corrections: Corrections | None = None) -> list[Use]:
        """The use of every resource with `sessions` running."""
        learned = corrections or Corrections()
        capacity, machine = self._settings.capacity, self._machine
        uses = [
            Use(
                Resource.CPU,
                self.peak_cores(sessions, learned),
                capacity.cpu_share * machine.cores,
                "cores",
            ),
            Use(
                Resource.MEMORY,
                self._memory_bytes(sessions) / 1e9,
                capacity.memory_share * self._free_bytes / 1e9,
                "GB",
            ),
        ]
        if self._stages is None:
            return uses
        every_s = capacity.turn_interval_s / learned.inference
        left = self.left_cores(sessions, learned)
        cpu, gpu = self.turn_cost("cpu"), self.turn_cost("gpu")
        share = capacity.inference_share
        cores = sessions * cpu.total_s / every_s + self.face_load(sessions, "cpu")
        uses.append(Use(Resource.INFERENCE, cores, share * left, "cores"))
        if gpus := sessions * gpu.total_s / every_s + self.face_load(sessions, "gpu"):
            uses.append(Use(Resource.GPU, gpus, share, "GPUs"))
        waits_s = self.wait_s(sessions, learned)
        uses.append(Use(Resource.LATENCY, waits_s, self._patience_s(), "s"))
        if self._stages.kv_tokens:
            tokens = sessions * self._settings.llm.context_tokens
            uses.append(Use(Resource.CONTEXT, tokens, self._stages.kv_tokens, "tokens"))
        return uses

    # --- frames -----------------------------------------------------------------------------

    def speaking_cores(self) -> float:
        """Of one session whose avatar speaks."""
        costs = self._frames
        return self._session_cores(costs.render_ms + costs.encode_ms)

    def idle_cores(self) -> float:
        """Of one session at rest."""
        return self._session_cores(self._frames.idle_frame_ms)

    def peak_cores(self, sessions: int, learned: Corrections) -> float:
        """Of all frames, while as many avatars speak at once as do 98% of the time at most."""
        share = self._settings.capacity.speaking_share
        spread = math.sqrt(sessions * share * (1 - share))
        speaking = min(sessions, sessions * share + LIKELY * spread)
        cores = speaking * self.speaking_cores() + (sessions - speaking) * self.idle_cores()
        return learned.frames * cores + GATEWAY_CORES

    def left_cores(self, sessions: int, learned: Corrections) -> float:
        """What frames leave to inference on average."""
        share = self._settings.capacity.speaking_share
        mean = share * self.speaking_cores() + (1 - share) * self.idle_cores()
        used = learned.frames * sessions * mean + GATEWAY_CORES
        return max(0.0, self._machine.cores - used)

    def _session_cores(self, frame_ms: float) -> float:
        fps = self._settings.media.video.fps
        return (fps * frame_ms + self._frames.audio_ms_per_s) / 1e3 + SENDING_CORES

    def face_load(self, sessions: int, device: str) -> float:
        """What the lip-sync network takes on average: of the GPU, or cores. On a CPU faces that
        find no time are not drawn: it takes the one core of its thread at most."""
        stages = self._stages
        if stages is None or stages.face_device != device:
            return 0.0
        speaking = sessions * self._settings.capacity.speaking_share
        # Batches are as large as the number of those who speak at once.
        face_s = stages.face_s if speaking <= 1 else stages.face_many_s
        load = speaking * self._settings.media.video.fps * face_s
        return load if device == "gpu" else min(1.0, load)

    # --- speech and language ------------------------------------------------------------------

    def turn_cost(self, device: str) -> TurnCost:
        """What one turn takes of "cpu" (core seconds) or "gpu" (its seconds)."""
        stages = self._stages
        if stages is None:
            return TurnCost()
        made = self._settings.capacity.generated_share
        total = waited = 0.0
        pieces: list[tuple[float, float]] = []
        if device == "cpu":
            waited += RECOGNITIONS * stages.endpoint_s + stages.retrieve_s
            pieces += [(RECOGNITIONS, stages.endpoint_s), (1, stages.retrieve_s)]
        if stages.stt_device == device:
            waited += RECOGNITIONS * stages.stt_s
            pieces.append((RECOGNITIONS, stages.stt_s))
        if (
            stages.llm_device == device
            and stages.llm_prefill_per_s
            and stages.llm_decode_many_per_s
        ):
            read_s, token_s = 1 / stages.llm_prefill_per_s, 1 / stages.llm_decode_many_per_s
            waited += made * (NEW_TOKENS * read_s + CLAUSE_TOKENS * token_s)
            total += made * (REPLY_TOKENS - CLAUSE_TOKENS) * token_s + AHEAD_TOKENS * read_s
            read = AHEAD_TOKENS + made * NEW_TOKENS
            pieces.append((read / PROMPT_STEP_TOKENS, PROMPT_STEP_TOKENS * read_s))
            pieces.append((made * REPLY_TOKENS, token_s))
        if stages.tts_device == device:
            waited += stages.tts_first_s
            total += max(0.0, REPLY_S * stages.tts_rtf - stages.tts_first_s)
            if stages.tts_first_s:
                pieces.append((REPLY_S * stages.tts_rtf / stages.tts_first_s, stages.tts_first_s))
        return TurnCost(total + waited, waited, tuple(pieces))

    def alone_s(self) -> float:
        """Expected voice-to-voice latency of a session that has the machine to itself."""
        stages, turns = self._stages, self._settings.turns
        if stages is None:
            return 0.0
        made = self._settings.capacity.generated_share
        path = stages.stt_s + stages.retrieve_s + stages.tts_first_s
        if stages.llm_prefill_per_s and stages.llm_decode_per_s:
            first_clause_s = NEW_TOKENS / stages.llm_prefill_per_s
            first_clause_s += CLAUSE_TOKENS / stages.llm_decode_per_s
            path += made * first_clause_s
        # The reply is begun at the first pause, and not heard before the turn is over.
        return max(turns.pause_ms / 1e3 + path, turns.end_ms / 1e3)

    def wait_s(self, sessions: int, corrections: Corrections | None = None) -> float:
        """What the other sessions add to a turn's latency, on average.

        Each device is a queue served in two classes (a wait in silence goes first), with steps
        that are not interrupted: the wait of the first class is R / (1 - rho1), where R is the
        mean rest of the step in progress (Cobham 1954; Kleinrock, Queueing Systems II, 3.2).
        """
        learned = corrections or Corrections()
        stages = self._stages
        if stages is None or sessions < 1:
            return 0.0
        others = (sessions - 1) * learned.inference / self._settings.capacity.turn_interval_s
        left = self.left_cores(sessions, learned)
        total = 0.0
        waiting_on = {
            "cpu": [stages.stt_device, stages.llm_device, stages.tts_device].count("cpu"),
            "gpu": [stages.stt_device, stages.llm_device, stages.tts_device].count("gpu"),
        }
        for device, steps in waiting_on.items():
            speed = left if device == "cpu" else 1.0
            if not steps:
                continue
            if speed <= 0:
                return math.inf
            cost = self.turn_cost(device)
            rho = min(1.0, others * cost.total_s / speed)
            rho1 = others * cost.waited_for_s / speed
            if rho1 >= 1:
                return math.inf
            moment = sum(count * length**2 for count, length in cost.pieces_s)
            rest_s = rho * moment / (2 * cost.total_s * speed) if cost.total_s else 0.0
            total += steps * rest_s / (1 - rho1)
        if left < 1:
            # One thread does not get a whole core any more.
            own = self.turn_cost("cpu").waited_for_s
            total += own * (1 / left - 1) if left else math.inf
        return total

    def _patience_s(self) -> float:
        """How much others may add: what the budget leaves, and a quarter of it where a turn alone
        takes all of it already, since sharing is then not what makes it late."""
        budget_s = self._settings.turns.budget_ms / 1e3
        return max(budget_s - self.alone_s(), budget_s / 4)

    # --- memory -----------------------------------------------------------------------------

    @property
    def session_bytes(self) -> int:
        """Of one avatar process."""
        return self._frames.rss_bytes

    def _memory_bytes(self, sessions: int) -> float:
        avatars = sessions + self._settings.sessions.warm_spares
        inference = self._stages.rss_bytes if self._stages else 0
        return GATEWAY_BYTES + inference + avatars * self._frames.rss_bytes
