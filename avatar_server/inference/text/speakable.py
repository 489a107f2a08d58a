"""From a reply as it is shown to a reply as it is said."""

from __future__ import annotations

import re

from avatar_server.inference.text import abbreviations, markup, numerals

_BLANKS = re.compile(r"\s+")
_BLANK_BEFORE_MARK = re.compile(r"\s+(?=[,.;:?!])")
_REPEATED_MARK = re.compile(r"([,;:])(?:\s*[,;:])+")
_MARK_BEFORE_END = re.compile(r"[,;:]+(?=\s*[.?!])")
_REPEATED_STOP = re.compile(r"\.{4,}|(?<![.])\.\.(?!\.)")
_ONLY_MARKS = re.compile(r"^[\s,.;:?!]+(?=\w)")
_EMPTY_BRACKETS = re.compile(r"\(\s*[,;:.]*\s*\)")
_LETTERS_LEFT = re.compile(r"[^\W_]")
_CJK = "[\u3000-\u30ff\u3400-\u9fff\uff00-\uffef]"
_JAPANESE_BLANK = re.compile(rf"(?<={_CJK})\s+|\s+(?={_CJK})")


def speakable(text: str, language: str) -> str:
    """`text` as one line of words that a voice can read.

    Markdown, HTML and emoji are dropped; in English also addresses, code, numbers, money, dates,
    times, units, abbreviations and acronyms are put in words. Plain text is left as it is. The
    result has letters or digits where `text` has; otherwise it may be empty.
    """
    english = language.lower().startswith("en")
    spoken = markup.strip_markup(text, english)
    if english:
        spoken = abbreviations.expand_signs(spoken)
        spoken = abbreviations.expand_abbreviations(spoken)
        spoken = numerals.spell_out(spoken)
        spoken = abbreviations.expand_operators(spoken)
        spoken = abbreviations.expand_acronyms(spoken)
    spoken = _tidy(markup.drop_left_over(spoken))
    if language.lower().startswith("ja"):
        spoken = _JAPANESE_BLANK.sub("", spoken)
    if not _LETTERS_LEFT.search(spoken):
        # All there was stood inside markup: better to read that than to say nothing.
        spoken = " ".join(re.findall(r"[^\W_]+", text))
    return spoken


def _tidy(text: str) -> str:
    text = _EMPTY_BRACKETS.sub(" ", text)
    text = _BLANKS.sub(" ", text)
    text = _BLANK_BEFORE_MARK.sub("", text)
    text = _REPEATED_MARK.sub(r"\1", text)
    text = _MARK_BEFORE_END.sub("", text)
    text = _REPEATED_STOP.sub(".", text)
    return _ONLY_MARKS.sub("", text).strip()
