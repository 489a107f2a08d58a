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

from avatar_server.avatar import turn_actions
from avatar_server.avatar.acknowledgements import DEFAULTS, Acknowledgements
from avatar_server.avatar.audience import Audience
from avatar_server.avatar.echo import is_echo
from avatar_server.avatar.endings import ending_words
from avatar_server.avatar.inference_client import Inference
from avatar_server.avatar.listening import Executor, SpeechDetector, VoiceFrame
from avatar_server.avatar.page import Emit, Page, state_event, visible_state
from avatar_server.avatar.partials import Partials
from avatar_server.avatar.playout import Mouth, Playout
from avatar_server.avatar.playout_events import Attentive
from avatar_server.avatar.requests import Requests
from avatar_server.avatar.turn_run import CheckRun, ReplyRun
from avatar_server.avatar.turn_taking import SAMPLE_RATE_HZ, TurnTaking
from avatar_server.avatar.turns import PATIENCE_S, Turns
from avatar_server.avatars import AvatarSpec
from avatar_server.clock import Clock
from avatar_server.config import Settings
from avatar_server.protocol import events
from avatar_server.protocol.messages import TurnTrace
from renderers.contract import Attitude

log = logging.getLogger(__name__)

_TICK_S = 0.05
_KEEP_MARGIN_S = 5.0
# Sound kept beyond the longest utterance, for what is said while it is recognised.
_ECHO_DELAY_S = 1.0
# Loudspeaker, room, microphone and network bring an echo back within this time.

_COME_BACK_S = 10.0
# So long a reply goes on for a last viewer who vanished: a change of network takes seconds.

_OUTAGE_S = 1.0
# A reconnection is quicker: nobody needs to hear of it who does not wait for an answer.

_ATTITUDES = {
    "hearing": Attitude.LISTENING,
    "thinking": Attitude.THINKING,
    "speaking": Attitude.SPEAKING,
}


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
        self._inference, self._playout, self._clock = inference, playout, clock
        playout.mouth = mouth
        self._attentive = mouth if isinstance(mouth, Attentive) else None
        self._voiced_from = settings.turns.speech_threshold
        inference.on_available = self._on_available
        keep_s = settings.turns.max_utterance_s + _KEEP_MARGIN_S
        self._audience = Audience(self._on_frame, keep_s, build_detector, executor)
        self._page = Page(emit, session, spec)
        self._talk = TurnTaking(settings.turns)
        budget_s = settings.turns.budget_ms / 1000
        self._requests = Requests(session, inference, playout, clock, self, budget_s)
        remarks = spec.acknowledgements or DEFAULTS.get(spec.language[:2], [])
        self._remarks = Acknowledgements(
            session, inference, remarks if settings.turns.acknowledge else []
        )
        self._turns = Turns(
            session,
            self._talk,
            self._requests,
            playout,
            mouth,
            clock,
            self._page,
            trace,
            settings.turns,
            self._remarks,
        )
        interval_s = settings.turns.partial_interval_ms / 1000
        self._partials = Partials(session, inference, interval_s, self._show_unfinished)
        self._greeting_due = spec.greeting
        self._ending_words = ending_words(spec.language)
        self._remark_due = ""
        self._empty_since = clock.now()
        self._gone_since = None if inference.available else clock.now()

    # --- what others read -----------------------------------------------------------------------

    @property
    def state(self) -> str:
        """`idle`, `hearing`, `thinking`, `speaking`, or `unavailable` while inference is gone."""
        return visible_state(self._talk.state, self._inference.available)

    @property
    def attitude(self) -> Attitude:
        """How the avatar behaves."""
        return _ATTITUDES.get(self._talk.state, Attitude.IDLE)

    @property
    def speaker(self) -> str | None:
        """The viewer who has the floor."""
        return self._talk.floor

    def economise(self, *, partials: bool, brief: bool) -> None:
        """Whether to recognise unfinished speech, and whether to ask for short replies."""
        self._partials.allowed = partials
        self._requests.brief = brief

    def announce_ending(self, seconds_left: float) -> None:
        """Say, at the next moment when nobody speaks, that the session will end."""
        self._remark_due = self._ending_words(seconds_left)
        self._page.notice("ending", self._remark_due, None)

    # --- viewers --------------------------------------------------------------------------------

    def on_join(self, viewer: str, can_speak: bool) -> None:
        """A viewer is connected and sees the avatar."""
        self._audience.add(viewer, can_speak)
        self._welcome(viewer, can_speak)
        self.tick()

    def on_return(self, viewer: str, can_speak: bool) -> None:
        """A viewer's new connection stands; nothing that is going on is touched."""
        if viewer not in self._audience or self._audience.can_speak(viewer) != can_speak:
            self._audience.add(viewer, can_speak)
        self._welcome(viewer, can_speak)

    def _welcome(self, viewer: str, can_speak: bool) -> None:
        talk = self._talk
        self._page.hello(viewer, can_speak)
        self._page.emit(state_event(talk.state, self._inference.available, talk.turn), viewer)

    def on_leave(self, viewer: str, reason: str, goodbye: bool) -> None:
        """A viewer is gone; the last one who only vanished may be back before the reply is over."""
        if not self._audience.remove(viewer):
            return
        log.info("viewer %s left: %s", viewer, reason)
        if not len(self._audience):
            self._empty_since = self._clock.now()
            if goodbye:
                self._stop_for_nobody(viewer)
        self._act(self._talk.on_leave(viewer))
        self._show()

    def _stop_for_nobody(self, viewer: str) -> None:
        turn = self._turns.current
        if turn is not None:
            self._act(self._talk.on_stop(turn.viewer or viewer, self._clock.now()))

    def on_event(self, viewer: str, event: events.PageEvent) -> None:
        """The page of `viewer` sent `event`."""
        if viewer not in self._audience:
            return
        if isinstance(event, events.Text):
            self._on_text(viewer, event.text)
        elif isinstance(event, events.Stop) and self._audience.can_speak(viewer):
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
            self._page.notice("watching", "You are watching: only speakers can write.", viewer)
            return
        limit = events.MAX_TEXT_CHARS
        if len(text) > limit:
            self._page.notice("too_long", f"Please write at most {limit} characters.", viewer)
            return
        actions = self._talk.on_text(viewer, text, self._clock.now())
        if actions is None:
            message = "Somebody else is speaking. Try again shortly."
            self._page.notice("floor_taken", message, viewer)
            return
        self._act(actions)
        self._show()

    # --- voice ----------------------------------------------------------------------------------

    def _on_frame(self, viewer: str, frame: VoiceFrame) -> None:
        self._act(self._talk.on_frame(viewer, frame.end, frame.at, frame.probability))
        if self._attentive is not None and viewer == self._talk.floor:
            voiced = frame.probability >= self._voiced_from
            self._attentive.hear_viewer(voiced, self._playout.position)
        self._show()

    def _follow(self, now: float) -> None:
        speech = self._talk.unfinished
        if speech is None:
            self._partials.cancel()
            return
        viewer, start, end = speech
        if self._partials.due(now, end - start):
            self._partials.ask(self._audience.take(viewer, start, end), now)

    def _show_unfinished(self, text: str) -> None:
        self._page.heard(self._talk.turn + 1, text, final=False)

    # --- results, called by the requests ----------------------------------------------------------

    def on_transcript(self, check: CheckRun, text: str) -> None:
        """What was said up to the pause of `check`."""
        now = self._clock.now()
        spoken = self._playout.spoken_recently(now - check.began + _ECHO_DELAY_S)
        echo = is_echo(text, spoken)
        if text.strip() and not echo:
            self._show_unfinished(text)
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
        """A reply broke off; `lost`: because inference went away."""
        self._turns.on_reply_failed(reply, lost, message)
        self._show()

    # --- actions --------------------------------------------------------------------------------

    def _act(self, actions: Sequence[turn_actions.Action]) -> None:
        for action in actions:
            match action:
                case turn_actions.Speculate():
                    self._speculate(action)
                case turn_actions.Prepare():
                    self._requests.prepare(action.check, *self._turns.question(action.text))
                case turn_actions.CancelSpeculation():
                    self._requests.cancel_check(action.check)
                case turn_actions.CommitTurn():
                    self._turns.commit(action)
                case turn_actions.Discard():
                    self._discard(action)
                case turn_actions.BargeIn():
                    self._turns.interrupt(action)
                case turn_actions.UtteranceStarted():
                    log.debug("utterance %d of %s", action.utterance, action.viewer)

    def _speculate(self, action: turn_actions.Speculate) -> None:
        self._partials.cancel()
        pcm = self._audience.take(action.viewer, action.start, action.end)
        began = action.at - (action.end - action.start) / SAMPLE_RATE_HZ
        self._requests.check(action.check, action.viewer, pcm, action.at, began)
        if not self._inference.available:
            self._page.outage()

    def _discard(self, action: turn_actions.Discard) -> None:
        self._requests.cancel_check(action.check)
        if action.reason == "failed":
            self._turns.forget_question()
            message = "I could not hear that. Please say it again."
            self._page.notice("not_heard", message, action.viewer)
        elif action.reason in ("noise", "echo"):
            self._turns.go_on(action.viewer)

    # --- time and inference ---------------------------------------------------------------------

    def tick(self) -> None:
        """Time has passed; called every 50 ms by `run`."""
        now = self._clock.now()
        if not len(self._audience) and now - self._empty_since > _COME_BACK_S:
            self._stop_for_nobody("")
        self._turns.on_playout()
        self._act(self._talk.on_tick(now))
        self._follow(now)
        turn = self._turns.current
        self._requests.tick(now, turn.reply if turn else None)
        for check in self._requests.lost_checks(now - PATIENCE_S):
            self.on_check_failed(check)
        self._turns.tick(now)
        gone = self._gone_since is not None and now - self._gone_since > _OUTAGE_S
        if gone and len(self._audience):
            self._page.outage()
        if self._greeting_due and self._inference.available and len(self._audience):
            # Once: whoever comes later joins a conversation.
            greeting, self._greeting_due = self._greeting_due, ""
            if self._turns.untouched:
                self._turns.greet(greeting)
        if self._remark_due and self._talk.state == "idle" and self._inference.available:
            remark, self._remark_due = self._remark_due, ""
            if len(self._audience):
                self._turns.greet(remark)
        if self._talk.state == "idle" and not self._greeting_due:
            self._remarks.tick()
        self._show()

    def _on_available(self, available: bool) -> None:
        if available:
            self._gone_since = None
            self._page.recovered()
            self._requests.retry_checks()
            self._turns.on_recovered()
            self.tick()
            return
        self._gone_since = self._clock.now()
        self._show()

    def _show(self) -> None:
        self._page.state(self._talk.state, self._inference.available, self._talk.turn)

    # --- life -----------------------------------------------------------------------------------

    async def run(self) -> None:
        """Keep time until cancelled."""
        loop = asyncio.get_running_loop()
        self._playout.on_events = lambda: _post(loop, self._on_playout)
        try:
            while True:
                self.tick()
                await asyncio.sleep(_TICK_S)
        finally:
            self._playout.on_events = None

    def _on_playout(self) -> None:
        self._turns.on_playout()
        self._show()

    async def close(self) -> None:
        """Stop speaking and give back what is held."""
        self._turns.close()
        self._partials.cancel()
        self._remarks.close()
        self._requests.close()
        await self._audience.close()


def _post(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(call)
