"""Turn-taking: who is speaking, when a turn is over, when a reply is interrupted.

A pure state machine. It is told what happens (voice-activity frames, results of the checks it asked
for, progress of replies, typed text, time) and returns what is to be done. It holds no audio, owns
no task and reads no clock, so every rule can be tested in virtual time.

Positions in a viewer's sound are counted in samples at 16 kHz (`start`, `end`); moments are seconds
of the session's clock (`at`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from avatar_server.avatar.onset import Onset
from avatar_server.avatar.short_answers import is_question, is_short_answer, word_count
from avatar_server.avatar.turn_actions import (
    Action,
    BargeIn,
    CancelSpeculation,
    CommitTurn,
    Discard,
    DiscardReason,
    Prepare,
    Speculate,
    TalkState,
    UtteranceStarted,
)
from avatar_server.config import TurnSettings

SAMPLE_RATE_HZ = 16_000
FRAME_SAMPLES = 512

_RELEASE = 0.15
# Silero's own hysteresis: speech goes on until the probability is this much below the threshold.
_RESUME_MS = 64
# Speech of this length within a pause means that the viewer goes on; one stray frame does not.
_SPEAKING_THRESHOLD = 0.7
# While the avatar speaks, what echo cancellation leaves over is often taken for faint speech.
_STALLED_S = 0.5
# Frames come every 32 ms; after this long without one the sound counts as silence.
_PREPARE_BEFORE_MS = 600
# A reply takes about this long to begin; that much before a certain end it is prepared.
_MAX_WAIT_S = 15.0
# A turn whose transcript has not come by then is given up, so that nothing waits for ever.


@dataclass(slots=True)
class _Check:
    number: int
    end: int
    text: str | None = None
    probability: float | None = None
    prepared: bool = False
    forced: bool = False
    asked_at: float = 0.0


@dataclass(slots=True)
class _Utterance:
    number: int
    viewer: str
    start: int
    voiced_end: int
    voiced_at: float
    voiced_samples: int = 0
    resume_samples: int = 0
    position: int = 0
    at: float = 0.0
    interrupted: bool = False
    over: bool = False
    check: _Check | None = None


@dataclass(slots=True)
class _Reply:
    turn: int
    viewer: str | None
    speaking: bool = False


@dataclass(slots=True)
class TurnTaking:
    """The state machine of one session. One viewer at a time has the floor.

    The floor goes to the first viewer who speaks or types and stays theirs until the reply to
    them is over; the others are not heard meanwhile. At most one reply exists at a time.
    """

    settings: TurnSettings
    _onsets: dict[str, Onset] = field(default_factory=dict)
    _heard_until: dict[str, int] = field(default_factory=dict)
    _caution: dict[str, int] = field(default_factory=dict)
    _utterance: _Utterance | None = None
    _reply: _Reply | None = None
    _floor: str | None = None
    _utterances: int = 0
    _checks: int = 0
    _turns: int = 0

    @property
    def state(self) -> TalkState:
        """What the avatar is doing, as a viewer would say it."""
        utterance = self._utterance
        if utterance is not None:
            return "thinking" if utterance.over else "hearing"
        if self._reply is not None:
            return "speaking" if self._reply.speaking else "thinking"
        return "idle"

    @property
    def turn(self) -> int:
        """The number of the newest turn; 0 before the first."""
        return self._turns

    @property
    def floor(self) -> str | None:
        """The viewer who has the floor."""
        return self._floor

    @property
    def reply_turn(self) -> int | None:
        """The turn whose reply is being thought of or spoken."""
        return self._reply.turn if self._reply else None

    @property
    def unfinished(self) -> tuple[str, int, int] | None:
        """Who is speaking just now, and the samples of their utterance so far; none in a pause."""
        utterance = self._utterance
        if utterance is None or utterance.check is not None:
            return None
        return utterance.viewer, utterance.start, utterance.position

    # --- sound ------------------------------------------------------------------------------

    def on_frame(self, viewer: str, end: int, at: float, probability: float) -> list[Action]:
        """A voice-activity frame of `viewer` that ends at sample `end`, at the moment `at`."""
        if self._floor is not None and viewer != self._floor:
            self._onsets.pop(viewer, None)
            return []
        if self._utterance is None:
            return self._seek_onset(viewer, end, at, probability)
        return self._follow(self._utterance, end, at, probability)

    def on_tick(self, now: float) -> list[Action]:
        """Time passes; to be called at least every 100 ms."""
        utterance = self._utterance
        if utterance is None:
            return []
        check = utterance.check
        if utterance.over and check and now - check.asked_at > _MAX_WAIT_S:
            return self._discard("failed")
        if now - utterance.at > _STALLED_S:
            return self._decide(utterance, now)
        return []

    def _seek_onset(self, viewer: str, end: int, at: float, probability: float) -> list[Action]:
        settings = self.settings
        threshold, needed_ms = settings.speech_threshold, float(settings.start_ms)
        if self._reply is not None:
            caution = self._caution.get(viewer, 0)
            needed_ms = max(needed_ms, float(settings.barge_in_ms)) * (1 + caution)
            if self._reply.speaking:
                threshold = max(threshold, min(_SPEAKING_THRESHOLD + 0.1 * caution, 0.9))
        onset = self._onsets.setdefault(viewer, Onset())
        voiced = probability >= threshold
        onset.add(end, at, FRAME_SAMPLES, voiced)
        if not voiced or onset.voiced_ms < needed_ms:
            return []
        del self._onsets[viewer]
        start = max(
            onset.start - _samples(settings.pre_roll_ms), self._heard_until.get(viewer, 0), 0
        )
        return self._open(viewer, start, onset, end, at)

    def _open(self, viewer: str, start: int, onset: Onset, end: int, at: float) -> list[Action]:
        actions: list[Action] = self._interrupt(viewer, "speech", at, onset.at)
        self._floor = viewer
        self._onsets.clear()
        self._utterances += 1
        self._utterance = _Utterance(
            number=self._utterances,
            viewer=viewer,
            start=start,
            voiced_end=onset.voiced_end,
            voiced_at=onset.voiced_at,
            voiced_samples=onset.voiced_samples,
            position=end,
            at=at,
            interrupted=bool(actions),
        )
        actions.append(UtteranceStarted(self._utterances, viewer, onset.at))
        return actions

    def _follow(
        self, utterance: _Utterance, end: int, at: float, probability: float
    ) -> list[Action]:
        utterance.position, utterance.at = end, at
        actions: list[Action] = []
        if probability >= self.settings.speech_threshold - _RELEASE:
            utterance.resume_samples += FRAME_SAMPLES
            pausing = utterance.check is not None and not utterance.check.forced
            if not pausing or _ms(utterance.resume_samples) >= _RESUME_MS:
                utterance.voiced_samples += utterance.resume_samples
                utterance.resume_samples = 0
                utterance.voiced_end, utterance.voiced_at = end, at
                if pausing:
                    actions += self._cancel_check(utterance)
        else:
            utterance.resume_samples = 0
        return actions + self._decide(utterance, at)

    # --- results of checks --------------------------------------------------------------------

    def on_transcript(self, check: int, text: str, now: float, echo: bool = False) -> list[Action]:
        """What was said up to `check`; `echo`: it is what the avatar itself was saying."""
        utterance = self._of_check(check)
        if utterance is None or utterance.check is None:
            return []
        if echo:
            caution = self._caution.get(utterance.viewer, 0)
            self._caution[utterance.viewer] = min(caution + 1, 3)
            return self._discard("echo")
        utterance.check.text = text.strip()
        return self._decide(utterance, now)

    def on_end_of_turn(self, check: int, probability: float, now: float) -> list[Action]:
        """How likely the turn was over at `check`."""
        utterance = self._of_check(check)
        if utterance is None or utterance.check is None:
            return []
        utterance.check.probability = probability
        return self._decide(utterance, now)

    def on_check_failed(self, check: int) -> list[Action]:
        """No transcript will come for `check`."""
        return self._discard("failed") if self._of_check(check) else []

    # --- replies ----------------------------------------------------------------------------

    def begin_reply(self, viewer: str | None = None) -> int | None:
        """Take a turn that no new words of a viewer ask for: a greeting, or going on after noise.

        `viewer` gets the floor. None where somebody speaks, a reply exists or the floor is taken.
        """
        taken = self._floor is not None and self._floor != viewer
        if self._utterance is not None or self._reply is not None or taken:
            return None
        self._turns += 1
        self._floor = viewer
        self._reply = _Reply(self._turns, viewer)
        return self._turns

    def on_reply_started(self, turn: int) -> None:
        """The first sound of the reply is being played."""
        if self._reply is not None and self._reply.turn == turn:
            self._reply.speaking = True
            self._onsets.clear()

    def on_reply_over(self, turn: int) -> None:
        """The reply has been played to its end, or will not come: the floor is free."""
        if self._reply is not None and self._reply.turn == turn:
            self._reply = None
            if self._utterance is None:
                self._floor = None

    # --- what viewers do apart from speaking -----------------------------------------------------

    def on_text(self, viewer: str, text: str, now: float) -> list[Action] | None:
        """`viewer` typed `text`; None where another viewer has the floor."""
        if self._floor is not None and self._floor != viewer:
            return None
        actions = self._discard("replaced") if self._utterance else []
        actions += self._interrupt(viewer, "text", now, now)
        actions.append(self._commit(viewer, "text", text, now, None))
        return actions

    def on_stop(self, viewer: str, now: float) -> list[Action]:
        """`viewer` wants the avatar to be silent. Others than the one with the floor do not."""
        if self._floor is not None and self._floor != viewer:
            return []
        actions = self._interrupt(viewer, "stop", now, now)
        if self._utterance is None:
            self._floor = None
        return actions

    def on_leave(self, viewer: str) -> list[Action]:
        """`viewer` is gone. A reply to them goes on for those who watch."""
        actions: list[Action] = []
        if self._utterance is not None and self._utterance.viewer == viewer:
            actions = self._discard("left")
        self._onsets.pop(viewer, None)
        self._heard_until.pop(viewer, None)
        self._caution.pop(viewer, None)
        if self._floor == viewer:
            self._floor = None
        return actions

    # --- decisions ------------------------------------------------------------------------------

    def _decide(self, utterance: _Utterance, now: float) -> list[Action]:
        settings = self.settings
        pause_ms = _ms(utterance.position - utterance.voiced_end)
        if now - utterance.at > _STALLED_S:
            pause_ms += (now - utterance.at) * 1000
        check = utterance.check
        length_s = (utterance.position - utterance.start) / SAMPLE_RATE_HZ
        if check is None:
            too_long = length_s >= settings.max_utterance_s
            if pause_ms < settings.pause_ms and not too_long:
                return []
            return [self._speculate(utterance, now, forced=too_long)]
        if check.forced or pause_ms >= self._needed_pause_ms(utterance, check):
            utterance.over = True
        if check.text is None:
            return []
        if not check.text:
            return self._discard("noise") if pause_ms >= settings.end_ms or check.forced else []
        if utterance.over:
            return self._commit_utterance(utterance, check)
        if not check.prepared and self._likely_over(utterance, check, pause_ms):
            check.prepared = True
            return [Prepare(check.number, utterance.viewer, check.text)]
        return []

    def _speculate(self, utterance: _Utterance, now: float, forced: bool) -> Speculate:
        self._checks += 1
        utterance.check = _Check(
            self._checks, utterance.position, forced=forced, asked_at=now, prepared=forced
        )
        return Speculate(
            self._checks,
            utterance.number,
            utterance.viewer,
            utterance.start,
            utterance.position,
            utterance.voiced_at,
        )

    def _needed_pause_ms(self, utterance: _Utterance, check: _Check) -> float:
        settings = self.settings
        if check.probability is not None and check.probability >= settings.end_of_turn_threshold:
            return settings.end_ms
        if check.text and _ms(utterance.voiced_samples) < 1_200 and word_count(check.text) <= 3:
            # The semantic model hears prosody over seconds and misses one-word replies.
            if is_short_answer(check.text):
                return min(settings.end_ms + 150, settings.max_pause_ms)
            return (settings.end_ms + settings.max_pause_ms) / 2
        if is_question(check.text or ""):
            # The check misses one whole question in twelve of a synthetic voice, the transcript
            # shows it. Both may be wrong about a question that is not over yet: half the patience.
            return (settings.end_ms + settings.max_pause_ms) / 2
        return settings.max_pause_ms

    def _likely_over(self, utterance: _Utterance, check: _Check, pause_ms: float) -> bool:
        if check.probability is None:
            return True
        return pause_ms >= self._needed_pause_ms(utterance, check) - _PREPARE_BEFORE_MS

    def _commit_utterance(self, utterance: _Utterance, check: _Check) -> list[Action]:
        assert check.text
        self._utterance = None
        viewer = utterance.viewer
        self._heard_until[viewer] = check.end
        if utterance.interrupted and self._caution.get(viewer):
            self._caution[viewer] -= 1
        actions: list[Action] = [
            self._commit(viewer, "speech", check.text, utterance.voiced_at, check.number)
        ]
        if check.forced and utterance.voiced_end - check.end >= _samples(self.settings.start_ms):
            # The viewer spoke on while the cut was being recognised: that belongs to the next turn.
            onset = Onset(
                start=check.end,
                at=utterance.voiced_at,
                voiced_end=utterance.voiced_end,
                voiced_at=utterance.voiced_at,
                voiced_samples=utterance.voiced_end - check.end,
            )
            actions += self._open(viewer, check.end, onset, utterance.position, utterance.at)
        return actions

    def _commit(
        self,
        viewer: str,
        kind: Literal["speech", "text"],
        text: str,
        at: float,
        check: int | None,
    ) -> CommitTurn:
        self._turns += 1
        self._floor = viewer
        self._reply = _Reply(self._turns, viewer)
        self._onsets.clear()
        return CommitTurn(self._turns, viewer, kind, text, at, check)

    def _interrupt(
        self, viewer: str, reason: Literal["speech", "text", "stop"], at: float, onset: float
    ) -> list[Action]:
        if self._reply is None:
            return []
        turn, self._reply = self._reply.turn, None
        return [BargeIn(turn, viewer, reason, at, onset)]

    def _discard(self, reason: DiscardReason) -> list[Action]:
        utterance, self._utterance = self._utterance, None
        assert utterance is not None
        self._heard_until[utterance.viewer] = utterance.position
        self._floor = None
        number = utterance.check.number if utterance.check else None
        return [Discard(utterance.number, utterance.viewer, reason, number)]

    def _cancel_check(self, utterance: _Utterance) -> list[Action]:
        check, utterance.check = utterance.check, None
        utterance.over = False
        return [CancelSpeculation(check.number)] if check else []

    def _of_check(self, check: int) -> _Utterance | None:
        utterance = self._utterance
        if utterance is None or utterance.check is None or utterance.check.number != check:
            return None
        return utterance


def _samples(ms: float) -> int:
    return round(ms * SAMPLE_RATE_HZ / 1000)


def _ms(samples: int) -> float:
    return samples * 1000 / SAMPLE_RATE_HZ
