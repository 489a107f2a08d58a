"""Text to the pieces of a multilingual vocabulary: SentencePiece's unigram model.

Kudo, "Subword Regularization" (2018): of all ways to cut a word the one with the highest sum of
the pieces' log-probabilities is taken, by Viterbi search. Here over words that are cut at blanks.
"""

from __future__ import annotations

import unicodedata
from array import array
from collections.abc import Sequence
from functools import lru_cache

WORD_START = "▁"
UNKNOWN_COST = 10.0
"""Below the least likely piece, as SentencePiece has it."""
MAX_WORD = 400
"""Characters of an unspaced text that are cut; what is longer has long said what it wants."""


class Pieces:
    """A vocabulary. Its ids are those of the model it was made for."""

    def __init__(self, pieces: Sequence[str], scores: Sequence[float], unknown: int) -> None:
        # Numbers only: a tuple for each of a quarter of a million pieces would take 20 MB.
        self._known = {piece: number for number, piece in enumerate(pieces) if piece}
        self._scores = array("f", scores)
        self._unknown = unknown
        self._longest = max(map(len, self._known))
        self._unknown_score = float(min(scores)) - UNKNOWN_COST
        self.word_ids = lru_cache(maxsize=8_192)(self._word_ids)

    def ids(self, text: str) -> list[int]:
        """The pieces' ids; nothing is put before or behind them."""
        words = unicodedata.normalize("NFKC", text).split()
        return [number for word in words for number in self.word_ids(word[:MAX_WORD])]

    def _word_ids(self, word: str) -> tuple[int, ...]:
        text = WORD_START + word
        best = [0.0] + [float("-inf")] * len(text)
        back: list[tuple[int, int]] = [(0, self._unknown)] * (len(text) + 1)
        for start in range(len(text)):
            for end in range(start + 1, min(len(text), start + self._longest) + 1):
                found = self._known.get(text[start:end])
                if found is not None and best[start] + self._scores[found] > best[end]:
                    best[end], back[end] = best[start] + self._scores[found], (start, found)
            if best[start] + self._unknown_score > best[start + 1]:
                best[start + 1] = best[start] + self._unknown_score
                back[start + 1] = (start, self._unknown)
        out: list[int] = []
        end = len(text)
        while end:
            end, number = back[end]
            if not (number == self._unknown and out and out[-1] == self._unknown):
                out.append(number)
        return tuple(reversed(out))
