"""A virtual session: what the server does for one viewer's turns, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from avatar_server.capacity.simulator.host import Decoding, Host, Task
from avatar_server.capacity.simulator.workload import CHARS_PER_S, Turn, Workload
from avatar_server.inference.budget import TYPICAL_SIZE, TurnBudget

PREPARE_BEFORE_S = 0.6
"""As turn-taking: a reply is begun this long before the silence is sure to end the turn."""
PATIENCE_S = 15.0
"""An answer that has not begun by then counts as none."""
AUDIBLE_GAP_S = 0.02
"""One packet: a shorter gap is bridged."""
RESUME_S = 0.3
"""After a pause within an utterance the viewer goes on this much after it was noticed."""


@dataclass(slots=True)
class TurnResult:
    """What a viewer felt of a turn; `first_s` is none where nothing was heard."""

    ended_at: float
    first_s: float | None = None
    gaps: int = 0


@dataclass(slots=True)
class _Reply:
    """A reply on its way, from the viewer's last word to the end of its sound."""

    turn: Turn
    ended_at: float
    result: TurnResult
    stream: str
    budget: TurnBudget
    clauses: list[int] = field(default_factory=list)
    all_clauses: bool = False
    task: Task | None = None
    decoding: Decoding | None = None
    transcribed: float | None = None
    judged: float | None = None
    committed: bool = False
    made_s: float = 0.0
    dry_at: float | None = None
    over: bool = False


class SimSession:
    """Goes through its turns for ever, as the avatar and inference processes do with real ones."""

    def __init__(self, host: Host, number: int, turns: Iterator[Turn], workload: Workload) -> None:
        self._host, self._number, self._turns, self._workload = host, number, turns, workload
        self.results: list[TurnResult] = []
        self._replies = 0

    def start(self, delay_s: float) -> None:
        """The first turn begins after `delay_s` and a pause."""
        self._host.timeline.after(delay_s, self._next_turn)

    # --- the viewer speaks --------------------------------------------------------------------

    def _next_turn(self) -> None:
        turn, timeline = next(self._turns), self._host.timeline
        if turn.pause_at_s is not None:
            course = self._host.profile.turn
            noticed_s = turn.pause_at_s + (course.pause_ms + course.notice_ms) / 1e3
            timeline.after(turn.wait_s + noticed_s, lambda: self._recognise_in_vain(turn))
        timeline.after(turn.wait_s + turn.utterance_s, lambda: self._end(turn))

    def _recognise_in_vain(self, turn: Turn) -> None:
        """A pause within the utterance; what was begun is cancelled when the viewer goes on."""
        assert turn.pause_at_s is not None
        host = self._host
        budget = TurnBudget(host.timeline.now() + host.profile.budget_ms / 1e3)
        tasks = [
            self._submit("stt", turn.pause_at_s, budget, _nothing),
            self._submit("endpoint", 1.0, budget, _nothing),
        ]

        def resume() -> None:
            for task in tasks:
                host.cancel(task)

        host.timeline.after(RESUME_S, resume)

    def _end(self, turn: Turn) -> None:
        """The viewer's last word."""
        timeline, profile = self._host.timeline, self._host.profile
        now = timeline.now()
        result = TurnResult(now)
        self.results.append(result)
        self._replies += 1
        budget = TurnBudget(now + profile.budget_ms / 1e3)
        reply = _Reply(turn, now, result, f"{self._number}/{self._replies}", budget)
        noticed_s = (profile.turn.pause_ms + profile.turn.notice_ms) / 1e3
        timeline.after(noticed_s, lambda: self._recognise(reply))
        timeline.after(PATIENCE_S, lambda: self._give_up(reply))

    # --- the end of the turn ------------------------------------------------------------------

    def _recognise(self, reply: _Reply) -> None:
        timeline = self._host.timeline

        def transcribed(_: int) -> None:
            reply.transcribed = timeline.now()
            begin = reply.transcribed
            if reply.judged is not None and not reply.turn.complete:
                # The turn is likely over only shortly before the silence is sure to end it.
                begin = max(begin, self._silence_ends(reply) - PREPARE_BEFORE_S)
            timeline.at(begin, lambda: self._respond(reply))
            timeline.at(self._silence_ends(reply), lambda: self._commit(reply))

        def judged(_: int) -> None:
            reply.judged = timeline.now()
            timeline.at(self._silence_ends(reply), lambda: self._commit(reply))

        self._submit("stt", reply.turn.utterance_s, reply.budget, transcribed)
        self._submit("endpoint", 1.0, reply.budget, judged)

    def _silence_ends(self, reply: _Reply) -> float:
        """When the pause is long enough: shorter where the turn was judged to be complete."""
        course = self._host.profile.turn
        complete = reply.turn.complete and reply.judged is not None
        # What viewers say to an avatar are questions for the most part: turn-taking waits half for
        # those that the check misses.
        silence_ms = course.end_ms if complete else (course.end_ms + course.max_pause_ms) / 2
        return reply.ended_at + (silence_ms + course.notice_ms) / 1e3

    def _commit(self, reply: _Reply) -> None:
        if reply.committed or reply.over or reply.transcribed is None:
            return
        if self._host.timeline.now() < self._silence_ends(reply) - 1e-9:
            return
        reply.committed = True
        if reply.made_s:
            self._play(reply)

    # --- the reply ----------------------------------------------------------------------------

    def _respond(self, reply: _Reply) -> None:
        tokens, turn = self._workload.clause_tokens, reply.turn
        whole = len(turn.clauses) * tokens

        asked = self._host.timeline.now()

        def token(made: int) -> None:
            if made == tokens:
                took_s = self._host.timeline.now() - asked
                self._host.scheduler.costs.observe("llm", TYPICAL_SIZE["llm"], took_s)
            if made % tokens == 0 and not reply.over:
                reply.clauses.append(turn.clauses[0])
                reply.all_clauses = made >= whole
                self._speak(reply)

        def planned(_: int) -> None:
            if reply.over:
                return
            if turn.made:
                reply.decoding = Decoding(turn.new_tokens, whole, token)
                self._host.decode(reply.decoding)
            elif turn.kept:
                reply.all_clauses = True
                self._made(reply, sum(turn.clauses) / CHARS_PER_S)
            else:
                reply.clauses, reply.all_clauses = list(turn.clauses), True
                self._speak(reply)

        if not reply.over:
            self._submit("retrieve", 1.0, reply.budget, planned)

    def _speak(self, reply: _Reply) -> None:
        """The next clause, where none is being made: they come one after the other."""
        if reply.task is not None or not reply.clauses or reply.over:
            return
        chars, piece_s = reply.clauses.pop(0), self._host.profile.piece_s
        pieces = max(1, round(chars / CHARS_PER_S / piece_s))

        def step(done: int) -> float | None:
            self._made(reply, piece_s)
            if done < pieces:
                return piece_s
            # The last piece's sound counts, too.
            self._host.scheduler.set_buffered(reply.stream, self._ahead_s(reply))
            reply.task = None
            self._speak(reply)
            return None

        costs = self._host.scheduler.costs
        reply.task = self._host.submit(
            "tts",
            self._number,
            step,
            size=chars,
            deadline=reply.budget.deadline("tts", costs),
            stream=reply.stream,
        )

    def _made(self, reply: _Reply, seconds: float) -> None:
        now = self._host.timeline.now()
        reply.made_s += seconds
        if reply.dry_at is not None:
            if now - reply.dry_at > AUDIBLE_GAP_S:
                reply.result.gaps += 1
            reply.dry_at = max(now, reply.dry_at) + seconds
        elif reply.committed:
            self._play(reply)

    def _ahead_s(self, reply: _Reply) -> float:
        if reply.dry_at is None:
            return reply.made_s
        return max(0.0, reply.dry_at - self._host.timeline.now())

    def _play(self, reply: _Reply) -> None:
        host = self._host
        audible = host.timeline.now() + host.profile.turn.playout_ms / 1e3
        reply.result.first_s = audible - reply.ended_at
        reply.dry_at = audible + reply.made_s
        host.scheduler.set_buffered(reply.stream, self._ahead_s(reply))
        host.set_speaking(self._number, True)
        if reply.turn.interrupt < 1:
            heard_s = sum(reply.turn.clauses) / CHARS_PER_S * reply.turn.interrupt
            host.timeline.at(audible + heard_s, lambda: self._close(reply))
        host.timeline.at(reply.dry_at, lambda: self._played(reply))

    def _played(self, reply: _Reply) -> None:
        """All sound so far was played."""
        now, timeline = self._host.timeline.now(), self._host.timeline
        assert reply.dry_at is not None
        if reply.over:
            return
        if reply.dry_at > now + 1e-9:
            timeline.at(reply.dry_at, lambda: self._played(reply))
        elif reply.all_clauses and not reply.clauses and reply.task is None:
            self._close(reply)
        else:
            timeline.after(0.05, lambda: self._played(reply))

    def _give_up(self, reply: _Reply) -> None:
        if reply.result.first_s is None:
            self._close(reply)

    def _close(self, reply: _Reply) -> None:
        """The reply is over, interrupted or given up: whatever is left of it is cancelled."""
        if reply.over:
            return
        host, reply.over = self._host, True
        if reply.task is not None:
            host.cancel(reply.task)
        if reply.decoding is not None:
            host.cancel_decoding(reply.decoding)
        host.scheduler.end_stream(reply.stream)
        host.set_speaking(self._number, False)
        self._next_turn()

    def _submit(
        self, engine: str, size: float, budget: TurnBudget, step: Callable[[int], float | None]
    ) -> Task:
        stage = "stt" if engine == "endpoint" else engine
        deadline = budget.deadline(stage, self._host.scheduler.costs)
        return self._host.submit(
            engine, self._number, step, size=size, deadline=deadline, key=engine
        )


def _nothing(_: int) -> None:
    """The step's result is used by nobody."""
