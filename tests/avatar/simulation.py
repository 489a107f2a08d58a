"""A session in virtual time: viewers' voices as tones, a scripted inference, 20 ms a step."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from avatar_server.avatar.conversation import Conversation
from avatar_server.avatar.inference_client import Handler, Job, JobEvent, JobLost
from avatar_server.avatar.playout import Playout
from avatar_server.avatars import AvatarSpec, VoiceSpec
from avatar_server.clock import ManualClock
from avatar_server.config import Settings, settings_from_values
from avatar_server.protocol import events
from avatar_server.protocol.messages import (
    CheckEndOfTurn,
    EndOfTurn,
    Outlook,
    ReplyAudio,
    ReplyEnd,
    Respond,
    Say,
    Transcribe,
    Transcript,
    TurnTrace,
    Word,
)
from renderers.contract import VisemeSpan

STEP_S = 0.02
TONE = 8_000
EMOTION = "happy"
WORD_S = 0.3


class LoudnessDetector:
    """Speech is what is loud: 0.95 for a tone, 0 for silence."""

    def probability(self, frame: NDArray[np.int16]) -> float:
        loud = float(np.mean(np.abs(frame.astype(np.int32)) > TONE / 4))
        return 0.95 if loud > 0.5 else 0.0

    def reset(self) -> None:
        pass


class Inline:
    def submit(self, call: Callable[[], None]) -> bool:
        call()
        return True


class Later:
    """Calls at moments of virtual time."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._order = itertools.count()
        self._calls: list[tuple[float, int, Callable[[], None]]] = []

    def after(self, seconds: float, call: Callable[[], None]) -> None:
        heapq.heappush(self._calls, (self._clock.now() + seconds, next(self._order), call))

    def run_due(self) -> None:
        while self._calls and self._calls[0][0] <= self._clock.now() + 1e-9:
            heapq.heappop(self._calls)[2]()


@dataclass
class FakeInference:
    """Answers after set delays; counts how each job ended."""

    later: Later
    on_available: Callable[[bool], None] | None = None
    available: bool = True
    transcripts: list[str] = field(default_factory=list)
    default_transcript: str = "what can you tell me"
    probability: float = 0.9
    reply: list[str] = field(default_factory=lambda: ["This is an answer.", "It has two clauses."])
    stt_s: float = 0.2
    end_of_turn_s: float = 0.15
    first_sound_s: float = 0.3
    outlook_s: float | None = None
    clause_s: float = 0.2
    pieces: int = 3
    submitted: list[Job] = field(default_factory=list)
    open: dict[str, Handler] = field(default_factory=dict)
    done: set[str] = field(default_factory=set)
    cancelled: set[str] = field(default_factory=set)
    committed: set[str] = field(default_factory=set)
    lost: set[str] = field(default_factory=set)

    def submit(self, job: Job, handler: Handler) -> None:
        self.submitted.append(job)
        if not self.available:
            self.lost.add(job.job)
            self.later.after(0.0, lambda: handler(JobLost(job.job, "gone")))
            return
        self.open[job.job] = handler
        match job:
            case Transcribe():
                text = self.transcripts.pop(0) if self.transcripts else self.default_transcript
                self._finish(self.stt_s, job.job, Transcript(job=job.job, text=text))
            case CheckEndOfTurn():
                result = EndOfTurn(job=job.job, probability=self.probability)
                self._finish(self.end_of_turn_s, job.job, result)
            case Respond():
                if self.outlook_s is not None:
                    outlook = Outlook(job=job.job, first_sound_s=self.outlook_s)
                    self.later.after(0.01, lambda: self._emit(job.job, outlook))
                self._speak(job.job, self.reply, self.first_sound_s)
            case Say():
                self._speak(job.job, [job.text], min(self.first_sound_s, 0.3))

    def cancel(self, job: str) -> None:
        if self.open.pop(job, None):
            self.cancelled.add(job)

    def commit(self, job: str) -> None:
        if job in self.open:
            self.committed.add(job)

    def buffered(self, job: str, seconds: float) -> None:
        pass

    def kill(self) -> None:
        self.available = False
        handlers, self.open = self.open, {}
        if self.on_available:
            self.on_available(False)
        for job, handler in handlers.items():
            self.lost.add(job)
            handler(JobLost(job, "the inference process ended"))

    def revive(self) -> None:
        self.available = True
        if self.on_available:
            self.on_available(True)

    def of_kind(self, kind: type[Job]) -> list[Job]:
        return [job for job in self.submitted if isinstance(job, kind)]

    def _emit(self, job: str, event: JobEvent) -> None:
        if job in self.open:
            self.open[job](event)

    def _finish(self, after: float, job: str, event: JobEvent) -> None:
        def finish() -> None:
            handler = self.open.pop(job, None)
            if handler:
                self.done.add(job)
                handler(event)

        self.later.after(after, finish)

    def _speak(self, job: str, clauses: list[str], at: float) -> None:
        for number, text in enumerate(clauses):
            for piece in clause_pieces(job, number, text, self.pieces):
                self.later.after(at, lambda piece=piece: self._emit(job, piece))
                at += self.clause_s / self.pieces
        stages = {"queued": 1.0, "route": 9.0, "retrieve": 10.0, "tts_first_piece": 150.0}
        self._finish(at, job, ReplyEnd(job=job, text=" ".join(clauses), stages_ms=stages))


def clause_pieces(job: str, number: int, text: str, pieces: int = 1) -> list[ReplyAudio]:
    """A clause of 0.3 s a word, a tone with one viseme a word."""
    words = [
        Word(text=word, start=i * WORD_S, end=(i + 1) * WORD_S)
        for i, word in enumerate(text.split())
    ]
    visemes = [VisemeSpan(10, word.start, word.end) for word in words]
    pcm = tone(len(words) * WORD_S, 48_000)
    parts = np.array_split(pcm, pieces)
    return [
        ReplyAudio(
            job=job,
            clause=number,
            piece=i,
            pcm=part.tobytes(),
            last=i == pieces - 1,
            text=text if i == 0 else "",
            words=words if i == 0 else [],
            visemes=visemes if i == 0 else [],
            emotion=EMOTION if i == 0 else "",
        )
        for i, part in enumerate(parts)
    ]


def tone(seconds: float, rate_hz: int) -> NDArray[np.int16]:
    """A square-like tone: loud at nearly every sample."""
    count = round(seconds * rate_hz)
    wave = np.where(np.arange(count) // 40 % 2 == 0, TONE, -TONE)
    return wave.astype(np.int16)


class RecordingMouth:
    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []

    def add_speech(self, start, visemes, energy) -> None:  # type: ignore[no-untyped-def]
        self.calls.append(("add", start, tuple(visemes), energy))

    def extend_energy(self, start, energy) -> None:  # type: ignore[no-untyped-def]
        self.calls.append(("extend", start, energy))

    def shift_speech(self, after: float, by: float) -> None:
        self.calls.append(("shift", after, by))

    def set_emotion(self, name: str, t: float) -> None:
        self.calls.append(("emotion", name, t))

    def add_pitch(self, start, pitch) -> None:  # type: ignore[no-untyped-def]
        self.calls.append(("pitch", start, pitch))

    def hear_viewer(self, voiced: bool, t: float) -> None:
        self.calls.append(("hear", voiced, t))

    def cut_speech(self, at: float) -> None:
        self.calls.append(("cut", at))


class Simulation:
    """Everything of a session but the media and the models."""

    def __init__(self, greeting: str = "", **overrides: object) -> None:
        self.clock = ManualClock(100.0)
        self.later = Later(self.clock)
        self.inference = FakeInference(self.later)
        self.mouth = RecordingMouth()
        self.playout = Playout(self.mouth, clock=self.clock)
        self.settings: Settings = settings_from_values(
            {"turns": {"acknowledge": False, **overrides}}
        )
        self.events: list[tuple[float, events.ServerEvent, str | None]] = []
        self.traces: list[TurnTrace] = []
        self.heard: list[NDArray[np.int16]] = []
        self.loud: list[tuple[float, bool]] = []
        spec = AvatarSpec(
            name="test",
            title="Test",
            voice=VoiceSpec(name="none"),
            greeting=greeting,
            folder=Path("."),
        )
        self.talk = Conversation(
            self.settings,
            spec,
            "session",
            self.inference,
            self.playout,
            self.mouth,
            self.clock,
            emit=lambda event, viewer: self.events.append((self.clock.now(), event, viewer)),
            trace=self.traces.append,
            build_detector=LoudnessDetector,
            executor=Inline(),
        )
        self._voices: dict[str, bool] = {}

    def join(self, *viewers: str, can_speak: bool = True) -> None:
        for viewer in viewers:
            self._voices[viewer] = False
            self.talk.on_join(viewer, can_speak)

    def leave(self, viewer: str, goodbye: bool = True) -> None:
        del self._voices[viewer]
        self.talk.on_leave(viewer, "left", goodbye)

    def run(self, seconds: float, *speaking: str) -> None:
        """Time passes in steps of 20 ms; the viewers of `speaking` speak."""
        voice, silence = tone(STEP_S, 16_000), np.zeros(320, np.int16)
        for _ in range(round(seconds / STEP_S)):
            self.later.run_due()
            for viewer in list(self._voices):
                self.talk.on_audio(viewer, voice if viewer in speaking else silence)
            out = self.playout.pull(960)
            self.loud.append((self.clock.now(), bool(np.abs(out).max() > 330)))
            self.talk.tick()
            self.clock.advance(STEP_S)

    def run_until(self, condition: Callable[[], bool], limit_s: float = 20.0) -> float:
        """Silence until `condition`; returns how long that took."""
        for step in range(round(limit_s / STEP_S)):
            if condition():
                return step * STEP_S
            self.run(STEP_S)
        raise AssertionError(f"not reached within {limit_s} s of silence")

    def of_type(self, kind: type[events.ServerEvent]) -> list[events.ServerEvent]:
        return [event for _, event, _ in self.events if isinstance(event, kind)]

    def states(self) -> list[str]:
        return [event.state for event in self.of_type(events.State)]  # type: ignore[union-attr]

    def silent_since(self) -> float:
        """The moment from which nothing was audible any more."""
        audible = [at for at, loud in self.loud if loud]
        return audible[-1] + STEP_S if audible else 0.0
