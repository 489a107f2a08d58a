"""The router of the embedded tier: sentence embeddings and a small trained head."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from avatar_server.inference.llm.retrieval import Encoder
from avatar_server.inference.llm.router import storage
from avatar_server.inference.llm.router.examples import (
    BUILTIN_NAMES,
    Example,
    alone,
    load_examples,
)
from avatar_server.inference.llm.router.features import (
    Context,
    FloatArray,
    character_grams,
    hashed,
    measures,
    word_marks,
)
from avatar_server.inference.llm.router.head import Head, Views, fit
from avatar_server.inference.llm.router.operator import Background, OperatorRoutes
from avatar_server.inference.llm.router.quick import quick_route
from avatar_server.inference.llm.router.resolve import merge
from avatar_server.inference.llm.router.routes import (
    UNCLEAR,
    Decision,
    Route,
    Turn,
)
from avatar_server.paths import assets_dir, cache_dir

logger = logging.getLogger(__name__)

ASK_BACK_BELOW = 0.4
"""Confidence under which to ask back: of held-out decisions below it, 59% are wrong."""
BACKGROUND_EVERY = 6
"""Of the training rows, every so many-th tells an operator's routes from everything else."""
REMEMBERED_TURNS = 6
"""Turns of the history that are looked at; training rows have no more."""


class EmbeddingRouter:
    """Decides in one to two hundredths of a second on one core. One thread at a time may use it."""

    def __init__(
        self,
        encoder: Encoder,
        head: Head,
        *,
        operator: OperatorRoutes | None = None,
        ask_back_below: float = ASK_BACK_BELOW,
    ) -> None:
        self._encoder = encoder
        self._head = head
        self._operator = operator
        self._ask_back_below = ask_back_below
        self._background: tuple[Sequence[str], Path | None] = ((), None)

    @classmethod
    def ready(
        cls,
        encoder: Encoder,
        routes: Sequence[Route] = (),
        folder: Path | None = None,
        ask_back_below: float = ASK_BACK_BELOW,
        data: Path | None = None,
    ) -> EmbeddingRouter:
        """A router for the built-in routes and the operator's, fitted or read from `folder`.

        Fitting takes some thirty seconds of one core; the head is kept in `folder` (default: the
        cache) and fitted anew when the data changes. Raises `DatasetError` for unreadable data,
        `ValueError` for routes without examples.
        """
        data = data or assets_dir() / "eval" / "routing-train.jsonl"
        rows = load_examples(data)
        made_from = storage.fingerprint([data.read_text(encoding="utf-8")])
        folder = folder or cache_dir() / "router"
        path = folder / f"head-{made_from}.npz"
        head = storage.load(path, made_from)
        if head is None:
            logger.info("fitting the router's head on %d utterances", len(rows))
            head = fit_head(encoder, rows)
            try:
                storage.save(head, path, made_from)
            except OSError as error:
                logger.warning("cannot keep the router's head in %s: %s", path, error)
        router = cls(encoder, head, ask_back_below=ask_back_below)
        router._background = background_texts(rows), folder
        return router.with_routes(routes) if routes else router

    def with_routes(self, routes: Sequence[Route]) -> EmbeddingRouter:
        """One that knows an operator's routes, too: some 5 ms an example."""
        texts, folder = self._background
        background = Background(texts, self._encoder, folder)
        operator = OperatorRoutes([r for r in routes if r.examples], self._encoder, background)
        router = EmbeddingRouter(
            self._encoder, self._head, operator=operator, ask_back_below=self._ask_back_below
        )
        router._background = self._background
        return router

    def decide(self, text: str, history: Sequence[Turn] = ()) -> Decision:
        """What `text` asks for. User turns of the history without a route are routed too."""
        if not text.strip():
            return Decision(UNCLEAR, 1.0, False, text, True, {UNCLEAR: 1.0})
        if (quick := quick_route(text)) is not None:
            return Decision(quick, 1.0, False, text, False, {quick: 1.0})
        recent = list(history[-REMEMBERED_TURNS:])
        vectors = Vectors(self._encoder)
        vectors.add([turn.text for turn in recent if turn.role == "user" and turn.route is None])
        routed = [
            replace(turn, route=self._alone(turn.text, vectors))
            if turn.role == "user" and turn.route is None
            else turn
            for turn in recent
        ]
        context = Context.of(routed)
        told = (context.request, context.last_user, context.reply)
        vectors.add([text, *(turn.text for turn in told if turn is not None)])
        chances = self._chances(text, context, vectors)
        own = self._operator.chances(text, vectors[text]) if self._operator is not None else {}
        return self._decision(text, context, chances, own)

    def _alone(self, text: str, vectors: Vectors) -> str:
        chances = self._chances(text, Context(None, None, None), vectors)
        return max(chances, key=lambda label: chances[label]).rstrip("+")

    def _chances(self, text: str, context: Context, vectors: Vectors) -> Mapping[str, float]:
        views = make_views([(text, context)], vectors)
        return dict(
            zip(self._head.labels, map(float, self._head.probabilities(views)[0]), strict=True)
        )

    def _decision(
        self, text: str, context: Context, chances: Mapping[str, float], own: Mapping[str, float]
    ) -> Decision:
        """`chances` by built-in label, `own` by the operator's route."""
        possible = {
            label: chance
            for label, chance in chances.items()
            if context.request is not None or not label.endswith("+")
        }
        rest = max(0.0, 1 - sum(own.values())) / (sum(possible.values()) or 1.0)
        possible = {label: chance * rest for label, chance in possible.items()}
        for name, chance in own.items():
            possible[name] = possible.get(name, 0.0) + chance
        best = max(possible, key=lambda label: possible[label])
        request, continues = context.request, best.endswith("+")
        route = best.rstrip("+")
        by_route: dict[str, float] = {}
        for label, chance in possible.items():
            name = label.rstrip("+")
            if label.endswith("+") and request is not None and request.route not in BUILTIN_NAMES:
                # What continues a request of the operator's own kind is of that kind.
                name = request.route or name
            by_route[name] = by_route.get(name, 0.0) + chance
        resolved = text
        if continues and request is not None:
            resolved = merge(request.resolved or request.text, text)
            if request.route is not None and request.route not in BUILTIN_NAMES:
                route = request.route
        confidence = possible[best]
        return Decision(
            route, confidence, continues, resolved, confidence < self._ask_back_below, by_route
        )


class Vectors:
    """Embeddings by text, each made once."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self._known: dict[str, FloatArray] = {}

    def add(self, texts: Sequence[str]) -> None:
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


def fit_head(encoder: Encoder, rows: Sequence[Example]) -> Head:
    """A head for the rows' routes. Takes half a minute, and a gigabyte."""
    parts = split(rows, 3)
    further = [(part, form) for row, part in zip(rows, parts, strict=True) for form in alone([row])]
    everything = [*rows, *(form for _, form in further)]
    folds = [*parts, *(part for part, _ in further)]
    vectors = Vectors(encoder)
    vectors.add([text for row in everything for text in (row.text, *(t.text for t in row.history))])
    views = make_views([(row.text, Context.of(row.history)) for row in everything], vectors)
    targets = [row.route + "+" * row.continuation for row in everything]
    return fit(views, targets, np.array(folds, np.intp))


def background_texts(rows: Sequence[Example]) -> list[str]:
    """Utterances that stand alone, of all routes and topics."""
    alone_texts = dict.fromkeys(row.text for row in rows if not row.continuation)
    return list(alone_texts)[::BACKGROUND_EVERY]


def split(rows: Sequence[Example], parts: int) -> NDArray[np.intp]:
    """A part (0…) for each row such that rows near to each other in the data stay together.

    Topics, where the ids name them; otherwise twelve stretches a language.
    """
    groups = []
    counts: dict[str, int] = {}
    for row in rows:
        counts[row.lang] = counts.get(row.lang, 0) + 1
    seen = dict.fromkeys(counts, 0)
    for row in rows:
        named = row.group.count("-") >= 2
        groups.append(
            row.group if named else f"{row.lang} {seen[row.lang] * 12 // counts[row.lang]}"
        )
        seen[row.lang] += 1
    order = {group: n % parts for n, group in enumerate(dict.fromkeys(groups))}
    return np.array([order[group] for group in groups], np.intp)
