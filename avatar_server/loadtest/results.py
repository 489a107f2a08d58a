"""What the viewers' processes report, as JSON lines; moments are seconds of the monotonic clock."""

from __future__ import annotations

from typing import Any

import msgspec


class Report(msgspec.Struct, kw_only=True, tag=True):
    """Base of what a viewers' process prints; `session` is the session's number, from 0."""

    session: int


class Joined(Report):
    """The session's viewers are in; again after a reconnection."""

    id: str
    avatar: str
    at: float
    took_s: float


class Settled(Report):
    """A process's viewers are in, or refused, and the greeting is over."""


class Talked(Report):
    """The last turn of a process's viewers is over."""


class Refused(Report):
    """The server did not let a viewer in; `status` is HTTP's, None where there was no answer."""

    viewer: int
    status: int | None
    message: str
    at: float


class Second(Report):
    """The last second, for the progress display, from the session's first viewer."""

    at: float
    fps: float
    state: str
    lag_ms: float
    freezes: int


class Turn(Report):
    """One spoken turn as the viewer lived it.

    `said_at` and `ended_at` are when the first and last audible samples left. `answered_at` is
    when the packet with the first audible sample of the reply came; None: no answer.
    `acknowledged_at`: of an acknowledgement that covered the wait; the answer's own first sample
    then came as much later as the server says. `cut_off`:
    the reply began before the viewer had finished. `stopped_at`: for an interruption, when the
    reply that was spoken over fell silent; `missed_interruption`: it did not. `lost`: the
    connection broke in the turn.
    """

    text: str
    said_at: float
    ended_at: float
    answered_at: float | None = None
    acknowledged_at: float | None = None
    cut_off: bool = False
    interruption: bool = False
    stopped_at: float | None = None
    missed_interruption: bool = False
    lost: bool = False
    server_voice_to_voice_ms: float | None = None
    stages_ms: dict[str, tuple[float, float]] = {}
    ledger_ms: dict[str, tuple[float, float]] = {}
    overran: str = ""
    heard: str = ""
    reply: str = ""

    @property
    def voice_to_voice_ms(self) -> float | None:
        """None without an answer, and where the viewer was cut off: then nobody waited."""
        if self.answered_at is None or self.cut_off:
            return None
        return (self.answered_at - self.ended_at) * 1e3

    @property
    def first_sound_ms(self) -> float | None:
        """As `voice_to_voice_ms`, to the acknowledgement where there was one."""
        if self.acknowledged_at is None or self.cut_off:
            return self.voice_to_voice_ms
        return (self.acknowledged_at - self.ended_at) * 1e3

    @property
    def barge_in_ms(self) -> float | None:
        """From the first audible sample of an interruption to the end of the old reply's sound."""
        return None if self.stopped_at is None else (self.stopped_at - self.said_at) * 1e3


class Connection(msgspec.Struct, kw_only=True):
    """What one connection of a viewer received: series as `Meter` keeps them.

    `offsets_ms`: see `figures.av_offsets_ms`.
    """

    shown: list[float]
    pts: list[int]
    audio_pts: list[int]
    audio_arrived: list[float]
    offsets_ms: list[float]
    octets: int
    packets_lost: int


class Finished(Report):
    """Everything that one viewer received, connection by connection."""

    viewer: int
    connections: list[Connection]
    lags: list[tuple[float, float]]
    events: list[tuple[float, str]]


class Failed(Report):
    """The viewers' process cannot go on; `message` is a sentence."""

    message: str


class Order(msgspec.Struct, kw_only=True):
    """What a viewers' process is told on its standard input, one JSON line.

    `viewers` of session number `session`, from number `first` on: number 0 launches `avatar`
    (where `id` is empty) and speaks the clips of `speech` where `talks`; the others watch the
    session `id`. `greets`: the avatar speaks first.
    """

    url: str
    session: int
    avatar: str
    viewers: int = 1
    first: int = 0
    id: str = ""
    talks: bool = True
    greets: bool = True
    speech: str = ""
    seed: int = 0
    answer_timeout_s: float = 15.0
    interrupt_share: float = 0.15
    pause_s: tuple[float, float] = (0.6, 2.5)


class Command(msgspec.Struct, kw_only=True):
    """What a viewers' process is told later: "talk" until the moment `until`, or "end"."""

    do: str
    until: float = 0.0


ANY_REPORT = Joined | Settled | Talked | Refused | Second | Turn | Finished | Failed

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(ANY_REPORT)


def encode_line(value: msgspec.Struct) -> bytes:
    """A JSON line."""
    return _encoder.encode(value) + b"\n"


def decode_report(line: bytes) -> ANY_REPORT:
    """Raises `msgspec.DecodeError` for anything else."""
    report: ANY_REPORT = _decoder.decode(line)
    return report
