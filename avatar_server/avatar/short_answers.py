"""Replies that are complete though short: "yes", "stop", "no thanks"."""

from __future__ import annotations

import re

_COMPLETE_TEXT = """
yes yeah yep yup no nope nah ok okay sure right exactly correct true false maybe perhaps
stop wait enough quiet hello hi hey bye goodbye thanks please continue again repeat
really great good fine cool nice never always
はい いいえ うん ううん ええ そう そうです やめて 止めて ストップ 待って ありがとう
こんにちは もう一度 大丈夫 わかった わかりました
"""
_ALONE_TEXT = "why what who when where how which next go なぜ 何 誰 どうして"
_FOLLOWING_TEXT = "it that this on you thank there now one very much so not problem all"
_COMPLETE = frozenset(_COMPLETE_TEXT.split())
_ALONE = frozenset(_ALONE_TEXT.split())
_FOLLOWING = frozenset(_FOLLOWING_TEXT.split()) | _COMPLETE
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
    if len(words) == 1 and words[0] in _ALONE:
        return True
    return words[0] in _COMPLETE and all(word in _FOLLOWING for word in words)


def is_question(text: str) -> bool:
    """Whether `text`, as a recogniser wrote it, is a question of three words at least.

    The mark is the recogniser's judgement of words and tone together. A full stop says nothing: it
    closes what breaks off, too. Words of Japanese are not parted, so its length in signs counts.
    """
    asked = text.rstrip().endswith(("?", "\uff1f"))
    return asked and (word_count(text) >= 3 or (len(text) >= 6 and not text.isascii()))
