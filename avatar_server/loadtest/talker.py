"""A viewer who talks: asks, listens, thinks a moment, and now and then speaks over the avatar."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence

from avatar_server.loadtest.meter import Meter
from avatar_server.loadtest.packet_microphone import EncodedUtterance
from avatar_server.loadtest.results import Order, Turn
from avatar_server.loadtest.viewer import SyntheticViewer
from avatar_server.protocol import events

LOST_AFTER_S = 4.0
"""Without a packet for this long the connection is taken for lost, as the page does."""

_POLL_S = 0.03
_SILENCE_S = 0.25
"""Sound has stopped when nothing is audible for this long; pauses between words are shorter."""
_QUIET_S = 0.4
_GREETING_TIMEOUT_S = 60.0
"""A first greeting waits for a voice to load."""
_REPLY_TIMEOUT_S = 40.0
"""The longest reply and its playing."""
_MISSED_AFTER_S = 1.0
"""An avatar that still speaks so long after the interruption was over has not noticed it."""
_EARLY_S = 0.05
"""A reply that begins this much before our last audible sample has cut us off."""


class ConnectionLost(RuntimeError):
    """Nothing comes from the server any more."""


class Talker:
    """Speaks `clips` to the avatar of one connected viewer. Reports each `Turn` when it is over."""

    def __init__(
        self,
        viewer: SyntheticViewer,
        meter: Meter,
        order: Order,
        clips: Sequence[EncodedUtterance],
        choice: random.Random,
        report: Callable[[Turn], None],
    ) -> None:
        self._viewer = viewer
        self._meter = meter
        self._order = order
        self._clips = clips
        self._choice = choice
        self._report = report
        self._turn: Turn | None = None

    async def settle(self) -> None:
        """Wait until the greeting, which is the first turn, is over."""
        await self._until(
            lambda: any(isinstance(e, events.TurnDone) for _, e in self._viewer.events) or None,
            time.monotonic() + _GREETING_TIMEOUT_S,
        )
        await self._quiet()

    async def talk(self, until: float) -> None:
        """Turn after turn until the moment `until`; the last one is finished.

        Raises `ConnectionLost`.
        """
        choice = self._choice
        try:
            # So that the sessions of a load do not ask in step.
            await self._pause(choice.uniform(0.0, self._order.pause_s[1]))
            while time.monotonic() < until:
                turn = await self._speak(choice.choice(self._clips), interruption=False)
                heard = turn.answered_at is not None and not turn.cut_off
                if heard and choice.random() < self._order.interrupt_share:
                    await self._pause(choice.uniform(0.5, 1.5))
                    if self._speaking():
                        await self._speak(choice.choice(self._clips), interruption=True)
                await self._quiet()
                self._close()
                await self._pause(choice.uniform(*self._order.pause_s))
        except ConnectionLost:
            if self._turn is not None:
                self._turn.lost = True
            raise
        finally:
            self._close()

    async def _speak(self, clip: EncodedUtterance, *, interruption: bool) -> Turn:
        self._close()
        assert self._viewer.packets is not None
        started = self._viewer.packets.say(clip)
        turn = self._turn = Turn(
            session=self._order.session,
            text=clip.text,
            said_at=started + clip.voiced_start,
            ended_at=started + clip.voiced_end,
            interruption=interruption,
        )
        after = turn.said_at
        if interruption:
            stopped = await self._until(
                lambda: self._stopped(turn.said_at), turn.ended_at + _MISSED_AFTER_S
            )
            if stopped is None:
                turn.missed_interruption = True
                return turn
            after = stopped + _SILENCE_S
        turn.answered_at = await self._until(
            lambda: self._meter.audible.first_after(after),
            turn.ended_at + self._order.answer_timeout_s,
        )
        if turn.answered_at is not None:
            turn.cut_off = turn.answered_at < turn.ended_at - _EARLY_S
        return turn

    def _stopped(self, since: float) -> float | None:
        return self._meter.audible.stop_after(since, _SILENCE_S, time.monotonic())

    def _speaking(self) -> bool:
        last = self._meter.audible.last
        return last is not None and time.monotonic() - last < _SILENCE_S / 2

    def _close(self) -> None:
        """Add what the events tell of the turn, and report it."""
        turn, self._turn = self._turn, None
        if turn is None:
            return
        since = [e for when, e in self._viewer.events if when >= turn.said_at]
        if turn.interruption and not turn.missed_interruption:
            told = any(isinstance(e, events.Interrupted) for e in since)
            stopped = self._stopped(turn.said_at)
            # A reply that came to its end by itself in this moment was not stopped by us.
            turn.stopped_at = stopped if told and stopped != turn.said_at else None
        heard = [e for e in since if isinstance(e, events.Heard) and e.final]
        number = heard[-1].turn if heard else None
        turn.heard = " ".join(e.text for e in heard)
        captions = {
            e.clause: e.spoken for e in since if isinstance(e, events.Caption) and e.turn == number
        }
        turn.reply = " ".join(captions[clause] for clause in sorted(captions))
        for event in since:
            if isinstance(event, events.TurnDone) and event.turn == number:
                take_over(turn, event)
        # What lies before this turn is not asked for again.
        self._viewer.events[:] = [(t, e) for t, e in self._viewer.events if t >= turn.said_at]
        self._report(turn)

    async def _quiet(self) -> None:
        """Wait until the avatar has been idle and silent for a moment."""

        def quiet() -> float | None:
            states = [e for _, e in self._viewer.events if isinstance(e, events.State)]
            last = self._meter.audible.last
            silent = last is None or time.monotonic() - last > _QUIET_S
            return 1.0 if silent and states and states[-1].state == "idle" else None

        await self._until(quiet, time.monotonic() + _REPLY_TIMEOUT_S)

    async def _pause(self, seconds: float) -> None:
        await self._until(lambda: None, time.monotonic() + seconds)

    async def _until(
        self, condition: Callable[[], float | bool | None], deadline: float
    ) -> float | None:
        """What `condition` gives, once it is not None; None at the `deadline`."""
        while True:
            if (value := condition()) is not None:
                return value
            now = time.monotonic()
            if now >= deadline:
                return None
            last = self._meter.last_packet
            if last is not None and now - last > LOST_AFTER_S:
                raise ConnectionLost
            await asyncio.sleep(min(_POLL_S, deadline - now))


def take_over(turn: Turn, done: events.TurnDone) -> None:
    """Add the server's account of a turn to the viewer's."""
    turn.server_voice_to_voice_ms = done.voice_to_voice_ms
    turn.stages_ms = dict(done.stages_ms)
    turn.ledger_ms = dict(done.ledger_ms)
    turn.overran = done.overran
    acknowledged, answered = done.acknowledged_ms, done.voice_to_voice_ms
    if acknowledged is None or turn.answered_at is None:
        return
    # What we heard first was the acknowledgement.
    turn.acknowledged_at = turn.answered_at
    turn.answered_at = (
        None if answered is None else turn.answered_at + max(0.0, answered - acknowledged) / 1e3
    )
