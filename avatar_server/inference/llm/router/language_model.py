"""The router on a language model: one label, scored in one step.

Everything that stays the same (the routes, their examples) comes first in the prompt, so that the
engine keeps it, and reads only the history and the utterance anew.
"""

from __future__ import annotations

import math
import string
from collections.abc import Sequence

from avatar_server.inference.llm.engine import ChatMessage, LabelRequest, LlmEngine
from avatar_server.inference.llm.router.quick import quick_route
from avatar_server.inference.llm.router.resolve import merge
from avatar_server.inference.llm.router.routes import (
    BUILTIN_ROUTES,
    UNCLEAR,
    Decision,
    Route,
    Turn,
    asks,
)
from avatar_server.inference.llm.secrets import harmless

ASK_BACK_BELOW = 0.4
EXAMPLES = 4
"""Of each route, in the prompt."""
REMEMBERED_TURNS = 6
MOST_CHARACTERS = 400
"""Of a text in the prompt: what is wanted is said in fewer."""
SESSION = "router"
"""The prompt cache of all decisions: their prompts begin alike."""

_BUILTIN_EXAMPLES = {
    "small_talk": ("hello there", "ha that's funny", "今日は疲れたよ"),
    "question": ("how long do eggs take", "could you tell me when it opens", "明日の天気は"),
    "command": ("set a timer for ten minutes", "can you open the report", "電気つけて"),
    "stop": ("that's enough", "never mind", "もういいよ"),
    "repeat": ("sorry?", "once more but slower", "今なんて"),
    "goodbye": ("bye then", "i have to go", "じゃあまたね"),
    "unclear": ("so i was the um", "no mum it's in the drawer", "えっとあの"),
}
_CONTINUING = {
    "question": ("and tomorrow?", "what about the other one", "東京は？"),
    "command": ("this time with --watch", "a bit louder", "やっぱり二つにして"),
}
_HEAD = (
    "You sort what people say to a voice assistant. Each kind has a letter:\n{kinds}\n"
    "A change, an addition or a correction to what the user asked for before, which cannot be "
    "understood without it, continues it; a complete request of its own does not.\n"
    "Answer with the letter of the last thing the user says, and nothing else."
)


class LlmRouter:
    """Asks a language model. Its methods run on the engine's event loop."""

    def __init__(
        self,
        engine: LlmEngine,
        routes: Sequence[Route] = (),
        *,
        ask_back_below: float = ASK_BACK_BELOW,
    ) -> None:
        """Raises `ValueError` for more routes than there are letters."""
        own = {route.name: route for route in routes}
        known = [*(r for r in BUILTIN_ROUTES if r.name not in own), *routes]
        labels = [(route.name, False) for route in known]
        labels += [(route.name, True) for route in known if asks(route.name)]
        if len(labels) > len(string.ascii_uppercase):
            raise ValueError(
                f"{len(routes)} routes are more than a language model is asked to tell apart: "
                f"give an avatar at most {len(string.ascii_uppercase) - 9 >> 1}"
            )
        self._labels = dict(zip(string.ascii_uppercase, labels, strict=False))
        self._engine = engine
        self._own = frozenset(own)
        self._ask_back_below = ask_back_below
        by_name = {route.name: route for route in known}
        kinds = "\n".join(
            _kind(letter, by_name[name], continues)
            for letter, (name, continues) in self._labels.items()
        )
        self._system = ChatMessage("system", _HEAD.format(kinds=kinds))

    def with_routes(self, routes: Sequence[Route]) -> LlmRouter:
        """One that knows an operator's routes, too."""
        return LlmRouter(self._engine, routes, ask_back_below=self._ask_back_below)

    def prompt(self, text: str, history: Sequence[Turn]) -> list[ChatMessage]:
        """What the model is asked."""
        said = [
            f"{'User' if turn.role == 'user' else 'Assistant'}: {_short(turn.text)}"
            for turn in history[-REMEMBERED_TURNS:]
        ]
        return [self._system, ChatMessage("user", "\n".join([*said, f"User: {_short(text)}"]))]

    async def decide(self, text: str, history: Sequence[Turn] = ()) -> Decision:
        """What `text` asks for. Raises `EngineError`."""
        if not text.strip():
            return Decision(UNCLEAR, 1.0, False, text, True, {UNCLEAR: 1.0})
        if (quick := quick_route(text)) is not None:
            return Decision(quick, 1.0, False, text, False, {quick: 1.0})
        request = LabelRequest(SESSION, self.prompt(text, history), list(self._labels))
        scores = await self._engine.score_labels(request)
        before = _last_request(history)
        chances = {
            label: chance
            for letter, chance in scores.probabilities().items()
            if (label := self._labels[letter]) and (before is not None or not label[1])
        }
        total = math.fsum(chances.values())
        if not total:
            # The model chose a continuation of nothing.
            return Decision(UNCLEAR, 0.5, False, text, True, {UNCLEAR: 1.0})
        (route, continues), chance = max(chances.items(), key=lambda item: item[1])
        by_route: dict[str, float] = {}
        for (name, _), value in chances.items():
            by_route[name] = by_route.get(name, 0.0) + value / total
        resolved = text
        if continues and before is not None:
            resolved = merge(before.resolved or before.text, text)
        confidence = chance / total
        return Decision(
            route, confidence, continues, resolved, confidence < self._ask_back_below, by_route
        )


def _last_request(history: Sequence[Turn]) -> Turn | None:
    """The user's latest turn that may have asked for something."""
    users = [turn for turn in history if turn.role == "user"]
    return next((t for t in reversed(users) if t.route is None or asks(t.route)), None)


def _kind(letter: str, route: Route, continues: bool) -> str:
    examples = route.examples or _BUILTIN_EXAMPLES.get(route.name, ())
    if continues:
        examples = _CONTINUING.get(route.name, ())
    name = route.name.replace("_", " ") + (", continuing the request before" if continues else "")
    shown = " / ".join(examples[:EXAMPLES])
    what = f": {route.description}" if route.description and not continues else ""
    return f"{letter} = {name}{what}" + (f" (such as: {shown})" if shown else "")


def _short(text: str) -> str:
    return harmless(text)[:MOST_CHARACTERS]
