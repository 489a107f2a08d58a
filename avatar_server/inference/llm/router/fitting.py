"""Fitting the router's head on labelled utterances."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from avatar_server.inference.llm.retrieval import Encoder
from avatar_server.inference.llm.router.examples import Example, alone
from avatar_server.inference.llm.router.features import Context
from avatar_server.inference.llm.router.head import Head, compact, fit
from avatar_server.inference.llm.router.views import Vectors, make_views

BACKGROUND_EVERY = 12
"""Of the training rows, every so many-th tells an operator's routes from everything else."""
STRETCH = 125
"""Rows whose ids name no topic that are held out together."""


def fit_head(encoder: Encoder, rows: Sequence[Example]) -> Head:
    """A head for the rows' routes. 10,000 rows take a minute of one core, and 4 GB."""
    # One part held out is enough for the temperature, which is a single number.
    parts = np.where(split(rows, 3) == 0, 0, -1)
    further = [(part, form) for row, part in zip(rows, parts, strict=True) for form in alone([row])]
    everything = [*rows, *(form for _, form in further)]
    folds = [*parts, *(part for part, _ in further)]
    vectors = Vectors(encoder)
    vectors.add([text for row in everything for text in (row.text, *(t.text for t in row.history))])
    views = make_views([(row.text, Context.of(row.history)) for row in everything], vectors)
    targets = [row.route + "+" * row.continuation for row in everything]
    return compact(fit(views, targets, np.array(folds, np.intp)))


def background_texts(rows: Sequence[Example]) -> list[str]:
    """Utterances that stand alone, of all routes and topics."""
    alone_texts = dict.fromkeys(row.text for row in rows if not row.continuation)
    return list(alone_texts)[::BACKGROUND_EVERY]


def split(rows: Sequence[Example], parts: int) -> NDArray[np.intp]:
    """A part (0…) for each row such that rows near to each other in the data stay together."""
    groups = [topic(row) for row in rows]
    order = {group: n % parts for n, group in enumerate(dict.fromkeys(groups))}
    return np.array([order[group] for group in groups], np.intp)


def topic(row: Example) -> str:
    """What rows are held out together: as the id names it ("en-train-travel"), otherwise a stretch
    of rows by their numbers ("ja-train 6"), which rows that are added behind do not move."""
    number = row.id.rsplit("-", 1)[-1]
    if row.group.count("-") >= 2 or not number.isdecimal():
        return row.group
    return f"{row.group} {int(number) // STRETCH}"
