"""Playout: the one clock of a session, for sound, mouth, captions and words heard.

The clock is the number of samples pulled. The audio thread pulls 20 ms at a time; the event loop
pushes speech and cuts it. Everything that is timed (a clause, a viseme, a word) is a count of
samples on this clock, so that nothing can drift against anything else however long a session runs.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from avatar_server.avatar.clip import SAMPLE_RATE_HZ, Clip
from avatar_server.avatar.pitch import pitch_of_whole
from avatar_server.avatar.playout_events import (
    ClauseStarted,
    Cut,
    Expressive,
    FirstAudible,
    Melodic,
    Mouth,
    PlayoutEvent,
    ReplyFinished,
    WordSpoken,
)
from avatar_server.clock import Clock, MonotonicClock
from avatar_server.protocol.messages import ReplyAudio

__all__ = [
    "SAMPLE_RATE_HZ",
    "ClauseStarted",
    "Cut",
    "Expressive",
    "FirstAudible",
    "Mouth",
    "Playout",
    "PlayoutEvent",
    "ReplyFinished",
    "WordSpoken",
]

_AUDIBLE = 330
# -40 dBFS: above the noise floor of synthetic speech, below its softest consonants.
_RAMP_SAMPLES = 240
# 5 ms: an underrun neither clicks nor swallows a consonant.
_SPOKEN_WORDS = 64
# Some 20 s of talk, to compare with what comes back through a microphone.
_PAST_SAMPLES = 24_000
# 0.5 s of what was played, for a face that is drawn from the sound around its frame.
_MAX_HELD = 4
# Replies begun on the chance that they are wanted; the oldest goes first.


@dataclass(slots=True)
class _Reply:
    key: str
    turn: int = 0
    clips: list[Clip] = field(default_factory=list)
    current: int = 0
    ended: bool = False
    audible: bool = False
    aside_audible: bool = False

    @property
    def waiting(self) -> int:
        return sum(clip.waiting for clip in self.clips[self.current :])


class Playout:
    """Plays one reply at a time; speculative replies are held until they are committed.

    Replies are named by a key of the caller's (the job's id). Thread-safe; the lock is held for
    microseconds.
    """

    def __init__(
        self,
        mouth: Mouth | None = None,
        *,
        clock: Clock | None = None,
        fade_ms: float = 15.0,
        rebuffer_ms: float = 80.0,
        max_buffer_s: float = 180.0,
    ) -> None:
        """`fade_ms`: how a cut reply ends, without a click. `rebuffer_ms`: sound gathered after an
        underrun before going on. `max_buffer_s`: the most that a reply may have waiting.
        """
        self._clock = clock or MonotonicClock()
        self.mouth = mouth
        self.on_events: Callable[[], None] | None = None
        """Called by `pull`, on its thread, when there are events to take."""
        self._fade = round(fade_ms * SAMPLE_RATE_HZ / 1000)
        self._rebuffer = round(rebuffer_ms * SAMPLE_RATE_HZ / 1000)
        self._max_waiting = round(max_buffer_s * SAMPLE_RATE_HZ)
        self._lock = threading.Lock()
        self._position = 0
        self._active: _Reply | None = None
        self._held: dict[str, _Reply] = {}
        self._tail: NDArray[np.int16] = np.zeros(0, np.int16)
        self._past: NDArray[np.int16] = np.zeros(_PAST_SAMPLES, np.int16)
        self._spoken: deque[tuple[int, str]] = deque(maxlen=_SPOKEN_WORDS)
        self._events: list[PlayoutEvent] = []
        self._underruns = 0

    @property
    def position(self) -> float:
        """Seconds of sound pulled so far."""
        return self._position / SAMPLE_RATE_HZ

    @property
    def underruns(self) -> int:
        """How often speech ran dry within a clause."""
        return self._underruns

    # --- event loop -----------------------------------------------------------------------------

    def push(self, key: str, piece: ReplyAudio) -> bool:
        """Add a piece of speech; False where the reply has more waiting than is allowed.

        Pieces of a reply that was cut or dropped must not be pushed: a key not known begins a held
        reply, and the oldest held one is dropped beyond four.
        """
        pcm = np.frombuffer(piece.pcm[: len(piece.pcm) // 2 * 2], dtype="<i2").astype(np.int16)
        # A clause may come in one piece of seconds: its pitch is found before the lock is taken.
        first_pitch = pitch_of_whole(pcm) if piece.piece == 0 else None
        with self._lock:
            reply = self._find(key) or self._hold(key)
            if reply.waiting + len(pcm) > self._max_waiting:
                return False
            clip = reply.clips[-1] if reply.clips else None
            if clip is None or clip.index != piece.clause:
                if clip is not None and not clip.complete:
                    self._extend(reply, clip, clip.close())
                clip = Clip(piece.clause, piece.text, piece.words, piece.visemes, piece.emotion)
                reply.clips.append(clip)
                known = clip.add(pcm, first_pitch)
                if reply is self._active:
                    self._schedule(reply, clip, known[1])
            else:
                self._extend(reply, clip, clip.add(pcm))
            if piece.last and not clip.complete:
                self._extend(reply, clip, clip.close())
        return True

    def end(self, key: str) -> None:
        """All pieces of the reply have been pushed."""
        with self._lock:
            reply = self._find(key) or self._hold(key)
            reply.ended = True
            if reply.clips and not reply.clips[-1].complete:
                self._extend(reply, reply.clips[-1], reply.clips[-1].close())

    def commit(self, key: str, turn: int) -> None:
        """Play the reply, from the next pull on. Raises `RuntimeError` while another one plays."""
        with self._lock:
            if self._active is not None:
                raise RuntimeError(f"turn {self._active.turn} is still playing: cut it first")
            reply = self._held.pop(key, None) or _Reply(key)
            reply.turn = turn
            self._active = reply
            for clip in reply.clips:
                self._schedule(reply, clip, clip.energy())

    def add_aside(self, key: str, pieces: Sequence[ReplyAudio]) -> bool:
        """Play a remark of one or more clauses before the reply that plays, as no part of it.

        False, and nothing is played, where sound of the reply is there already.
        """
        with self._lock:
            reply = self._active
            if reply is None or reply.key != key or reply.clips or reply.ended:
                return False
            for piece in pieces:
                if piece.piece == 0:
                    number = -1 - len(reply.clips)
                    clip = Clip(number, piece.text, piece.words, piece.visemes, piece.emotion)
                    reply.clips.append(clip)
                clip = reply.clips[-1]
                clip.add(np.frombuffer(piece.pcm, dtype="<i2").astype(np.int16))
                if piece.last:
                    clip.close()
            for clip in reply.clips:
                self._schedule(reply, clip, clip.energy())
            return True

    def drop(self, key: str) -> None:
        """Forget a held reply."""
        with self._lock:
            self._held.pop(key, None)

    def cut(self, turn: int) -> Cut:
        """Stop the reply of `turn` (a fade of some 15 ms is still heard)."""
        with self._lock:
            reply = self._active
            if reply is None or reply.turn != turn:
                return Cut("", "", audible=False)
            self._active = None
            clips = reply.clips
            heard = _joined(c.heard() for c in clips[: reply.current + 1] if not c.aside)
            rest = _joined(
                clip.text[len(clip.heard()) :] if number == reply.current else clip.text
                for number, clip in enumerate(clips)
                if number >= reply.current and not clip.aside
            )
            self._tail = np.zeros(0, np.int16)
            if reply.current < len(clips) and clips[reply.current].begun:
                tail = np.zeros(self._fade, np.int16)
                count = clips[reply.current].take(tail)
                ramp = np.linspace(1.0, 0.0, max(count, 1), dtype=np.float32)[:count]
                self._tail = (tail[:count] * ramp).astype(np.int16)
            if self.mouth:
                self.mouth.cut_speech((self._position + len(self._tail)) / SAMPLE_RATE_HZ)
            return Cut(heard, rest, reply.audible)

    def waiting_s(self, key: str) -> float:
        """Seconds of the reply's speech that wait to be played."""
        with self._lock:
            reply = self._find(key)
            return reply.waiting / SAMPLE_RATE_HZ if reply else 0.0

    def spoken_recently(self, seconds: float = 8.0) -> str:
        """The words played in the last `seconds`, for telling an echo from a viewer."""
        with self._lock:
            since = self._position - round(seconds * SAMPLE_RATE_HZ)
            return " ".join(text for at, text in self._spoken if at >= since)

    def take_events(self) -> list[PlayoutEvent]:
        """What happened since the last call, in order."""
        with self._lock:
            events, self._events = self._events, []
            return events

    # --- audio thread ---------------------------------------------------------------------------

    def pull(self, samples: int) -> NDArray[np.int16]:
        """The next `samples` of sound (int16, mono, 48 kHz): speech or silence, never a wait."""
        out = np.zeros(samples, np.int16)
        now = self._clock.now()
        with self._lock:
            self._fill(out, now)
            self._position += samples
            kept = out[-_PAST_SAMPLES:]
            first = self._position - len(kept)
            self._past[np.arange(first, self._position) % _PAST_SAMPLES] = kept
            fresh = bool(self._events)
        if fresh and self.on_events:
            self.on_events()
        return out

    # --- video thread ---------------------------------------------------------------------------

    def sound(self, first: int, count: int) -> NDArray[np.int16]:
        """Sound of this clock as it was played, or is to be; see `renderers.contract.Sound`.

        Zeros also for what was played more than half a second ago.
        """
        out = np.zeros(count, np.int16)
        with self._lock:
            now = self._position
            begin, end = max(first, now - _PAST_SAMPLES, 0), min(first + count, now)
            if begin < end:
                out[begin - first : end - first] = self._past[np.arange(begin, end) % _PAST_SAMPLES]
            _lay(self._tail, now, out, first)
            reply = self._active
            for clip in reply.clips[reply.current :] if reply else ():
                if clip.start is None:
                    break
                at = max(clip.start + clip.played, now + len(self._tail))
                ahead = max(0, first - at)
                if at >= first + count or ahead >= clip.waiting:
                    continue
                clip.peek(ahead, out[max(0, at - first) :][: clip.waiting - ahead])
        return out

    def _fill(self, out: NDArray[np.int16], now: float) -> None:
        done = self._play_tail(out)
        reply = self._active
        while reply is not None and done < len(out):
            if reply.current == len(reply.clips):
                if reply.ended:
                    self._finish(reply, done)
                break
            clip = reply.clips[reply.current]
            if clip.finished:
                reply.current += 1
                continue
            done += self._play(reply, clip, out, done, now)
            if not clip.finished and done < len(out):
                self._starve(reply, clip, out, done)
                break
        if reply is not None and reply.ended and reply is self._active:
            while reply.current < len(reply.clips) and reply.clips[reply.current].finished:
                reply.current += 1
            if reply.current == len(reply.clips):
                self._finish(reply, done)

    def _play_tail(self, out: NDArray[np.int16]) -> int:
        count = min(len(self._tail), len(out))
        out[:count] = self._tail[:count]
        self._tail = self._tail[count:]
        return count

    def _play(
        self, reply: _Reply, clip: Clip, out: NDArray[np.int16], done: int, now: float
    ) -> int:
        if clip.starved and not clip.complete and clip.waiting < self._rebuffer:
            return 0
        at = self._position + done
        if not clip.begun:
            clip.begun = True
            self._reschedule(reply, clip, at)
            self._events.append(
                ClauseStarted(reply.turn, clip.index, clip.text, at / SAMPLE_RATE_HZ, clip.emotion)
            )
        count = clip.take(out[done:])
        if count and clip.starved:
            clip.starved = False
            _ramp(out[done : done + min(count, _RAMP_SAMPLES)], rising=True)
        if not (reply.aside_audible if clip.aside else reply.audible):
            loud = np.flatnonzero(np.abs(out[done : done + count].astype(np.int32)) > _AUDIBLE)
            if len(loud):
                reply.aside_audible = reply.aside_audible or clip.aside
                reply.audible = not clip.aside
                first = done + int(loud[0])
                self._events.append(
                    FirstAudible(
                        reply.turn,
                        now + first / SAMPLE_RATE_HZ,
                        (self._position + first) / SAMPLE_RATE_HZ,
                        clip.aside,
                    )
                )
        for word, spoken in clip.words_begun():
            self._spoken.append((at, word.text))
            position = (at + count) / SAMPLE_RATE_HZ
            self._events.append(WordSpoken(reply.turn, clip.index, clip.text, spoken, position))
        return count

    def _starve(self, reply: _Reply, clip: Clip, out: NDArray[np.int16], done: int) -> None:
        if not clip.begun:
            return
        if not clip.starved:
            clip.starved = True
            self._underruns += 1
            _ramp(out[max(0, done - _RAMP_SAMPLES) : done], rising=False)
        self._shift(reply, self._position + done, len(out) - done)

    def _shift(self, reply: _Reply, after: int, by: int) -> None:
        for clip in reply.clips[reply.current :]:
            if clip.start is not None:
                clip.start += by
        if self.mouth:
            self.mouth.shift_speech(after / SAMPLE_RATE_HZ, by / SAMPLE_RATE_HZ)

    def _reschedule(self, reply: _Reply, clip: Clip, at: int) -> None:
        """Make the plan true where a clause begins later than was planned when it came in."""
        if clip.start is not None and clip.start < at:
            self._shift(reply, clip.start, at - clip.start)

    def _schedule(self, reply: _Reply, clip: Clip, energy: NDArray[np.float32]) -> None:
        before = reply.clips.index(clip) - 1
        start = self._position + len(self._tail)
        if before >= reply.current:
            previous = reply.clips[before]
            if previous.start is not None:
                start = max(start, previous.start + previous.received)
        clip.start = start
        if self.mouth:
            self.mouth.add_speech(start / SAMPLE_RATE_HZ, clip.visemes, energy)
            if isinstance(self.mouth, Melodic):
                self.mouth.add_pitch(start / SAMPLE_RATE_HZ, clip.pitch())

    def _extend(self, reply: _Reply, clip: Clip, known: tuple[int, NDArray[np.float32]]) -> None:
        offset, energy = known
        if clip.start is not None and len(energy) and self.mouth and reply is self._active:
            start = (clip.start + offset) / SAMPLE_RATE_HZ
            self.mouth.extend_energy(start, energy)
            if isinstance(self.mouth, Melodic):
                self.mouth.add_pitch(start, clip.latest_pitch())

    def _finish(self, reply: _Reply, done: int) -> None:
        self._active = None
        heard = _joined(clip.text for clip in reply.clips if not clip.aside)
        position = (self._position + done) / SAMPLE_RATE_HZ
        self._events.append(ReplyFinished(reply.turn, heard, position))

    def _find(self, key: str) -> _Reply | None:
        if self._active is not None and self._active.key == key:
            return self._active
        return self._held.get(key)

    def _hold(self, key: str) -> _Reply:
        while len(self._held) >= _MAX_HELD:
            del self._held[next(iter(self._held))]
        reply = self._held[key] = _Reply(key)
        return reply


def _lay(part: NDArray[np.int16], at: int, out: NDArray[np.int16], first: int) -> None:
    """Copy what of `part`, which begins at `at`, falls into `out`, which begins at `first`."""
    begin, end = max(at, first), min(at + len(part), first + len(out))
    if begin < end:
        out[begin - first : end - first] = part[begin - at : end - at]


def _ramp(part: NDArray[np.int16], *, rising: bool) -> None:
    ends = (0.0, 1.0) if rising else (1.0, 0.0)
    part[:] = (part * np.linspace(*ends, max(len(part), 1), dtype=np.float32)[: len(part)]).astype(
        np.int16
    )


def _joined(parts: Iterable[str]) -> str:
    return " ".join(part.strip() for part in parts if part.strip())
