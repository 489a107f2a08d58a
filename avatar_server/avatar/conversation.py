"""The conversation of one session: what is heard, thought and said, and told to the page.

Everything here runs on the event loop and returns at once. Decisions are turn-taking's, sound is
the playout's, thinking is inference's; this module carries their words to one another.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from avatar_server.avatar import history, turn_actions
from avatar_server.avatar.audience import Audience
from avatar_server.avatar.echo import is_echo
from avatar_server.avatar.inference_client import Inference
from avatar_server.avatar.listening import Executor, SpeechDetector, VoiceFrame
from avatar_server.avatar.playout import (
    ClauseStarted,
    FirstAudible,
    Mouth,
    Playout,
    ReplyFinished,
    WordSpoken,
)
from avatar_server.avatar.requests import Requests
from avatar_server.avatar.turn_run import CheckRun, Kind, Outcome, ReplyRun, TurnRun
from avatar_server.avatar.turn_taking import SAMPLE_RATE_HZ, TurnTaking
from avatar_server.avatars import AvatarSpec
from avatar_server.clock import Clock
from avatar_server.config import Settings
from avatar_server.protocol import events
from avatar_server.protocol.messages import TurnTrace
from renderers.contract import Attitude

log = logging.getLogger(__name__)

_TICK_S = 0.05
_PATIENCE_S = 10.0
# A viewer who waits longer than this for an answer has given up on it.
_KEEP_MARGIN_S = 5.0
# Sound kept beyond the longest utterance, for what is said while it is recognised.
_MAX_GOING_ON = 2
# How often in a row a reply that noise or an echo cut is taken up again.

_ATTITUDES = {
    "hearing": Attitude.LISTENING,
    "thinking": Attitude.THINKING,
    "speaking": Attitude.SPEAKING,
}

Emit = Callable[[events.ServerEvent, str | None], None]


class Conversation:
    """One session's conversation. Handlers and `run` belong to one event loop.

    `emit` sends an event to one viewer, or to all where none is named. `trace` gets each finished
    turn. `build_detector` makes a voice-activity model for a viewer (by default the shipped one);
    `executor` is where it runs (by default a thread of its own; an executor that is given calls
    back on the event loop's thread).
    """

    def __init__(
        self,
        settings: Settings,
        spec: AvatarSpec,
        session: str,
        inference: Inference,
        playout: Playout,
        mouth: Mouth,
        clock: Clock,
        emit: Emit,
        trace: Callable[[TurnTrace], None],
        *,
        build_detector: Callable[[], SpeechDetector] | None = None,
        executor: Executor | None = None,
    ) -> None:
        self._settings, self._spec, self._session = settings, spec, session
        self._inference, self._playout, self._clock = inference, playout, clock
        self._emit, self._trace = emit, trace
        playout.mouth = mouth
        inference.on_available = self._on_available
        keep_s = settings.turns.max_utterance_s + _KEEP_MARGIN_S
        self._audience = Audience(self._on_frame, keep_s, build_detector, executor)
        self._talk = TurnTaking(settings.turns)
        self._requests = Requests(session, spec.language, inference, playout, clock, self)
        self._turn: TurnRun | None = None
        self._history: history.History = ()
        self._greeting_due = False
        self._greeted = False
        self._rest = ""
        self._going_on = 0
        self._shown: tuple[str, int] = ("", -1)
        self._outage_told = False

    # --- what others read -----------------------------------------------------------------------

    @property
    def state(self) -> str:
        """`idle`, `hearing`, `thinking`, `speaking`, or `unavailable` while inference is gone."""
        state = self._talk.state
        if not self._inference.available and state != "speaking":
            return "unavailable"
        return state

    @property
    def attitude(self) -> Attitude:
        """How the avatar behaves."""
        return _ATTITUDES.get(self._talk.state, Attitude.IDLE)

    @property
    def speaker(self) -> str | None:
        """The viewer who has the floor."""
        return self._talk.floor

    # --- viewers --------------------------------------------------------------------------------

    def on_join(self, viewer: str, can_speak: bool) -> None:
        """A viewer is connected and sees the avatar."""
        self._audience.add(viewer, can_speak)
        if len(self._audience) == 1:
            self._shown = ("", -1)
            self._show()
        else:
            self._emit(self._state_event(), viewer)
        if not self._greeted:
            self._greeted = True
            self._greeting_due = bool(self._spec.greeting)
        self.tick()

    def on_leave(self, viewer: str, reason: str) -> None:
        """A viewer is gone."""
        if not self._audience.remove(viewer):
            return
        log.info("viewer %s left: %s", viewer, reason)
        now = self._clock.now()
        if not len(self._audience) and self._turn is not None:
            self._act(self._talk.on_stop(self._turn.viewer or viewer, now))
        self._act(self._talk.on_leave(viewer))
        self._show()

    def on_event(self, viewer: str, event: events.PageEvent) -> None:
        """The page of `viewer` sent `event`."""
        if viewer not in self._audience:
            return
        if isinstance(event, events.Text):
            self._on_text(viewer, event.text)
        elif isinstance(event, events.Stop) and self._audience.can_speak(viewer):
            self._rest = ""
            self._act(self._talk.on_stop(viewer, self._clock.now()))
            self._show()

    def on_audio(self, viewer: str, pcm: NDArray[np.int16]) -> None:
        """Sound of `viewer`: int16, mono, 16 kHz, of any length."""
        self._audience.hear(viewer, pcm, self._clock.now())

    def _on_text(self, viewer: str, text: str) -> None:
        text = " ".join(text.split())
        if not text:
            return
        if not self._audience.can_speak(viewer):
            self._notice("watching", "You are watching: only speakers can write.", viewer)
            return
        if len(text) > events.MAX_TEXT_CHARS:
            limit = events.MAX_TEXT_CHARS
            self._notice("too_long", f"Please write at most {limit} characters.", viewer)
            return
        actions = self._talk.on_text(viewer, text, self._clock.now())
        if actions is None:
            self._notice("floor_taken", "Somebody else is speaking. Try again shortly.", viewer)
            return
        self._act(actions)
        self._show()

    # --- voice ----------------------------------------------------------------------------------

    def _on_frame(self, viewer: str, frame: VoiceFrame) -> None:
        actions = self._talk.on_frame(viewer, frame.end, frame.at, frame.probability)
        self._act(actions)
        self._show()

    # --- results, called by the requests ----------------------------------------------------------

    def on_transcript(self, check: CheckRun, text: str) -> None:
        """What was said up to the pause of `check`."""
        now = self._clock.now()
        spoken = self._playout.spoken_recently(now - check.began + 1.0)
        echo = is_echo(text, spoken)
        if text.strip() and not echo:
            self._emit(events.Heard(turn=self._talk.turn + 1, text=text, final=False), None)
        self._act(self._talk.on_transcript(check.number, text, now, echo))
        self._show()

    def on_end_of_turn(self, check: CheckRun, probability: float) -> None:
        """How likely the turn was over at the pause of `check`."""
        self._act(self._talk.on_end_of_turn(check.number, probability, self._clock.now()))
        self._show()

    def on_check_failed(self, check: CheckRun) -> None:
        """Speech could not be recognised."""
        self._act(self._talk.on_check_failed(check.number))
        self._show()

    def on_reply_failed(self, reply: ReplyRun, lost: bool, message: str) -> None:
        """A committed reply broke off; `lost`: with inference, so that it may be asked again."""
        turn = self._turn
        if turn is None or turn.reply is not reply:
            return
        log.warning("turn %d: the reply failed: %s", turn.turn, message)
        if reply.first_sound is not None:
            # What has come is played to its end; then the turn is over.
            turn.incomplete = True
            self._playout.end(reply.job)
        elif lost:
            turn.lost_at = turn.lost_at or self._clock.now()
            self._tell_outage()
        else:
            self._give_up(turn, "failed", "I could not find an answer to that. Please try again.")
        self._show()

    # --- actions --------------------------------------------------------------------------------

    def _act(self, actions: Sequence[turn_actions.Action]) -> None:
        for action in actions:
            match action:
                case turn_actions.Speculate():
                    self._speculate(action)
                case turn_actions.Prepare():
                    text, earlier = self._question(action.text)
                    self._requests.prepare(action.check, text, earlier)
                case turn_actions.CancelSpeculation():
                    self._requests.cancel_check(action.check)
                case turn_actions.CommitTurn():
                    self._commit(action)
                case turn_actions.Discard():
                    self._discard(action)
                case turn_actions.BargeIn():
                    self._barge_in(action)
                case turn_actions.UtteranceStarted():
                    log.debug("utterance %d of %s", action.utterance, action.viewer)

    def _speculate(self, action: turn_actions.Speculate) -> None:
        pcm = self._audience.take(action.viewer, action.start, action.end)
        began = action.at - (action.end - action.start) / SAMPLE_RATE_HZ
        self._requests.check(action.check, action.viewer, pcm, action.at, began)
        if not self._inference.available:
            self._tell_outage()

    def _question(self, text: str) -> tuple[str, history.History]:
        asked = history.with_user(self._history, text)
        return asked[-1].text, asked[:-1]

    def _commit(self, action: turn_actions.CommitTurn) -> None:
        self._rest, self._going_on = "", 0
        self._history = history.with_user(self._history, action.text)
        text, earlier = self._history[-1].text, self._history[:-1]
        self._emit(events.Heard(turn=action.turn, text=action.text, final=True), None)
        check = self._requests.close_check(action.check)
        reply = self._requests.take_prepared(text) or self._requests.respond(text, earlier)
        self._begin(action.turn, action.viewer, action.kind, action.text, action.at, reply, check)

    def _begin(
        self,
        turn: int,
        viewer: str | None,
        kind: Kind,
        text: str,
        at: float,
        reply: ReplyRun,
        check: CheckRun | None = None,
    ) -> None:
        now = self._clock.now()
        self._turn = TurnRun(turn, viewer, kind, text, at, now, reply, check)
        self._playout.commit(reply.job, turn)
        if reply.failed:
            self.on_reply_failed(reply, True, "inference went away")

    def _discard(self, action: turn_actions.Discard) -> None:
        self._requests.cancel_check(action.check)
        if action.reason == "failed":
            self._history = history.without_unanswered(self._history)
            self._notice("not_heard", "I could not hear that. Please say it again.", action.viewer)
        elif action.reason in ("noise", "echo"):
            self._go_on(action.viewer)

    def _go_on(self, viewer: str) -> None:
        """Noise or an echo stopped a reply that nobody meant to stop: take it up again."""
        rest, self._rest = self._rest, ""
        question = history.unanswered(self._history)
        if not (rest or question) or self._going_on >= _MAX_GOING_ON:
            return
        turn = self._talk.begin_reply(viewer)
        if turn is None:
            return
        self._going_on += 1
        now = self._clock.now()
        if rest:
            reply = self._requests.say(rest)
            self._begin(turn, viewer, "greeting", "", now, reply)
        else:
            reply = self._requests.respond(question, self._history[:-1])
            self._begin(turn, viewer, "text", question, now, reply)

    def _barge_in(self, action: turn_actions.BargeIn) -> None:
        turn = self._turn
        if turn is None or turn.turn != action.turn:
            return
        self._requests.cancel_reply(turn.reply)
        cut = self._playout.cut(turn.turn)
        self._rest = cut.rest if action.reason == "speech" and cut.audible else ""
        if action.reason == "stop" and not cut.heard:
            self._history = history.without_unanswered(self._history)
        self._emit(events.Interrupted(turn=turn.turn, heard=cut.heard), None)
        self._close_turn(turn, "interrupted", cut.heard)

    def _give_up(self, turn: TurnRun, code: str, message: str) -> None:
        self._requests.cancel_reply(turn.reply)
        cut = self._playout.cut(turn.turn)
        self._history = history.without_unanswered(self._history)
        self._notice(code, message, turn.viewer)
        self._close_turn(turn, "failed", cut.heard)
        self._talk.on_reply_over(turn.turn)

    def _close_turn(self, turn: TurnRun, outcome: Outcome, heard: str) -> None:
        self._turn = None
        self._history = history.with_reply(self._history, heard, outcome == "interrupted")
        self._emit(
            events.TurnDone(
                turn=turn.turn, voice_to_voice_ms=turn.latency_ms, stages_ms=turn.stages_ms()
            ),
            None,
        )
        self._trace(turn.trace(self._session, outcome, heard))

    # --- playout --------------------------------------------------------------------------------

    def _drain(self) -> None:
        for event in self._playout.take_events():
            turn = self._turn
            if turn is None or turn.turn != event.turn:
                continue
            match event:
                case FirstAudible():
                    turn.audible = event.at
                    self._talk.on_reply_started(event.turn)
                case WordSpoken():
                    self._caption(event.turn, event.clause, event.text, event.spoken)
                case ClauseStarted():
                    self._caption(event.turn, event.clause, event.text, "")
                case ReplyFinished():
                    self._finished(turn, event.heard)
        self._show()

    def _caption(self, turn: int, clause: int, text: str, spoken: str) -> None:
        self._emit(events.Caption(turn=turn, clause=clause, text=text, spoken=spoken), None)

    def _finished(self, turn: TurnRun, heard: str) -> None:
        outcome: Outcome = "answered" if heard else "empty"
        if turn.incomplete:
            outcome = "failed"
            self._tell_outage()
        self._close_turn(turn, outcome, heard)
        self._talk.on_reply_over(turn.turn)

    # --- time and inference ---------------------------------------------------------------------

    def tick(self) -> None:
        """Time has passed; called every 50 ms by `run`."""
        now = self._clock.now()
        self._drain()
        self._act(self._talk.on_tick(now))
        self._requests.tick(now, self._turn.reply if self._turn else None)
        for check in self._requests.lost_checks(now - _PATIENCE_S):
            self.on_check_failed(check)
        turn = self._turn
        if turn is not None and turn.lost_at is not None and now - turn.lost_at > _PATIENCE_S:
            self._give_up(turn, "gave_up", "I am still not back. Please ask again later.")
        if self._greeting_due and self._inference.available and len(self._audience):
            self._greet(now)
        self._show()

    def _greet(self, now: float) -> None:
        self._greeting_due = False
        turn = self._talk.begin_reply() if not self._history else None
        if turn is not None:
            reply = self._requests.say(self._spec.greeting)
            self._begin(turn, None, "greeting", "", now, reply)

    def _on_available(self, available: bool) -> None:
        if not available:
            if len(self._audience):
                self._tell_outage()
            self._show()
            return
        if self._outage_told:
            self._outage_told = False
            self._notice("inference_back", "I am back.", None)
        self._requests.retry_checks()
        turn = self._turn
        if turn is not None and turn.lost_at is not None:
            turn.lost_at = None
            self._playout.cut(turn.turn)
            if turn.reply.say:
                turn.reply = self._requests.say(turn.reply.text)
            else:
                turn.reply = self._requests.respond(turn.reply.text, self._history[:-1])
            self._playout.commit(turn.reply.job, turn.turn)
        self.tick()

    def _tell_outage(self) -> None:
        if self._inference.available or self._outage_told:
            return
        self._outage_told = True
        self._notice("inference_unavailable", "I need a moment. Please stay.", None)

    # --- the page -------------------------------------------------------------------------------

    def _state_event(self) -> events.State:
        state = self.state
        assert state in ("idle", "hearing", "thinking", "speaking", "unavailable")
        return events.State(state=state, turn=self._talk.turn)  # type: ignore[arg-type]

    def _show(self) -> None:
        shown = (self.state, self._talk.turn)
        if shown != self._shown:
            self._shown = shown
            self._emit(self._state_event(), None)

    def _notice(self, code: str, message: str, viewer: str | None) -> None:
        self._emit(events.Notice(code=code, message=message), viewer)

    # --- life -----------------------------------------------------------------------------------

    async def run(self) -> None:
        """Keep time until cancelled."""
        loop = asyncio.get_running_loop()
        self._playout.on_events = lambda: _post(loop, self._drain)
        try:
            while True:
                self.tick()
                await asyncio.sleep(_TICK_S)
        finally:
            self._playout.on_events = None

    async def close(self) -> None:
        """Stop speaking and give back what is held."""
        if self._turn is not None:
            self._requests.cancel_reply(self._turn.reply)
            self._playout.cut(self._turn.turn)
            self._turn = None
        self._requests.close()
        await self._audience.close()


def _post(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(call)
