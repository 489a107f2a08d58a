"""Where text may be cut: ends of sentences and phrases, and borders between words.

A cut never falls inside a number, an abbreviation, an address, Markdown code or a link.
"""

from __future__ import annotations

import re
from enum import IntEnum
from typing import NamedTuple


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


TITLES = _set(
    "mr mrs ms mx dr prof rev hon st sr jr gen col capt lt sgt gov sen rep pres mt ft vs no fig "
    "figs eq sec vol pp ed eds al approx dept est cf viz ca incl excl tel ext"
)
"""Abbreviations (without their dot) that are followed by what they belong to."""
CLOSERS = _set("etc inc ltd corp co jan feb mar apr jun jul aug sep sept oct nov dec")
"""Abbreviations that may also end a sentence: the next word's capital tells."""

_SENTENCE = re.compile(r"[.!?…]+[\"'”’)\]*_]*(?=\s)|[。！？]+[」』）]*|\n+")
_PHRASE = re.compile(r"[,;:][\"'”’)\]*_]*(?=\s)|\s[–—-](?=\s)|—(?=\w)|[、，；：]")
_BLANK = re.compile(r"\s+")
_LIST_NUMBER = re.compile(r"(?:^|\n)\s*\(?\d{1,3}\.$")
_LETTERS_AND_DOTS = re.compile(r"(?:^|[\s(\"'“‘*_])(?:\w\.)+$")
_TIME_OF_DAY = re.compile(r"\b[ap]\.m\.$", re.IGNORECASE)
_LAST_WORD = re.compile(r"([^\W\d_]+)\.$")
_PROTECTED = re.compile(
    r"```.*?(?:```|\Z)"
    r"|`[^`\n]*(?:`|\Z)"
    r"|\[[^\]\n]*\]\([^)\s]*\)?"
    r"|\[[^\]\n]*\]?\Z"
    r"|(?<!\S)\(\w[^()\n]{0,80}(?:\)|\Z)",
    re.DOTALL,
)
_AVOID_AFTER = _set(
    "a an the of to in on at by for from with and or but as is are was were be been am my your his "
    "her its our their this that these those very so i you we they he she it who which not no "
    "than if when while because can could will would should may might must do does did has have "
    "had"
)
"""Words that lean on the next one: a pause after them sounds wrong."""
_GOOD_BEFORE = _set(
    "and but or because which who that when while where if so to in on at by for from with about "
    "into over under after before until since than as"
)
"""Words that begin a new phrase: a pause before them sounds right."""


class Kind(IntEnum):
    """How good a place to cut is."""

    WORD_POOR = 0
    WORD = 1
    WORD_GOOD = 2
    PHRASE = 3
    SENTENCE = 4


class Border(NamedTuple):
    """A place to cut: before the character at `position`."""

    position: int
    kind: Kind


def borders(text: str, complete: bool = False) -> list[Border]:
    """All borders inside `text`, in order, each position once.

    While `text` is still growing (`complete` false) a place whose kind depends on what follows is
    not reported before that is there.
    """
    found: dict[int, Kind] = {}
    held = [match.span() for match in _PROTECTED.finditer(text)]

    def add(position: int, kind: Kind) -> None:
        if 0 < position < len(text) and not any(a < position < b for a, b in held):
            found[position] = max(kind, found.get(position, kind))

    for match in _BLANK.finditer(text):
        kind = _word_border(text, match, complete)
        if kind is not None:
            add(match.start() + 1, kind)
    for match in _PHRASE.finditer(text):
        add(_after_blank(text, match.end()), Kind.PHRASE)
    for match in _SENTENCE.finditer(text):
        kind = _sentence_border(text, match, complete)
        if kind is not None:
            add(_after_blank(text, match.end()), kind)
    return [Border(position, kind) for position, kind in sorted(found.items())]


def _after_blank(text: str, position: int) -> int:
    return position + 1 if text[position : position + 1].isspace() else position


def _sentence_border(text: str, match: re.Match[str], complete: bool) -> Kind | None:
    mark = match.group()
    if mark.startswith("\n") or mark[0] in "。！？":
        return Kind.SENTENCE
    rest = text[match.end() :].lstrip()
    if not rest and not complete:
        return None
    upper = rest[:1].isupper() or not rest[:1].isalpha()
    before = text[: match.start() + 1]
    if mark.startswith(".") and not mark.startswith(".."):
        if _LIST_NUMBER.search(before):
            return None
        if _TIME_OF_DAY.search(before):
            return Kind.SENTENCE if rest[:1].isupper() else None
        if _LETTERS_AND_DOTS.search(before):
            return None
        if word := _LAST_WORD.search(before):
            lower = word.group(1).lower()
            if lower in TITLES and (lower != "no" or rest[:1].isdigit()):
                return None
            if lower in CLOSERS:
                return Kind.SENTENCE if rest[:1].isupper() else None
    return Kind.SENTENCE if upper else Kind.PHRASE


def _word_border(text: str, match: re.Match[str], complete: bool) -> Kind | None:
    before, after = text[: match.start()], text[match.end() :]
    following = re.match(r"[^\W\d_]+", after)
    if not complete and (not after or (following and following.end() == len(after))):
        return None
    last = re.search(r"(\S+)$", before)
    previous = last.group(1).lower().strip("\"'“”‘’()*_") if last else ""
    if not previous or previous[-1:].isdigit() or previous.rstrip(".") in TITLES:
        return Kind.WORD_POOR
    if previous in _AVOID_AFTER or after[:1].isdigit():
        return Kind.WORD_POOR
    if following and following.group().lower() in _GOOD_BEFORE:
        return Kind.WORD_GOOD
    return Kind.WORD
