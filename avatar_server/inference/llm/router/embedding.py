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
from avatar_server.inference.llm.router.quick import quick_route
from avatar_server.inference.llm.router.resolve import merge
from avatar_server.inference.llm.router.routes import (
    BUILTIN_ROUTES,
    UNCLEAR,
    Decision,
    Route,
    Turn,
)
from avatar_server.paths import assets_dir, cache_dir

logger = logging.getLogger(__name__)

ASK_BACK_BELOW = 0.4
"""Confidence under which to ask back: of held-out decisions below it, 59% are wrong."""
OPERATOR_REPEATS = 3
"""How often an operator's example counts: a handful must hold its own against thousands."""
REMEMBERED_TURNS = 6
"""Turns of the history that are looked at; training rows have no more."""


class EmbeddingRouter:
    """Decides in one to two hundredths of a second on one core. One thread at a time may use it."""

    def __init__(
        self,
        encoder: Encoder,
        head: Head,
        routes: Sequence[Route] = BUILTIN_ROUTES,
        ask_back_below: float = ASK_BACK_BELOW,
    ) -> None:
        self._encoder = encoder
        self._head = head
        self._names = frozenset(route.name for route in routes) | BUILTIN_NAMES
        self._ask_back_below = ask_back_below

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
        cache) and fitted anew when routes, examples or the data change. Raises `DatasetError` for
        unreadable data, `ValueError` for routes that cannot be told apart or have no examples.
        """
        check_routes(routes)
        data = data or assets_dir() / "eval" / "routing-train.jsonl"
        rows = load_examples(data)
        made_from = storage.fingerprint(
            [data.read_text(encoding="utf-8"), *(f"{r.name}\n{r.examples}" for r in routes)]
        )
        path = (folder or cache_dir() / "router") / f"head-{made_from}.npz"
        head = storage.load(path, made_from)
        if head is None:
            logger.info("fitting the router's head on %d utterances", len(rows))
            head = fit_head(encoder, rows, routes)
            try:
                storage.save(head, path, made_from)
            except OSError as error:
                logger.warning("cannot keep the router's head in %s: %s", path, error)
        return cls(encoder, head, (*BUILTIN_ROUTES, *routes), ask_back_below)

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
        return self._decision(text, context, chances)

    def _alone(self, text: str, vectors: Vectors) -> str:
        chances = self._chances(text, Context(None, None, None), vectors)
        return max(chances, key=lambda label: chances[label]).rstrip("+")

    def _chances(self, text: str, context: Context, vectors: Vectors) -> Mapping[str, float]:
        views = make_views([(text, context)], vectors)
        return dict(
            zip(self._head.labels, map(float, self._head.probabilities(views)[0]), strict=True)
        )

    def _decision(self, text: str, context: Context, chances: Mapping[str, float]) -> Decision:
        possible = {
            label: chance
            for label, chance in chances.items()
            if context.request is not None or not label.endswith("+")
        }
        total = sum(possible.values()) or 1.0
        best = max(possible, key=lambda label: possible[label])
        request, continues = context.request, best.endswith("+")
        route = best.rstrip("+")
        by_route = dict.fromkeys(sorted({label.rstrip("+") for label in possible}), 0.0)
        for label, chance in possible.items():
            by_route[label.rstrip("+")] += chance / total
        resolved = text
        if continues and request is not None:
            resolved = merge(request.resolved or request.text, text)
            if request.route in self._names - BUILTIN_NAMES:
                # What continues a request of the operator's own kind is of that kind.
                by_route[request.route] = by_route.pop(route) + by_route.get(request.route, 0.0)
                route = request.route
        confidence = possible[best] / total
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


def fit_head(encoder: Encoder, rows: Sequence[Example], routes: Sequence[Route] = ()) -> Head:
    """A head for the rows' routes and the operator's. Takes half a minute, and a gigabyte."""
    parts = split(rows, 3)
    operators = [
        Example(f"{route.name}-{n}", "", (), text, route.name, False)
        for route in routes
        for n, text in enumerate(route.examples)
    ] * OPERATOR_REPEATS
    further = [(part, form) for row, part in zip(rows, parts, strict=True) for form in alone([row])]
    everything = [*rows, *(form for _, form in further), *operators]
    folds = [*parts, *(part for part, _ in further), *([-1] * len(operators))]
    vectors = Vectors(encoder)
    vectors.add([text for row in everything for text in (row.text, *(t.text for t in row.history))])
    views = make_views([(row.text, Context.of(row.history)) for row in everything], vectors)
    targets = [row.route + "+" * row.continuation for row in everything]
    return fit(views, targets, np.array(folds, np.intp))


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


def check_routes(routes: Sequence[Route]) -> None:
    """Raises `ValueError` in words for routes that the embedded router cannot learn."""
    names: set[str] = set(BUILTIN_NAMES)
    texts: dict[str, str] = {}
    for route in routes:
        if route.name not in BUILTIN_NAMES and not route.examples:
            raise ValueError(
                f"route {route.name!r} has no examples: give it at least three utterances that "
                "should take it; without a capable language model they are all there is to go by"
            )
        if route.name in names - BUILTIN_NAMES:
            raise ValueError(f"there are two routes named {route.name!r}: rename one")
        names.add(route.name)
        for text in route.examples:
            other = texts.setdefault(text.strip().lower(), route.name)
            if other != route.name:
                raise ValueError(
                    f"{text!r} is an example of both {other!r} and {route.name!r}: remove one"
                )
