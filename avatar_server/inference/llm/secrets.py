"""What a viewer must not get at: the prompt's words, and the chat's own marks."""

from __future__ import annotations

import re
from collections.abc import Iterable

from avatar_server.inference.llm.lexical import words

RUN_WORDS = 8
"""So many words in a row, the same as in the prompt, are no chance: they are read out of it."""
RUN_CHARACTERS = 16
"""Likewise where the writing has no spaces between words."""

_UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]")
_MARKS = re.compile(
    r"<\|[^<]*?\|>|<\||\|>|\[/?INST\]|<</?SYS>>|</?s>|</?think>|<(?:start|end)_of_turn>"
    r"|^\s*#{2,}\s*(?:system|instruction|assistant|user)\b:?",
    re.IGNORECASE | re.MULTILINE,
)


def harmless(text: str) -> str:
    """`text` without the marks by which chat templates part roles.

    Engines read them wherever they stand, so words of a viewer with such marks in them could
    pretend to be the operator's.
    """
    previous = ""
    while previous != text:
        # Again, since what is left may make a new mark: "<|im_<|x|>start|>".
        previous, text = text, _MARKS.sub("", text)
    return " ".join(text.split())


class Secret:
    """A text of which no long run may be spoken."""

    def __init__(self, text: str, public: Iterable[str] = ()) -> None:
        """`public`: texts that may be said though they stand in the secret one too."""
        self._runs = _runs(text)
        for other in public:
            self._runs -= _runs(other)

    def in_text(self, text: str) -> bool:
        """Whether `text` holds a run of the secret."""
        return not self._runs.isdisjoint(_runs(text))


def _runs(text: str) -> set[str]:
    if _UNSPACED.search(text):
        plain = "".join(words(text))
        return {plain[i : i + RUN_CHARACTERS] for i in range(len(plain) - RUN_CHARACTERS + 1)}
    said = words(text)
    return {" ".join(said[i : i + RUN_WORDS]) for i in range(len(said) - RUN_WORDS + 1)}
