"""From a decision to what is done: which route's action, or a question back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from avatar_server.avatar_routes import DEFAULT_ROUTES, Answer, RouteSpec
from avatar_server.inference.llm.router.routes import Decision

ANSWERED = "answer"
"""Stands for all routes that the language model answers in its usual way."""
UNCLEAR_FROM = 0.6
"""Less sure than this that an utterance is unclear, it is answered: being asked back for nothing is
worse than an answer beside the point."""


class RouteTable:
    """The built-in routes and an avatar's own, by name."""

    def __init__(self, routes: Sequence[RouteSpec] = ()) -> None:
        self._specs: Mapping[str, RouteSpec] = {
            **DEFAULT_ROUTES,
            **{route.name: route for route in routes},
        }

    def __getitem__(self, name: str) -> RouteSpec:
        return self._specs[name]

    def choose(self, decision: Decision, may_ask: bool) -> RouteSpec | None:
        """The route to take; none to ask back.

        What counts is how sure the *action* is: between two routes that are both answered by the
        model there is nothing to ask. `may_ask` is false where the viewer was asked just before;
        then, and where only an answer would be at stake, the likeliest answered route is taken.
        """
        chances: dict[str, float] = {}
        for name, chance in decision.probabilities.items():
            key = self._key(name)
            chances[key] = chances.get(key, 0.0) + chance
        best = max(chances, key=lambda key: chances[key])
        if best == ANSWERED:
            return self._answered(decision)
        spec = self._specs[best]
        if chances[best] >= max(spec.min_confidence, UNCLEAR_FROM if best == "unclear" else 0.0):
            if spec is not DEFAULT_ROUTES["unclear"]:
                return spec
            return None if may_ask else self._answered(decision)
        if spec.tool is None and spec.hand_over is None:
            return self._answered(decision)
        return None if may_ask else self._answered(decision)

    def _key(self, name: str) -> str:
        answer = self._specs[name].answer
        return ANSWERED if answer == Answer() else name

    def _answered(self, decision: Decision) -> RouteSpec:
        """The likeliest of the routes that the model answers."""
        chances = {
            name: chance
            for name, chance in decision.probabilities.items()
            if self._specs[name].answer is not None
        }
        if not chances:
            return DEFAULT_ROUTES["question"]
        return self._specs[max(chances, key=lambda name: chances[name])]
