"""Events on the data channel between the page and the avatar process (JSON, tag `type`)."""

from __future__ import annotations

from typing import Literal

import msgspec

DATA_CHANNEL = "events"
MAX_EVENT_BYTES = 16_384
MAX_TEXT_CHARS = 2_000


class Event(msgspec.Struct, kw_only=True, tag_field="type", tag=str.lower, omit_defaults=False):
    """Base of every event; `type` is the class name in lower case."""


# --- server -> page -------------------------------------------------------------------------


class Hello(Event):
    """First event on a new channel."""

    session: str
    viewer: str
    avatar: str
    title: str
    can_speak: bool
    ai_generated: bool = True
    recorded: bool = False


class State(Event):
    """What the avatar is doing. `speaker` says whether this viewer has the floor."""

    state: Literal["idle", "hearing", "thinking", "speaking", "unavailable"]
    turn: int = 0


class Heard(Event):
    """What the viewer said, as recognised; `final` is false while it may still change."""

    turn: int
    text: str
    final: bool


class Caption(Event):
    """The avatar's words so far, sent as each word is spoken.

    `spoken` is what has been said of the clause's `text`; a new `clause` starts a new line.
    """

    turn: int
    clause: int
    text: str
    spoken: str


class Interrupted(Event):
    """The reply stopped because the viewer spoke or pressed stop; `heard` is what was said."""

    turn: int
    heard: str


class TurnDone(Event):
    """A turn's figures for the overlay. Stages are [start, end] ms from the end of speech.

    `ledger_ms` says of each stage what it took and what it was granted of the budget; `overran`
    names the stage that is to blame where the budget was missed. `acknowledged_ms` is when an
    acknowledgement was heard before the answer.
    """

    turn: int
    voice_to_voice_ms: float | None
    stages_ms: dict[str, tuple[float, float]]
    budget_ms: float = 0.0
    ledger_ms: dict[str, tuple[float, float]] = {}
    overran: str = ""
    acknowledged_ms: float | None = None


class Stats(Event):
    """Once a second: what the server measures of this session."""

    fps: float
    bitrate_bps: float
    render_ms: float
    encode_ms: float
    viewers: int
    overload: int = 0
    overload_text: str = ""
    """What is saved at this level, in words; empty at 0."""
    layer: Literal["full", "low"] = "full"
    """Which of the session's pictures this viewer is sent."""


class Notice(Event):
    """Something the viewer should know, in words. `code` is stable, for the page's logic."""

    code: str
    message: str


class Pong(Event):
    """Answer to `Ping`, with its `t`."""

    t: float


# --- page -> server -------------------------------------------------------------------------


class Text(Event):
    """The viewer typed instead of speaking."""

    text: str


class Stop(Event):
    """Stop speaking now."""


class Ping(Event):
    """Sent twice a second; a viewer silent for longer than the liveness bound is gone."""

    t: float


class Bye(Event):
    """The viewer leaves."""


ServerEvent = Hello | State | Heard | Caption | Interrupted | TurnDone | Stats | Notice | Pong
PageEvent = Text | Stop | Ping | Bye

_encoder = msgspec.json.Encoder()
_page_decoder: msgspec.json.Decoder[PageEvent] = msgspec.json.Decoder(PageEvent)
_server_decoder: msgspec.json.Decoder[ServerEvent] = msgspec.json.Decoder(ServerEvent)


class EventError(ValueError):
    """A data-channel message that is no event of ours."""


def encode_event(event: Event) -> str:
    """The event as JSON text."""
    return _encoder.encode(event).decode()


def decode_page_event(data: str | bytes) -> PageEvent:
    """What the page sent; raises `EventError` where it is too large or not an event."""
    if len(data) > MAX_EVENT_BYTES:
        raise EventError(f"event of {len(data)} bytes; at most {MAX_EVENT_BYTES} are taken")
    try:
        return _page_decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise EventError(f"not an event: {error}") from error


def decode_server_event(data: str | bytes) -> ServerEvent:
    """What the server sent (for clients written in Python); raises `EventError`."""
    try:
        return _server_decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise EventError(f"not an event: {error}") from error
