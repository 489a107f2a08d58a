"""A clause as a row of phonemes, each of which knows the word it belongs to."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple, Protocol

PAUSES = frozenset(".,;:?!…—")
"""Punctuation that voices were trained on, as symbols of its own."""

STRESS = frozenset("ˈˌ")
_VOWELS = frozenset("aeiouyæɐɑɒɔəɚɛɜɝɪɨʉʊʌɯɵøœɤᵻᵊAIOWYQ")
_EDGE = re.compile(r"^[^\w$€£¥%+@#&=]+|[^\w$€£¥%+@#&=]+$", re.UNICODE)
_DOTTED_LETTERS = re.compile(r"(?:[^\W\d_]\.){2,}")
"""Such as `p.m.`: its last stop ends no sentence, unless the text ends with it."""
_PAUSE_OF = {"–": "—", "。": ".", "、": ",", "！": "!", "？": "?", "：": ":", "；": ";"}

_INSERT = 0.7
"""Cost of a phoneme that stands on one side only; see `_owners`."""
_SAME_CLASS = 0.6
_OTHER_CLASS = 1.3


class Phone(NamedTuple):
    """One symbol (a single code point of IPA, a blank or punctuation) and its word's index."""

    symbol: str
    word: int | None


@dataclass(frozen=True, slots=True)
class PhonemizedText:
    """`words` as written (blank-separated), and the symbols that say them, in order."""

    words: list[str]
    phones: list[Phone]


class Grapheme2Phoneme(Protocol):
    """What `phonemize` needs of a pronunciation source."""

    def phonemes(self, text: str) -> str: ...

    def word(self, text: str) -> str: ...


def phonemize(text: str, source: Grapheme2Phoneme) -> PhonemizedText:
    """Pronounce `text` phrase by phrase, so that its punctuation is kept as symbols."""
    words = text.split()
    phones: list[Phone] = []
    phrase: list[tuple[int, str]] = []

    def say_phrase() -> None:
        if phrase and (said := _say(phrase, source)):
            if phones:
                phones.append(Phone(" ", None))
            phones.extend(said)
        phrase.clear()

    for index, word in enumerate(words):
        core = _EDGE.sub("", word)
        if core:
            phrase.append((index, core))
        abbreviated = _DOTTED_LETTERS.fullmatch(word) and index < len(words) - 1
        if not abbreviated and (pause := _pause_after(word)):
            say_phrase()
            if phones and phones[-1].symbol not in PAUSES:
                phones.append(Phone(pause, None))
    say_phrase()
    return PhonemizedText(words, phones)


def _pause_after(word: str) -> str | None:
    for char in reversed(word):
        char = _PAUSE_OF.get(char, char)
        if char in PAUSES:
            return char
        if char.isalnum():
            return None
    return None


def _say(phrase: list[tuple[int, str]], source: Grapheme2Phoneme) -> list[Phone]:
    groups = source.phonemes(" ".join(core for _, core in phrase)).split()
    plain = all(core.replace("'", "").replace("’", "").isalpha() for _, core in phrase)
    if len(groups) == len(phrase) and plain:
        owners = [[index] * len(group) for (index, _), group in zip(phrase, groups, strict=True)]
    else:
        owners = _owners(phrase, groups, source)
    phones: list[Phone] = []
    for group, owned in zip(groups, owners, strict=True):
        if phones:
            inside = phones[-1].word == owned[0]
            phones.append(Phone(" ", owned[0] if inside else None))
        phones.extend(Phone(symbol, word) for symbol, word in zip(group, owned, strict=True))
    return phones


def _owners(
    phrase: list[tuple[int, str]], groups: list[str], source: Grapheme2Phoneme
) -> list[list[int]]:
    """Which word each symbol of `groups` belongs to.

    espeak-ng joins words ("of the") and splits others ("3.5"), so the phrase is aligned, at the
    lowest edit cost, with its words pronounced one by one.
    """
    alone: list[tuple[str, int]] = []
    for index, core in phrase:
        said = source.word(core).replace(" ", "")
        alone.extend((s, index) for s in said if s not in STRESS)
    together = [s for group in groups for s in group if s not in STRESS]
    if not alone:
        return [[phrase[0][0]] * len(group) for group in groups]
    assigned = _align([s for s, _ in alone], together)
    owned_flat = [alone[at][1] for at in assigned]
    result: list[list[int]] = []
    position = 0
    for group in groups:
        owned: list[int] = []
        for symbol in group:
            # A stress mark stands before the sound it belongs to.
            owned.append(owned_flat[min(position, len(owned_flat) - 1)] if owned_flat else 0)
            if symbol not in STRESS:
                position += 1
        result.append(owned)
    return result


def _align(source: list[str], target: list[str]) -> list[int]:
    """For each symbol of `target` the index in `source` it corresponds to; never decreasing."""
    rows, columns = len(source), len(target)
    cost = [[0.0] * (columns + 1) for _ in range(rows + 1)]
    for i in range(1, rows + 1):
        cost[i][0] = i * _INSERT
    for j in range(1, columns + 1):
        cost[0][j] = j * _INSERT
    for i in range(1, rows + 1):
        above, row, symbol = cost[i - 1], cost[i], source[i - 1]
        for j in range(1, columns + 1):
            row[j] = min(
                above[j - 1] + _difference(symbol, target[j - 1]),
                above[j] + _INSERT,
                row[j - 1] + _INSERT,
            )
    assigned = [0] * columns
    i, j = rows, columns
    while j > 0:
        if i > 0 and _near(
            cost[i][j], cost[i - 1][j - 1] + _difference(source[i - 1], target[j - 1])
        ):
            i, j = i - 1, j - 1
            assigned[j] = i
        elif i > 0 and _near(cost[i][j], cost[i - 1][j] + _INSERT):
            i -= 1
        else:
            j -= 1
            assigned[j] = max(0, i - 1)
    return assigned


def _near(a: float, b: float) -> bool:
    return abs(a - b) < 1e-9


def _difference(a: str, b: str) -> float:
    if a == b:
        return 0.0
    return _SAME_CLASS if (a in _VOWELS) == (b in _VOWELS) else _OTHER_CLASS
