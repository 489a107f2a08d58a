"""Messages between the gateway, avatar and inference processes (msgpack over ZeroMQ).

Sockets: the gateway and the inference process each bind a ROUTER; an avatar process connects a
DEALER, whose identity is its session id, to both; the gateway connects a DEALER to inference.
Each message is one ZeroMQ frame (two at a ROUTER: the identity before it).
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from avatar_server.protocol.costs import StageCosts
from renderers.contract import VisemeSpan

PROTOCOL_VERSION = 1


class Message(msgspec.Struct, kw_only=True, tag=True, omit_defaults=True):
    """Base of every message; the class name is its tag on the wire."""


# --- gateway -> avatar ----------------------------------------------------------------------


class Offer(Message):
    """A viewer wants in. Answered by `Answer` or `Problem` with the same `request`."""

    request: str
    viewer: str
    sdp: str
    can_speak: bool = True


class AddCandidate(Message):
    """A trickled ICE candidate (`candidate` is the attribute's value; empty: end of candidates)."""

    viewer: str
    candidate: str
    sdp_mid: str | None = None
    sdp_m_line_index: int | None = None


class Leave(Message):
    """A viewer said goodbye over HTTP."""

    viewer: str


class StopAvatar(Message):
    """End the session now and exit.

    `final`: the session will not come back, and its viewers are told the `reason`. Otherwise the
    server goes, and their pages wait for it.
    """

    reason: str
    final: bool = False


class RenewAvatar(Message):
    """The operator changed the avatar: `spec` is all of it, as `AvatarSpec` in JSON.

    Persona, facts and routes count from the next turn on; face and voice from the next start.
    """

    spec: dict[str, Any]


class TellEnding(Message):
    """Tell the viewers, by voice and on the page, that the session will end in `seconds_left`."""

    seconds_left: float


class TakePicture(Message):
    """Give a small picture of what is shown now; the answer is a `Picture`."""

    request: str


class SetOverload(Message):
    """How much is to be saved from now on: a level of `avatar_server.capacity.overload`."""

    level: int
    reason: str = ""


# --- avatar -> gateway ----------------------------------------------------------------------


class AvatarReady(Message):
    """The avatar process can take viewers."""

    session: str
    pid: int
    version: int = PROTOCOL_VERSION


class Answer(Message):
    """The SDP answer to an `Offer`."""

    request: str
    viewer: str
    sdp: str


class Problem(Message):
    """A request could not be met; becomes an RFC 9457 problem document."""

    request: str
    status: int
    title: str
    detail: str


class Picture(Message):
    """A JPEG file; empty while nothing is drawn, since nobody watches."""

    request: str
    jpeg: bytes = b""


class RecordingStatus(msgspec.Struct, kw_only=True, frozen=True):
    """How a session's recording does. `problem` says why it stopped before the talk was over.

    `written_s` is the length of what was recorded so far, `cpu_s` what writing it took; `dropped`
    counts pictures, pieces of sound and so on that could not be written in time.
    """

    running: bool
    problem: str = ""
    written_s: float = 0.0
    cpu_s: float = 0.0
    dropped: int = 0


class AvatarStatus(Message):
    """Sent once a second, and at every join and leave. Its absence for 3 s means a hang.

    `viewer_ids` are the viewers present now: the gateway frees the place of any other.
    `abandoned`: none is, and the last one said goodbye rather than vanishing. `missed_faces` are
    frames whose face inference did not draw in time.
    """

    session: str
    state: str
    viewers: int
    viewer_ids: list[str] = []
    abandoned: bool = False
    low_viewers: int = 0
    missed_faces: int = 0
    speaker: str | None = None
    fps: float = 0.0
    late_frames: int = 0
    frames: int = 0
    render_ms: float = 0.0
    encode_ms: float = 0.0
    bitrate_bps: float = 0.0
    cpu_s: float = 0.0
    rss_bytes: int = 0
    recording: RecordingStatus | None = None
    """None: this session is not recorded."""


class StageSpan(msgspec.Struct, kw_only=True):
    """One stage of a turn, in seconds from the viewer's last voiced sample (may be negative)."""

    stage: str
    start: float
    end: float


class LedgerEntry(msgspec.Struct, kw_only=True):
    """What a stage took of a turn's budget, and what it was granted of what was left then."""

    stage: str
    granted_ms: float
    took_ms: float


class LlmUse(msgspec.Struct, kw_only=True, frozen=True):
    """Tokens that the language model read and wrote for a reply; 0 where its engine does not tell.

    `prompt_tokens` counts those taken from the cache (`cached_tokens`), too.
    """

    prompt_tokens: int = 0
    cached_tokens: int = 0
    reply_tokens: int = 0


class TurnTrace(Message):
    """A finished turn: when each stage ran, and the latency the viewer felt.

    `ledger` accounts for all the time up to the answer's first audible sample, each moment once;
    `overran` is the stage that took most over what it was granted, where `budget_ms` was missed.
    `acknowledged_ms` is when an acknowledgement was heard before the answer. `ended` is when the
    turn was over, in seconds from the viewer's last voiced sample; it is reported at once. `route`
    is what the words were taken for; `llm` is there where the language model made the reply, and
    it came to its end.
    """

    session: str
    turn: int
    kind: Literal["speech", "text", "greeting"]
    voice_to_voice_ms: float | None = None
    stages: list[StageSpan] = []
    budget_ms: float = 0.0
    ledger: list[LedgerEntry] = []
    overran: str = ""
    acknowledged_ms: float | None = None
    outcome: Literal["answered", "interrupted", "failed", "empty"] = "answered"
    ended: float = 0.0
    route: str = ""
    llm: LlmUse | None = None
    viewer: str = ""
    viewer_text: str = ""
    reply_text: str = ""


# --- avatar -> inference --------------------------------------------------------------------


class OpenSession(Message):
    """Make a session known (again, after a restart of either side): persona, facts, voice.

    `facts` are short passages, one statement or question-and-answer each. `voice` names a voice
    of the TTS catalogue; `voice_fallbacks` are tried in order where it cannot be had; `pitch` says
    by a voice's name how many times as high it is to speak. `routes` are the avatar's, as
    `avatar_server.avatar_routes.RouteSpec` in JSON.
    """

    session: str
    avatar: str
    persona: str
    facts: list[str] = []
    voice: str = ""
    voice_fallbacks: list[str] = []
    pitch: dict[str, float] = {}
    speed: float = 1.0
    language: str = "en"
    routes: list[dict[str, Any]] = []


class CloseSession(Message):
    """Forget a session and cancel its jobs."""

    session: str


class Transcribe(Message):
    """Recognise speech; answered by `Transcript`. `pcm` is s16le, mono, 16 kHz."""

    session: str
    job: str
    purpose: Literal["partial", "speculative", "final"]
    pcm: bytes
    language: str | None = None
    budget_s: float | None = None
    """What is left of the turn's budget when this is sent; none: nobody waits by the clock."""


class CheckEndOfTurn(Message):
    """Has the viewer finished? Answered by `EndOfTurn`. `pcm`: the turn's last <= 8 s, 16 kHz."""

    session: str
    job: str
    pcm: bytes
    budget_s: float | None = None


class HistoryItem(msgspec.Struct, kw_only=True):
    """One earlier turn's text; for the assistant only the words that were heard."""

    role: Literal["user", "assistant"]
    text: str


class Respond(Message):
    """Answer `text`: a stream of `ReplyAudio`, closed by `ReplyEnd` or `JobFailed`.

    `speculative`: the turn may go on. Nothing is done that cannot be undone before `Commit`.
    """

    session: str
    job: str
    text: str
    history: list[HistoryItem] = []
    language: str | None = None
    brief: bool = False
    """One sentence will do: the machine has too much to do."""
    speculative: bool = False
    budget_s: float | None = None


class Commit(Message):
    """The turn of a speculative `Respond` is over. Unknown jobs are ignored."""

    session: str
    job: str


class Say(Message):
    """Speak fixed text (a greeting, an apology): answered like `Respond`.

    `ahead`: nobody waits for it; it is made while there is nothing else to do.
    """

    session: str
    job: str
    text: str
    ahead: bool = False


class Cancel(Message):
    """Stop a job and free its place; nothing more is sent for it. Unknown jobs are ignored."""

    session: str
    job: str


class Buffered(Message):
    """How much speech is waiting to be played, so that decoding ahead can be bounded."""

    session: str
    job: str
    seconds: float


class OpenFaces(Message):
    """Draw a session's faces from now on; answered by `FacesOpened` or `FacesRefused`.

    `folder` is the avatar's, `width` and `height` the video's. `ring` is where the faces go
    (`avatar_server.protocol.face_ring`), in the memory of process `pid`.
    """

    session: str
    folder: str
    width: int
    height: int
    fps: float
    ring: str
    pid: int


class DrawFace(Message):
    """Draw the face of picture `index` for frame `number`, which is shown in `left_s` seconds.

    `mel` is float32, (80, 16). There is no answer: the face is in the ring in time, or not at all.
    """

    session: str
    number: int
    index: int
    mel: bytes
    left_s: float


# --- inference -> avatar --------------------------------------------------------------------


class JobTiming(msgspec.Struct, kw_only=True, frozen=True):
    """Seconds a job waited in a queue and then ran."""

    queued: float = 0.0
    ran: float = 0.0


class SessionOpened(Message):
    """The session is known; `voice` is the one that will be used."""

    session: str
    voice: str
    sample_rate_hz: int = 48_000


class Transcript(Message):
    """What was said. `text` is empty where there was no speech worth a turn."""

    job: str
    text: str
    language: str = "en"
    no_speech_probability: float = 0.0
    timing: JobTiming = JobTiming()


class EndOfTurn(Message):
    """`probability` that the viewer has finished."""

    job: str
    probability: float
    timing: JobTiming = JobTiming()


class Word(msgspec.Struct, kw_only=True, array_like=True):
    """A word of a clause, in seconds from the start of the clause's sound."""

    text: str
    start: float
    end: float


class Outlook(Message):
    """How long it takes from now until a reply's first sound, as far as can be foreseen."""

    job: str
    first_sound_s: float


class ReplyAudio(Message):
    """A piece of a clause's speech. `pcm` is s16le, mono, 48 kHz.

    The first piece of a clause (`piece` 0) carries the clause's `text` (as shown in captions),
    its `words` and its `visemes`, all timed from the clause's first sample, and the `emotion`
    that the face shows with it (empty: as before). `last` closes it.
    """

    job: str
    clause: int
    piece: int
    pcm: bytes
    last: bool
    text: str = ""
    words: list[Word] = []
    visemes: list[VisemeSpan] = []
    emotion: str = ""


class ReplyEnd(Message):
    """The reply is complete. `stages_ms` are durations (`route`, `llm_first_token`, ...).

    `route` is what the words were taken for; `llm` is there where the language model made it.
    """

    job: str
    text: str
    stages_ms: dict[str, float] = {}
    route: str = ""
    llm: LlmUse | None = None


class FacesOpened(Message):
    """Faces can be drawn: `size` pixels wide and high, on `device`."""

    session: str
    size: int
    device: str


class FacesRefused(Message):
    """No faces are drawn for the session; `message` says why in words an operator understands."""

    session: str
    message: str


class JobFailed(Message):
    """A job ended without a result; `message` says why in words an operator understands."""

    job: str
    code: Literal["overloaded", "bad_request", "unknown_session", "timeout", "engine"]
    message: str


# --- gateway <-> inference ------------------------------------------------------------------


class AskInferenceStatus(Message):
    """The gateway asks; answered by `InferenceStatus`."""


class ModelMemory(msgspec.Struct, frozen=True):
    """Bytes that a model holds, and where: `cpu`, a GPU, or an endpoint's host."""

    device: str
    weights: int
    cache: int
    working: int


class InferenceStatus(Message):
    """What inference runs and how it does. Also sent unasked when it becomes ready.

    `wait_ms` is how long jobs that somebody waits for have stood in a queue of late (75th
    percentile of the last seconds). By engine: `running` are the jobs that it does now, `busy` the
    share of the last seconds in which it did any, `deadlines_missed` its jobs so far that were done
    too late. `costs` is there once they were measured. `llm` are the engine's own figures
    (`EngineMetrics`); `memory` is what each model holds, by stage. `faces`
    counts frames (`avatar_server.inference.faces.FaceCounts`).
    """

    ready: bool
    pid: int
    phase: str = ""
    models: dict[str, str] = {}
    sessions: int = 0
    queue_depth: dict[str, int] = {}
    running: dict[str, int] = {}
    busy: dict[str, float] = {}
    deadlines_missed: dict[str, int] = {}
    jobs_done: dict[str, int] = {}
    jobs_failed: int = 0
    stage_ms_p50: dict[str, float] = {}
    rtf_tts: float = 0.0
    wait_ms: float = 0.0
    costs: StageCosts | None = None
    llm: dict[str, float] = {}
    memory: dict[str, ModelMemory] = {}
    faces: dict[str, int] = {}
    cpu_s: float = 0.0
    rss_bytes: int = 0
    version: int = PROTOCOL_VERSION


GatewayToAvatar = (
    Offer | AddCandidate | Leave | StopAvatar | SetOverload | RenewAvatar | TellEnding | TakePicture
)
AvatarToGateway = AvatarReady | Answer | Problem | Picture | AvatarStatus | TurnTrace
AvatarToInference = (
    OpenSession
    | CloseSession
    | Transcribe
    | CheckEndOfTurn
    | Respond
    | Commit
    | Say
    | Cancel
    | Buffered
    | OpenFaces
    | DrawFace
)
InferenceToAvatar = (
    SessionOpened
    | FacesOpened
    | FacesRefused
    | Transcript
    | EndOfTurn
    | Outlook
    | ReplyAudio
    | ReplyEnd
    | JobFailed
    | InferenceStatus
)
ToInference = AvatarToInference | AskInferenceStatus
AnyMessage = (
    GatewayToAvatar | AvatarToGateway | AvatarToInference | InferenceToAvatar | AskInferenceStatus
)

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[AnyMessage] = msgspec.msgpack.Decoder(AnyMessage)


class ProtocolError(ValueError):
    """Bytes that are no message of this protocol."""


def encode(message: Message) -> bytes:
    """The message as msgpack."""
    return _encoder.encode(message)


def decode(data: bytes) -> AnyMessage:
    """The message in `data`; raises `ProtocolError` where there is none."""
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ProtocolError(f"not a message of this protocol: {error}") from error
