"""What a conversation asks of inference: every request is used, or cancelled."""

from __future__ import annotations

import logging
import secrets
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from avatar_server.avatar.history import History
from avatar_server.avatar.inference_client import Inference, JobEvent, JobLost
from avatar_server.avatar.playout import Playout
from avatar_server.avatar.turn_run import CheckRun, ReplyRun
from avatar_server.avatar.turn_taking import SAMPLE_RATE_HZ
from avatar_server.clock import Clock
from avatar_server.protocol.messages import (
    CheckEndOfTurn,
    EndOfTurn,
    JobFailed,
    Outlook,
    ReplyAudio,
    ReplyEnd,
    Respond,
    Say,
    Transcribe,
    Transcript,
)

log = logging.getLogger(__name__)

_END_OF_TURN_SAMPLES = 8 * SAMPLE_RATE_HZ
_BUFFERED_INTERVAL_S = 0.25
# Several times within the shortest lead that inference keeps: it neither stalls nor runs on.


class Listener(Protocol):
    """Who is told of results."""

    def on_transcript(self, check: CheckRun, text: str) -> None: ...
    def on_end_of_turn(self, check: CheckRun, probability: float) -> None: ...
    def on_check_failed(self, check: CheckRun) -> None: ...
    def on_reply_failed(self, reply: ReplyRun, lost: bool, message: str) -> None: ...


class Requests:
    """The checks and replies that are under way: at most one check, one prepared reply."""

    def __init__(
        self,
        session: str,
        inference: Inference,
        playout: Playout,
        clock: Clock,
        listener: Listener,
        budget_s: float,
    ) -> None:
        """`budget_s`: what a turn may take, from the viewer's last voiced sample."""
        self._budget_s = budget_s
        self._session = session
        self._inference, self._playout, self._clock = inference, playout, clock
        self._listener = listener
        # A successor of this process must not take a job's late answer for its own.
        self._prefix = secrets.token_hex(3)
        self._jobs = 0
        self._checks: dict[int, CheckRun] = {}
        self._prepared: ReplyRun | None = None
        self._told_at = 0.0
        self.brief = False
        """Ask for short replies."""

    # --- checks ---------------------------------------------------------------------------------

    def check(
        self, number: int, viewer: str, pcm: NDArray[np.int16], at: float, began: float
    ) -> None:
        """Recognise `pcm` (16 kHz) and judge whether the turn is over."""
        check = CheckRun(number, viewer, pcm, at, began, self._job("stt"), self._job("eot"))
        self._checks[number] = check
        # The transcript first: on it the reply is begun, while the judgement is still awaited.
        self._ask_transcript(check)
        self._ask_end_of_turn(check)

    def cancel_check(self, number: int | None) -> None:
        """The check, and a reply prepared on it, are void."""
        self.close_check(number)
        prepared, self._prepared = self._prepared, None
        if prepared is not None:
            self.cancel_reply(prepared)

    def close_check(self, number: int | None) -> CheckRun | None:
        """End what still runs for the check, and give its record. A prepared reply stays."""
        check = self._checks.pop(number, None) if number is not None else None
        if check is not None:
            self._inference.cancel(check.transcribe_job)
            self._inference.cancel(check.end_of_turn_job)
        return check

    def lost_checks(self, before: float) -> list[CheckRun]:
        """Checks whose transcript was lost with inference before that moment."""
        return [
            check
            for check in self._checks.values()
            if check.lost_at is not None and check.lost_at < before
        ]

    def retry_checks(self) -> None:
        """Inference is back: recognise again what was lost."""
        for check in self._checks.values():
            if check.lost_at is not None:
                check.lost_at = None
                check.transcribe_job = self._job("stt")
                self._ask_transcript(check)

    def _ask_transcript(self, check: CheckRun) -> None:
        check.sent = self._clock.now()
        job = Transcribe(
            session=self._session,
            job=check.transcribe_job,
            purpose="speculative",
            pcm=check.pcm.tobytes(),
            budget_s=self._left_s(check.at),
        )
        self._inference.submit(job, lambda event: self._on_transcript(check, event))

    def _ask_end_of_turn(self, check: CheckRun) -> None:
        pcm = check.pcm[-_END_OF_TURN_SAMPLES:].tobytes()
        job = CheckEndOfTurn(
            session=self._session,
            job=check.end_of_turn_job,
            pcm=pcm,
            budget_s=self._left_s(check.at),
        )
        self._inference.submit(job, lambda event: self._on_end_of_turn(check, event))

    def _on_transcript(self, check: CheckRun, event: JobEvent) -> None:
        if self._checks.get(check.number) is not check:
            return
        if isinstance(event, Transcript):
            check.transcribed = self._clock.now()
            check.timing = event.timing
            self._listener.on_transcript(check, event.text)
        elif isinstance(event, JobLost):
            check.lost_at = self._clock.now()
        else:
            self._warn(event)
            self._listener.on_check_failed(check)

    def _on_end_of_turn(self, check: CheckRun, event: JobEvent) -> None:
        if self._checks.get(check.number) is not check:
            return
        if isinstance(event, EndOfTurn):
            check.judged = self._clock.now()
            self._listener.on_end_of_turn(check, event.probability)
        else:
            # Without a judgement the silence decides.
            self._warn(event)

    # --- replies --------------------------------------------------------------------------------

    def prepare(self, check: int, text: str, earlier: History) -> None:
        """Begin a reply on the chance that the turn ends with `check`."""
        if check in self._checks and self._prepared is None:
            at = self._checks[check].at
            self._prepared = self.respond(text, earlier, at, speculative=True)

    def take_prepared(self, text: str) -> ReplyRun | None:
        """The prepared reply where it answers `text` and is well; else it is cancelled."""
        prepared, self._prepared = self._prepared, None
        if prepared is None:
            return None
        if prepared.text == text and not prepared.failed:
            self._inference.commit(prepared.job)
            return prepared
        self.cancel_reply(prepared)
        return None

    def respond(
        self, text: str, earlier: History, at: float, *, speculative: bool = False
    ) -> ReplyRun:
        """Begin a reply to `text`; its sound goes to the playout, held until it is committed.

        `at`: when the viewer's last word was heard, for the turn's budget.
        """
        reply = ReplyRun(self._job("respond"), text, self._clock.now())
        job = Respond(
            session=self._session,
            job=reply.job,
            text=text,
            history=list(earlier),
            brief=self.brief,
            speculative=speculative,
            budget_s=self._left_s(at),
        )
        self._inference.submit(job, lambda event: self._on_reply(reply, event))
        return reply

    def say(self, text: str) -> ReplyRun:
        """Speak `text`; as `respond`."""
        reply = ReplyRun(self._job("say"), text, self._clock.now(), say=True)
        job = Say(session=self._session, job=reply.job, text=text)
        self._inference.submit(job, lambda event: self._on_reply(reply, event))
        return reply

    def cancel_reply(self, reply: ReplyRun) -> None:
        """End the reply's job and forget its held sound."""
        reply.failed = reply.failed or reply.end is None
        self._inference.cancel(reply.job)
        self._playout.drop(reply.job)

    def _on_reply(self, reply: ReplyRun, event: JobEvent) -> None:
        if reply.failed:
            return
        if isinstance(event, Outlook):
            reply.expected_at = self._clock.now() + event.first_sound_s
        elif isinstance(event, ReplyAudio):
            if reply.first_sound is None:
                reply.first_sound = self._clock.now()
            if not self._playout.push(reply.job, event):
                log.warning("reply %s is longer than can be kept: cut short", reply.job)
                self._inference.cancel(reply.job)
                self._end(reply, ReplyEnd(job=reply.job, text=""))
        elif isinstance(event, ReplyEnd):
            self._end(reply, event)
        elif isinstance(event, JobFailed | JobLost):
            self._warn(event)
            reply.failed = True
            lost = isinstance(event, JobLost)
            self._listener.on_reply_failed(reply, lost, event.message)

    def _end(self, reply: ReplyRun, end: ReplyEnd) -> None:
        reply.end = end
        self._playout.end(reply.job)

    # --- time -----------------------------------------------------------------------------------

    def tick(self, now: float, current: ReplyRun | None) -> None:
        """Tell inference how much speech is waiting."""
        if now - self._told_at < _BUFFERED_INTERVAL_S:
            return
        self._told_at = now
        for reply in (current, self._prepared):
            if reply is not None and reply.open and reply.first_sound is not None:
                self._inference.buffered(reply.job, self._playout.waiting_s(reply.job))

    def close(self) -> None:
        """Cancel everything."""
        for number in list(self._checks):
            self.cancel_check(number)
        self.cancel_check(None)

    def _left_s(self, at: float) -> float:
        return round(at + self._budget_s - self._clock.now(), 3)

    def _job(self, kind: str) -> str:
        self._jobs += 1
        return f"{kind}-{self._prefix}-{self._jobs}"

    def _warn(self, event: JobEvent) -> None:
        if isinstance(event, JobFailed | JobLost):
            log.warning("job %s: %s", event.job, event.message)
