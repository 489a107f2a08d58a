"""Captions of a recording, made of the events that the pages are sent."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from avatar_server.protocol import events

VIEWER = "Viewer"
"""Whose name nobody knows."""
_TYPED_S = 2.0
"""How long a line that was typed, or said in no time, is shown."""
_SHORTEST_S = 0.3
_CUT_OFF = " –"


@dataclass(frozen=True, slots=True)
class Cue:
    """One caption, in seconds of whatever clock the moments were given in."""

    start: float
    end: float
    who: str
    text: str

    def moved(self, by: float) -> Cue:
        """The same `by` seconds later."""
        return Cue(self.start + by, self.end + by, self.who, self.text)


@dataclass(slots=True)
class _Line:
    start: float
    turn: int
    clause: int
    text: str
    spoken: str


class CaptionMaker:
    """Turns events into cues, one after the other and never two at once. Pure logic."""

    def __init__(self, avatar: str, *, viewers: bool) -> None:
        """`avatar` is its name as it is shown; `viewers`: whether their words are written."""
        self._avatar, self._viewers = avatar, viewers
        self._line: _Line | None = None
        self._hearing_since: float | None = None
        self._free_from = float("-inf")

    def take(self, at: float, event: events.Event) -> Iterator[Cue]:
        """What is certain once `event` has been sent at `at`."""
        match event:
            case events.State() if event.state == "hearing":
                self._hearing_since = self._hearing_since or at
            case events.Heard() if event.final:
                yield from self._heard(at, event.text)
            case events.Caption():
                line = self._line
                if line is None or (line.turn, line.clause) != (event.turn, event.clause):
                    yield from self.finish(at)
                    self._line = _Line(at, event.turn, event.clause, event.text, event.spoken)
                else:
                    line.spoken = event.spoken
            case events.Interrupted():
                if self._line is not None and self._line.spoken:
                    self._line.text = self._line.spoken.strip() + _CUT_OFF
                yield from self.finish(at)
            case events.TurnDone():
                yield from self.finish(at)

    def finish(self, at: float) -> Iterator[Cue]:
        """What is being said is over."""
        line, self._line = self._line, None
        if line is not None:
            yield from self._cue(line.start, at, self._avatar, line.text)

    def _heard(self, at: float, text: str) -> Iterator[Cue]:
        since, self._hearing_since = self._hearing_since, None
        if not self._viewers:
            return
        yield from self.finish(at if since is None else since)
        yield from self._cue(since or at, at if since else at + _TYPED_S, VIEWER, text)

    def _cue(self, start: float, end: float, who: str, text: str) -> Iterator[Cue]:
        text = " ".join(text.split())
        if not text:
            return
        start = max(start, self._free_from)
        end = max(end, start + _SHORTEST_S)
        self._free_from = end
        yield Cue(start, end, who, text)


def webvtt_cue(cue: Cue) -> str:
    """The cue as a block of a WebVTT file (W3C), with the blank line after it."""
    text = cue.text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    who = "".join(c for c in cue.who if c not in "&<>\n\r")
    return f"{_time(cue.start)} --> {_time(cue.end)}\n<v {who}>{text}\n\n"


WEBVTT_HEADER = "WEBVTT\n\n"


def _time(seconds: float) -> str:
    ms = round(seconds * 1000)
    minutes, ms = divmod(ms, 60_000)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02}:{minutes:02}:{ms // 1000:02}.{ms % 1000:03}"
