"""From a model's phoneme durations to the times of words and visemes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

from avatar_server.inference.tts.phonemes import PAUSES, Phone
from avatar_server.inference.tts.visemes import (
    DIPHTHONG_SPLIT,
    DIPHTHONGS,
    MARKS,
    viseme_of,
)
from avatar_server.protocol.messages import Word
from renderers.contract import Viseme, VisemeSpan

EARLIEST_S = -0.1
"""A soft first sound may be cut with the silence before it: the lips say it all the same."""

SHORTEST_SILENCE_S = 0.06
"""Below this a pause inside a clause is no closed mouth: neighbours take its time."""


@dataclass(frozen=True, slots=True)
class TimedPhone:
    """A phone with its time in seconds from the model's first sample."""

    phone: Phone
    start: float
    end: float


@dataclass(slots=True)
class Timeline:
    """Words and visemes of a clause, in seconds; `start` and `end` bound the speech in it.

    `phones` are the sounds themselves, as the model timed them.
    """

    words: list[Word]
    visemes: list[VisemeSpan]
    start: float
    end: float
    phones: list[TimedPhone] = field(default_factory=list)

    def trimmed(self, cut: float, length: float) -> Timeline:
        """The same with `cut` seconds less at its beginning, ending at `length` (silence).

        Sounds that were cut are left with times before 0.
        """

        def move(at: float, earliest: float = 0.0) -> float:
            return min(max(at - cut, earliest), length)

        words = [
            Word(text=word.text, start=move(word.start), end=move(word.end)) for word in self.words
        ]
        spans = [
            VisemeSpan(v, move(a, EARLIEST_S), move(b, EARLIEST_S)) for v, a, b in self.visemes
        ]
        if spans and spans[0].viseme == Viseme.SIL:
            spans[0] = VisemeSpan(int(Viseme.SIL), max(spans[0].start, 0.0), spans[0].end)
        speech_end = spans[-1].end if spans else 0.0
        spans.append(VisemeSpan(int(Viseme.SIL), speech_end, length))
        phones = [
            TimedPhone(p.phone, move(p.start, EARLIEST_S), move(p.end, EARLIEST_S))
            for p in self.phones
        ]
        return Timeline(words, _joined(spans), move(self.start), move(self.end), phones)


def build_timeline(words: Sequence[str], timed: Sequence[TimedPhone], total: float) -> Timeline:
    """Times of `words` and visemes for `timed` phones of `total` seconds of sound.

    `timed` must be in order and without overlap. A word without sound of its own (a dash) gets no
    time, at the end of the word before it.
    """
    sounding = [t for t in timed if t.phone.symbol not in PAUSES and t.phone.symbol != " "]
    if not sounding:
        return Timeline(
            [Word(text=word, start=0.0, end=0.0) for word in words],
            [VisemeSpan(int(Viseme.SIL), 0.0, total)],
            0.0,
            0.0,
        )
    start, end = sounding[0].start, sounding[-1].end
    visemes = _visemes(timed, start, end, total)
    return Timeline(_words(words, timed), visemes, start, end, sounding)


def _words(words: Sequence[str], timed: Sequence[TimedPhone]) -> list[Word]:
    spans: dict[int, tuple[float, float]] = {}
    for item in timed:
        word = item.phone.word
        if word is None:
            continue
        begun = spans.get(word)
        spans[word] = (begun[0] if begun else item.start, item.end)
    result: list[Word] = []
    previous_end = min((span[0] for span in spans.values()), default=0.0)
    for index, text in enumerate(words):
        start, end = spans.get(index, (previous_end, previous_end))
        result.append(Word(text=text, start=max(start, previous_end), end=max(end, previous_end)))
        previous_end = result[-1].end
    return result


def _visemes(
    timed: Sequence[TimedPhone], start: float, end: float, total: float
) -> list[VisemeSpan]:
    shaped: list[VisemeSpan] = []
    for index, item in enumerate(timed):
        symbol = item.phone.symbol
        if item.end <= start or item.start >= end or item.end <= item.start:
            continue
        if symbol in PAUSES:
            if item.end - item.start >= SHORTEST_SILENCE_S:
                shaped.append(VisemeSpan(int(Viseme.SIL), item.start, item.end))
            continue
        if symbol == " " or symbol in MARKS:
            continue
        viseme = viseme_of(symbol, _next_symbol(timed, index))
        if viseme is None:
            continue
        if symbol in DIPHTHONGS:
            middle = item.start + (item.end - item.start) * DIPHTHONG_SPLIT
            shaped.append(VisemeSpan(int(viseme), item.start, middle))
            shaped.append(VisemeSpan(int(DIPHTHONGS[symbol][1]), middle, item.end))
        else:
            shaped.append(VisemeSpan(int(viseme), item.start, item.end))
    filled = _filled(shaped, start, end)
    return _joined(
        [
            VisemeSpan(int(Viseme.SIL), 0.0, start),
            *filled,
            VisemeSpan(int(Viseme.SIL), end, max(total, end)),
        ]
    )


def _next_symbol(timed: Sequence[TimedPhone], index: int) -> str:
    for item in timed[index + 1 :]:
        if item.phone.symbol not in MARKS:
            return item.phone.symbol
    return ""


def _filled(spans: list[VisemeSpan], start: float, end: float) -> list[VisemeSpan]:
    """Holes (stress and length marks, blanks between words) are shared by their neighbours.

    Before a mark for length the sound is held; otherwise each side takes half.
    """
    if not spans:
        return [VisemeSpan(int(Viseme.SIL), start, end)]
    borders = [start]
    borders.extend((a.end + b.start) / 2 for a, b in itertools.pairwise(spans))
    borders.append(end)
    return [VisemeSpan(span.viseme, borders[i], borders[i + 1]) for i, span in enumerate(spans)]


def _joined(spans: Sequence[VisemeSpan]) -> list[VisemeSpan]:
    """Without empty spans, equal neighbours made one."""
    result: list[VisemeSpan] = []
    for span in spans:
        if span.end <= span.start:
            continue
        if result and result[-1].viseme == span.viseme:
            result[-1] = VisemeSpan(span.viseme, result[-1].start, span.end)
        else:
            result.append(span)
    return result
