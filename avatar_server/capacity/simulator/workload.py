"""Conversations as people have them: how long they speak, pause, listen and interrupt."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass

CHARS_PER_S = 15.0
"""Of spoken English, as `playout` estimates it, too."""
CHARS_PER_TOKEN = 4.0


@dataclass(frozen=True, slots=True)
class Workload:
    """What conversations are like. Times are medians of log-normal distributions, in seconds.

    Default values are those that admission expects (`capacity.demand`, setting `capacity`) and
    that the load test's utterances have: questions of some 2.5 s, an answer of one or two short
    sentences, half of the answers known word for word.
    """

    utterance_s: float = 2.5
    pause_s: float = 3.0
    """Between the end of a reply and the viewer's next word."""
    spread: float = 0.4
    pause_within: float = 0.5
    """Share of utterances with a pause within, at which recognition starts in vain."""
    complete: float = 0.97
    """Share of utterances that the end-of-turn check takes for complete: smart-turn v3 is published
    with some 3 % of finished English turns missed. The others wait for the longest silence."""
    made: float = 0.5
    """Share of answers that the language model makes."""
    kept: float = 0.0
    """Share of the other answers whose sound is there from an earlier time."""
    new_tokens: int = 60
    reply_tokens: int = 35
    clause_tokens: int = 9
    known_chars: int = 90
    """Of an answer known word for word."""
    clause_chars: int = 45
    interrupts: float = 0.1
    """Share of replies that the viewer interrupts."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn of a viewer. `clauses` are characters; `interrupt` is the share heard before the
    viewer speaks over it, or 1."""

    wait_s: float
    utterance_s: float
    pause_at_s: float | None
    complete: bool
    made: bool
    kept: bool
    new_tokens: int
    clauses: tuple[int, ...]
    interrupt: float


def turns(workload: Workload, seed: int, session: int) -> Iterator[Turn]:
    """The endless turns of a session: the same for the same seed, whatever else happens."""
    draw = random.Random(f"{seed}/{session}")

    def around(median: float) -> float:
        return median * math.exp(draw.gauss(0, workload.spread))

    while True:
        made = draw.random() < workload.made
        if made:
            tokens = max(4, round(around(workload.reply_tokens)))
            count = max(1, round(tokens / workload.clause_tokens))
            clauses = (round(workload.clause_tokens * CHARS_PER_TOKEN),) * count
        else:
            chars = max(10, round(around(workload.known_chars)))
            count = max(1, round(chars / workload.clause_chars))
            clauses = (round(chars / count),) * count
        utterance_s = min(12.0, max(0.6, around(workload.utterance_s)))
        pauses = draw.random() < workload.pause_within
        yield Turn(
            wait_s=around(workload.pause_s),
            utterance_s=utterance_s,
            pause_at_s=utterance_s * draw.uniform(0.3, 0.7) if pauses else None,
            complete=draw.random() < workload.complete,
            made=made,
            kept=not made and (workload.kept > 0 and draw.random() < workload.kept),
            new_tokens=max(8, round(around(workload.new_tokens))),
            clauses=clauses,
            interrupt=draw.random() if draw.random() < workload.interrupts else 1.0,
        )
