"""The turns of a session, from the end of the viewer's words to the end of the reply."""

from __future__ import annotations

import logging
from collections.abc import Callable

from avatar_server.avatar import history
from avatar_server.avatar.acknowledgements import Acknowledgements
from avatar_server.avatar.page import Page
from avatar_server.avatar.playout import (
    ClauseStarted,
    Expressive,
    FirstAudible,
    Mouth,
    Playout,
    ReplyFinished,
    WordSpoken,
)
from avatar_server.avatar.requests import Requests
from avatar_server.avatar.turn_actions import BargeIn, CommitTurn
from avatar_server.avatar.turn_run import CheckRun, Kind, Outcome, ReplyRun, TurnRun
from avatar_server.avatar.turn_taking import TurnTaking
from avatar_server.clock import Clock
from avatar_server.config import TurnSettings
from avatar_server.protocol import events
from avatar_server.protocol.messages import TurnTrace

log = logging.getLogger(__name__)

PATIENCE_S = 10.0
"""A viewer who waits longer than this for an answer has given up on it."""

_MAX_GOING_ON = 2
# How often in a row a reply that noise or an echo cut is taken up again.


class Turns:
    """The current turn and the history. One reply at a time; every turn leaves one trace."""

    def __init__(
        self,
        session: str,
        talk: TurnTaking,
        requests: Requests,
        playout: Playout,
        mouth: Mouth,
        clock: Clock,
        page: Page,
        trace: Callable[[TurnTrace], None],
        settings: TurnSettings,
        remarks: Acknowledgements,
    ) -> None:
        self._settings, self._remarks = settings, remarks
        self._session, self._talk, self._requests = session, talk, requests
        self._playout, self._clock, self._page, self._trace = playout, clock, page, trace
        self._face = mouth if isinstance(mouth, Expressive) else None
        self._turn: TurnRun | None = None
        self._history: history.History = ()
        self._rest = ""
        self._going_on = 0

    @property
    def current(self) -> TurnRun | None:
        """The turn whose reply is awaited or played."""
        return self._turn

    @property
    def untouched(self) -> bool:
        """Whether nothing has been said yet."""
        return not self._history

    # --- beginning ------------------------------------------------------------------------------

    def question(self, text: str) -> tuple[str, history.History]:
        """What is to be answered when a viewer says `text`, and what was said before.

        Words that no answer was heard to belong to the question.
        """
        asked = history.with_user(self._history, text)
        return asked[-1].text, asked[:-1]

    def commit(self, action: CommitTurn) -> None:
        """A viewer's turn is over: answer it."""
        self._rest, self._going_on = "", 0
        self._history = history.with_user(self._history, action.text)
        text, earlier = self._history[-1].text, self._history[:-1]
        self._page.heard(action.turn, action.text, final=True)
        check = self._requests.close_check(action.check)
        reply = self._requests.take_prepared(text) or self._requests.respond(
            text, earlier, action.at
        )
        self._begin(action.turn, action.viewer, action.kind, action.text, action.at, reply, check)

    def greet(self, text: str) -> None:
        """Speak first, where nobody else does."""
        turn = self._talk.begin_reply()
        if turn is not None:
            reply = self._requests.say(text)
            self._begin(turn, None, "greeting", "", self._clock.now(), reply)

    def go_on(self, viewer: str) -> None:
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
            self._begin(turn, viewer, "greeting", "", now, self._requests.say(rest))
        else:
            reply = self._requests.respond(question, self._history[:-1], now)
            self._begin(turn, viewer, "text", question, now, reply)

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

    # --- replies --------------------------------------------------------------------------------

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
            self._page.outage()
        else:
            self._give_up(turn, "failed", "I could not find an answer to that. Please try again.")

    def on_recovered(self) -> None:
        """Inference is back: ask again for a reply that was lost before it was heard."""
        turn = self._turn
        if turn is None or turn.lost_at is None:
            return
        turn.lost_at = None
        self._playout.cut(turn.turn)
        if turn.reply.say:
            turn.reply = self._requests.say(turn.reply.text)
        else:
            turn.reply = self._requests.respond(turn.reply.text, self._history[:-1], turn.at)
        self._playout.commit(turn.reply.job, turn.turn)

    def on_playout(self) -> None:
        """Take what was played."""
        for event in self._playout.take_events():
            turn = self._turn
            if turn is None or turn.turn != event.turn:
                continue
            match event:
                case FirstAudible() if event.aside:
                    turn.acknowledged = event.at
                    self._talk.on_reply_started(event.turn)
                case FirstAudible():
                    turn.audible = turn.audible or event.at
                    self._talk.on_reply_started(event.turn)
                case WordSpoken():
                    self._page.caption(event.turn, event.clause, event.text, event.spoken)
                case ClauseStarted():
                    self._page.caption(event.turn, event.clause, event.text, "")
                    if event.emotion and self._face is not None:
                        self._face.set_emotion(event.emotion, event.position)
                case ReplyFinished():
                    self._finished(turn, event.heard)

    def tick(self, now: float) -> None:
        """Give up a reply that was lost too long ago; cover the wait for one that is late."""
        turn = self._turn
        if turn is not None:
            self._acknowledge(turn, now)
        if turn is not None and turn.lost_at is not None and now - turn.lost_at > PATIENCE_S:
            self._give_up(turn, "gave_up", "I am still not back. Please ask again later.")

    def _acknowledge(self, turn: TurnRun, now: float) -> None:
        """Say "Let me think." where the answer will be so late that silence would trouble."""
        reply, settings = turn.reply, self._settings
        if (
            not settings.acknowledge
            or turn.acknowledged is not None
            or reply.first_sound is not None
            or not reply.open
            or turn.kind == "greeting"
            or turn.lost_at is not None
        ):
            return
        late_at = turn.at + (settings.budget_ms + settings.acknowledge_miss_ms) / 1000
        expected = reply.expected_at
        if expected is not None and expected > now:
            wait_s = expected - now if expected >= late_at else 0.0
        else:
            # Nothing was foreseen, or wrongly: what is as late as this may take as long again.
            wait_s = now - turn.at if now >= late_at else 0.0
        remark = self._remarks.fitting(wait_s)
        if remark is not None and self._playout.add_aside(reply.job, remark.pieces):
            turn.acknowledged = now

    # --- ending ---------------------------------------------------------------------------------

    def interrupt(self, action: BargeIn) -> None:
        """Stop the reply; what was heard of it stays."""
        turn = self._turn
        if turn is None or turn.turn != action.turn:
            return
        self._requests.cancel_reply(turn.reply)
        cut = self._playout.cut(turn.turn)
        self._rest = cut.rest if action.reason == "speech" and cut.audible else ""
        if action.reason == "stop" and not cut.heard:
            self.forget_question()
        self._page.emit(events.Interrupted(turn=turn.turn, heard=cut.heard), None)
        self._close(turn, "interrupted", cut.heard)

    def forget_question(self) -> None:
        """What was said last will not be answered any more."""
        self._history = history.without_unanswered(self._history)

    def close(self) -> None:
        """Stop speaking; nobody is told."""
        if self._turn is not None:
            self._requests.cancel_reply(self._turn.reply)
            self._playout.cut(self._turn.turn)
            self._turn = None

    def _finished(self, turn: TurnRun, heard: str) -> None:
        outcome: Outcome = "answered" if heard else "empty"
        if turn.incomplete:
            outcome = "failed"
            self._page.notice("broke_off", "I lost my train of thought. Please ask again.", None)
        self._close(turn, outcome, heard)
        if outcome == "empty":
            self.forget_question()
        self._talk.on_reply_over(turn.turn)

    def _give_up(self, turn: TurnRun, code: str, message: str) -> None:
        self._requests.cancel_reply(turn.reply)
        cut = self._playout.cut(turn.turn)
        self.forget_question()
        self._page.notice(code, message, turn.viewer)
        self._close(turn, "failed", cut.heard)
        self._talk.on_reply_over(turn.turn)

    def _close(self, turn: TurnRun, outcome: Outcome, heard: str) -> None:
        self._turn = None
        self._history = history.with_reply(self._history, heard, outcome == "interrupted")
        budget_ms = float(self._settings.budget_ms)
        shares = {str(stage): share for stage, share in self._settings.budget_shares.items()}
        now = self._clock.now()
        trace = turn.trace(self._session, outcome, heard, now, budget_ms, shares)
        self._page.emit(
            events.TurnDone(
                turn=turn.turn,
                voice_to_voice_ms=turn.latency_ms,
                stages_ms=turn.stages_ms(),
                budget_ms=budget_ms,
                ledger_ms={e.stage: (e.took_ms, e.granted_ms) for e in trace.ledger},
                overran=trace.overran,
                acknowledged_ms=trace.acknowledged_ms,
            ),
            None,
        )
        self._trace(trace)
