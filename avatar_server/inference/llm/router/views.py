"""Utterances in their context as the head takes them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from avatar_server.inference.llm.retrieval import Encoder
from avatar_server.inference.llm.router.features import (
    Context,
    FloatArray,
    character_grams,
    hashed,
    measures,
    word_marks,
)
from avatar_server.inference.llm.router.head import Views
from avatar_server.inference.llm.router.routes import Turn


class Vectors:
    """Embeddings by text, each made once; of what was not asked for lately, the oldest go."""

    def __init__(self, encoder: Encoder, most: int | None = None) -> None:
        self._encoder = encoder
        self._most = most
        self._known: dict[str, FloatArray] = {}

    def add(self, texts: Sequence[str]) -> None:
        """Make those of `texts`, which are then there until the next call at least."""
        for text in dict.fromkeys(texts):
            if text in self._known:
                self._known[text] = self._known.pop(text)
        while self._most is not None and len(self._known) > self._most:
            del self._known[next(iter(self._known))]
        new = [text for text in dict.fromkeys(texts) if text not in self._known]
        for start in range(0, len(new), 64):
            part = new[start : start + 64]
            self._known.update(zip(part, self._encoder.encode(part), strict=True))

    def of(self, turn: Turn | None) -> FloatArray | None:
        return None if turn is None else self._known[turn.text]

    def __getitem__(self, text: str) -> FloatArray:
        return self._known[text]


def make_views(items: Sequence[tuple[str, Context]], vectors: Vectors) -> Views:
    """Utterances in their context as the head takes them; `vectors` holds all texts."""
    rows = [
        measures(
            text,
            context,
            vectors[text],
            vectors.of(context.request),
            vectors.of(context.last_user),
            vectors.of(context.reply),
        )
        for text, context in items
    ]
    return Views(
        np.stack([vectors[text] for text, _ in items]).astype(np.float32),
        [hashed(word_marks(text)) for text, _ in items],
        [hashed(character_grams(text)) for text, _ in items],
        np.stack(rows),
        np.array([context.state for _, context in items], np.int8),
    )
