"""Cutting a reply into clauses for speech while it is still being written."""

from __future__ import annotations

import unicodedata

from avatar_server.inference.text.borders import Border, Kind, borders

_LOOK_AHEAD = 200
"""Characters looked at beyond the longest clause: what follows a place decides its kind."""


class ClauseCutter:
    """Takes text as it comes and gives clauses: the first one early, later ones longer.

    Sizes are in characters as spoken: a wide (Chinese, Japanese, Korean) one counts double.

    `first_min_chars`: the first clause is cut at the first comma or sentence end from here on.
    `first_min_words`, `first_max_words`: without such a mark, it is cut between words: before a
    word that begins a phrase from the former on, at any good place from the latter on.
    `min_chars`: later clauses are cut at commas from here on, at sentence ends always.
    `max_chars`: from here on also between words. `hard_max_chars`: no clause is longer, whatever
    has to be cut for it (code, an endless word).
    `max_sentences`: what follows that many sentences is dropped, and `finished` is then true.

    The clauses joined are the text, except for blank text at its end and dropped sentences.
    """

    def __init__(
        self,
        *,
        first_min_chars: int = 8,
        first_min_words: int = 5,
        first_max_words: int = 8,
        min_chars: int = 60,
        max_chars: int = 160,
        hard_max_chars: int = 320,
        max_sentences: int | None = None,
    ) -> None:
        if not 0 < first_min_chars <= min_chars <= max_chars <= hard_max_chars:
            raise ValueError("need 0 < first_min_chars <= min_chars <= max_chars <= hard_max_chars")
        if not 0 < first_min_words <= first_max_words:
            raise ValueError("need 0 < first_min_words <= first_max_words")
        self._first_min_chars = first_min_chars
        self._first_min_words = first_min_words
        self._first_max_words = first_max_words
        self._min_chars = min_chars
        self._max_chars = max_chars
        self._hard_max_chars = hard_max_chars
        self._sentences_left = max_sentences
        self._text = ""
        self._first = True

    @property
    def finished(self) -> bool:
        """Whether `max_sentences` have been given: the writer may stop."""
        return self._sentences_left is not None and self._sentences_left <= 0

    def feed(self, text: str) -> list[str]:
        """Clauses that are certain now that `text` has come."""
        if self.finished:
            return []
        self._text += text
        return self._take(complete=False)

    def flush(self) -> list[str]:
        """The rest, at the text's end; the cutter then takes no more of this reply."""
        clauses = [] if self.finished else self._take(complete=True)
        if self._text.strip() and not self.finished:
            clauses.append(self._text)
        self._text = ""
        return clauses

    def _take(self, complete: bool) -> list[str]:
        clauses: list[str] = []
        while not self.finished:
            cut = self._find_cut(complete)
            if cut is None:
                break
            clauses.append(self._text[: cut.position])
            self._text = self._text[cut.position :]
            self._first = False
            if cut.kind is Kind.SENTENCE and self._sentences_left is not None:
                self._sentences_left -= 1
        if self.finished:
            self._text = ""
        return clauses

    def _find_cut(self, complete: bool) -> Border | None:
        reach = _fitting(self._text, self._hard_max_chars)
        too_long = reach < len(self._text)
        best: Border | None = None
        window = self._text[: reach + _LOOK_AHEAD]
        for border in borders(window, complete and len(window) == len(self._text)):
            if border.position > reach:
                break
            head = self._text[: border.position]
            if not any(map(str.isalnum, head)):
                continue
            if self._accepts(border, head):
                return border
            if best is None or border.kind >= max(Kind.WORD, best.kind):
                best = border
        if too_long:
            return best or Border(reach, Kind.WORD_POOR)
        return None

    def _accepts(self, border: Border, head: str) -> bool:
        size = spoken_size(head.strip())
        if border.kind is Kind.SENTENCE:
            return True
        if border.kind is Kind.PHRASE:
            return size >= (self._first_min_chars if self._first else self._min_chars)
        if self._first:
            words = len(head.split())
            if border.kind is Kind.WORD_GOOD:
                return words >= self._first_min_words
            return border.kind is Kind.WORD and words >= self._first_max_words
        return border.kind >= Kind.WORD and size >= self._max_chars


def limit_sentences(text: str, limit: int) -> str:
    """The first `limit` sentences of `text`, without blanks at either end."""
    cutter = ClauseCutter(max_sentences=limit)
    return "".join([*cutter.feed(text), *cutter.flush()]).strip()


def spoken_size(text: str) -> int:
    """Characters of `text`, wide ones counted double."""
    return len(text) + sum(_wide(char) for char in text)


def _wide(char: str) -> bool:
    return char > "\u10ff" and unicodedata.east_asian_width(char) in "WF"


def _fitting(text: str, size: int) -> int:
    """How many characters of `text` fit into `size`."""
    if spoken_size(text) <= size:
        return len(text)
    used = 0
    for position, char in enumerate(text):
        used += 2 if _wide(char) else 1
        if used > size:
            return position
    return len(text)
