"""The router of the embedded tier: sentence embeddings and a small trained head."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from avatar_server.inference.llm.retrieval import Encoder
from avatar_server.inference.llm.router import storage
from avatar_server.inference.llm.router.examples import BUILTIN_NAMES, load_examples
from avatar_server.inference.llm.router.features import Context
from avatar_server.inference.llm.router.fitting import background_texts
from avatar_server.inference.llm.router.head import Head
from avatar_server.inference.llm.router.joint import JointReader
from avatar_server.inference.llm.router.operator import Background, OperatorRoutes
from avatar_server.inference.llm.router.quick import quick_route
from avatar_server.inference.llm.router.resolve import merge
from avatar_server.inference.llm.router.routes import UNCLEAR, Decision, Route, Turn
from avatar_server.inference.llm.router.views import Vectors, make_views
from avatar_server.paths import assets_dir, cache_dir

ASK_BACK_BELOW = 0.4
"""Confidence under which to ask back: of held-out decisions below it, 59% are wrong."""
READER_SHARE = 0.6
"""Weight of the reader beside the head, in a geometric mean of their probabilities."""
SHARPNESS = 1.3
"""Exponent of that mean, for which held-out confidence is what it says."""
CONTINUES = 1.5
"""Factor for what continues, without which it is missed more often than seen where it is not.
Chosen, as the two above, on topics held out of the training of both."""
HEAD_ALONE_FROM = 0.4
"""Confidence from which the head alone decides an earlier turn that came without its route."""
LEAST = 1e-4
"""Added to probabilities: one of the two alone cannot rule a label out."""
REMEMBERED_TEXTS = 400
"""Embeddings kept: those of a conversation's earlier turns are asked for again."""
REMEMBERED_TURNS = 6
"""Turns of the history that are looked at; training rows have no more."""


class EmbeddingRouter:
    """Decides in some two hundredths of a second on one core. One thread at a time may use it."""

    def __init__(
        self,
        encoder: Encoder,
        head: Head,
        *,
        reader: JointReader | None = None,
        operator: OperatorRoutes | None = None,
        ask_back_below: float = ASK_BACK_BELOW,
    ) -> None:
        """Without `reader` it decides on the head alone: sooner, and less often right."""
        self._encoder = encoder
        self._head = head
        self._reader = reader
        self._operator = operator
        self._ask_back_below = ask_back_below
        self._vectors = Vectors(encoder, REMEMBERED_TEXTS)
        self._routes: dict[str, str] = {}

    @classmethod
    def shipped(cls, encoder: Encoder, weights: Path | None = None) -> EmbeddingRouter:
        """The router as it is shipped; `weights` are the reader's. Raises `ValueError` for files
        that cannot be used."""
        folder = assets_dir() / "router"
        reader = None if weights is None else JointReader(weights, folder / "adapter.npz")
        return cls(encoder, storage.load(folder / "head.npz"), reader=reader)

    def with_routes(self, routes: Sequence[Route], folder: Path | None = None) -> EmbeddingRouter:
        """One that knows an operator's routes, too: some 5 ms an example, and a few seconds once.

        What is needed again is kept in `folder` (default: the cache). Raises `ValueError` for a
        route without examples that is not built in.
        """
        learnt = [r for r in routes if r.examples or r.name not in BUILTIN_NAMES]
        if not learnt:
            return self
        rows = load_examples(assets_dir() / "eval" / "routing-train.jsonl")
        kept = folder or cache_dir() / "router"
        background = Background(background_texts(rows), self._encoder, kept)
        return EmbeddingRouter(
            self._encoder,
            self._head,
            reader=self._reader,
            operator=OperatorRoutes(learnt, self._encoder, background),
            ask_back_below=self._ask_back_below,
        )

    def decide(self, text: str, history: Sequence[Turn] = ()) -> Decision:
        """What `text` asks for. User turns of the history without a route are routed too."""
        if not text.strip():
            return Decision(UNCLEAR, 1.0, False, text, True, {UNCLEAR: 1.0})
        if (quick := quick_route(text)) is not None:
            return Decision(quick, 1.0, False, text, False, {quick: 1.0})
        recent = list(history[-REMEMBERED_TURNS:])
        routed = self._routed(recent)
        context = Context.of(routed)
        told = (context.request, context.last_user, context.reply)
        self._vectors.add([text, *(turn.text for turn in told if turn is not None)])
        chances = self._chances(text, context, recent)
        own = self._operator.chances(text, self._vectors[text]) if self._operator else {}
        decision = self._decision(text, context, chances, own)
        self._keep(text, decision.route)
        return decision

    def _routed(self, history: list[Turn]) -> list[Turn]:
        """The history with routes where they were missing: as they were decided then; otherwise
        each after those before it."""
        out = list(history)
        missing = [n for n, turn in enumerate(out) if turn.role == "user" and turn.route is None]
        unknown = [n for n in missing if self._known(out, n) is None]
        if unknown:
            self._vectors.add([turn.text for turn in out])
        for place in missing:
            if (route := self._known(out, place)) is None:
                context = Context.of(out[:place])
                route = self._earlier(out[place].text, context, out[:place])
                self._keep(_said(out, place), route)
            out[place] = replace(out[place], route=route)
        return out

    def _earlier(self, text: str, context: Context, before: Sequence[Turn]) -> str:
        """An earlier turn's route: the head's where it is sure, since there may be several."""
        views = make_views([(text, context)], self._vectors)
        sure = self._head.probabilities(views)[0]
        chances: Mapping[str, float] = dict(zip(self._head.labels, map(float, sure), strict=True))
        if max(chances.values()) < HEAD_ALONE_FROM:
            chances = self._chances(text, context, before)
        possible = [
            label for label in chances if context.request is not None or not label.endswith("+")
        ]
        return max(possible, key=lambda label: chances[label]).rstrip("+")

    def _known(self, history: Sequence[Turn], place: int) -> str | None:
        text = history[place].text
        known = self._routes.get(text) or self._routes.get(_said(history, place))
        return known or quick_route(text)

    def _keep(self, said: str, route: str) -> None:
        self._routes.pop(said, None)
        while len(self._routes) >= REMEMBERED_TEXTS:
            del self._routes[next(iter(self._routes))]
        self._routes[said] = route

    def _chances(self, text: str, context: Context, history: Sequence[Turn]) -> Mapping[str, float]:
        """Probability of each built-in label, those that continue with a "+"."""
        views = make_views([(text, context)], self._vectors)
        of_head = self._head.probabilities(views)[0]
        if self._reader is None:
            return dict(zip(self._head.labels, map(float, of_head), strict=True))
        of_reader = self._reader.chances(text, history)
        raised = {
            label: (
                (float(chance) + LEAST) ** (1 - READER_SHARE)
                * (of_reader[label] + LEAST) ** READER_SHARE
            )
            ** SHARPNESS
            * (CONTINUES if label.endswith("+") else 1.0)
            for label, chance in zip(self._head.labels, of_head, strict=True)
        }
        total = sum(raised.values())
        return {label: value / total for label, value in raised.items()}

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


def _said(history: Sequence[Turn], place: int) -> str:
    """A turn and all before it: what its route, where nobody told it, depends on."""
    return "".join("\n" + turn.text for turn in history[: place + 1])
