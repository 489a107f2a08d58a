"""Replies that are complete though short: "yes", "stop", "no thanks"."""

from __future__ import annotations

import re

_COMPLETE_TEXT = """
yes yeah yep yup no nope nah ok okay sure right exactly correct true false maybe perhaps
stop wait enough quiet hello hi hey bye goodbye thanks please continue go next again repeat
why what who when where how really great good fine cool nice never always
はい いいえ うん ううん ええ そう そうです やめて 止めて ストップ 待って ありがとう
こんにちは もう一度 なぜ 何 誰 どうして 大丈夫 わかった わかりました
"""
_OPEN_TEXT = "and or but so because the a an if with to of um uh er hmm"
_COMPLETE = frozenset(_COMPLETE_TEXT.split())
_OPEN = frozenset(_OPEN_TEXT.split())
_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)?")


def words_of(text: str) -> list[str]:
    """The words of `text` in lower case, without punctuation."""
    return [word.lower().replace("’", "'") for word in _WORD.findall(text)]


def word_count(text: str) -> int:
    """How many words `text` has."""
    return len(words_of(text))


def is_short_answer(text: str) -> bool:
    """Whether `text`, of at most three words, stands by itself as a reply or a command."""
    words = words_of(text)
    if not 1 <= len(words) <= 3:
        return False
    return words[0] in _COMPLETE and words[-1] not in _OPEN
