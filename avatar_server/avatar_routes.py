"""The `routes:` of an avatar: what its viewers may ask for, and what is done about it.

They are the operator's alone. What a viewer says chooses among them and fills the arguments that a
tool allows; it never adds a route, an address or an argument.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, HttpUrl, field_validator, model_validator

BUILT_IN = ("small_talk", "question", "command", "stop", "repeat", "goodbye", "unclear")
MIN_EXAMPLES = 3
"""Fewer utterances cannot tell a route from the others."""

Action = Literal["answer", "say", "tool", "hand_over", "stop", "repeat"]
ACTIONS: tuple[Action, ...] = ("answer", "say", "tool", "hand_over", "stop", "repeat")

Words = str | dict[str, str]
"""What is said: for all viewers, or by two-letter code of the viewer's language."""
Said = Annotated[Words, Field(min_length=1)]


def in_language(words: Words, language: str) -> str:
    """`words` in `language`; where it is missing in English, else in whichever is there."""
    if isinstance(words, str):
        return words
    return words.get(language[:2].lower()) or words.get("en") or next(iter(words.values()))


class _Spec(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Answer(_Spec):
    """The language model replies."""

    prompt: str = Field(default="", max_length=1_000)
    """Told to the model beside the viewer's words, for this reply only."""
    max_sentences: int | None = Field(default=None, ge=1, le=20)
    """Instead of `llm.max_reply_sentences`."""
    max_tokens: int | None = Field(default=None, ge=8, le=2_000)
    """Instead of `llm.max_reply_tokens`."""


class Argument(_Spec):
    """One argument of a tool: a fixed value, one of some choices, or what a pattern finds.

    Nothing else of what a viewer says can reach the tool.
    """

    value: str | int | float | bool | None = None
    choices: tuple[str, ...] = ()
    """Words that count where the viewer says them."""
    pattern: str | None = None
    """A regular expression; its first group, or all of it, is the argument."""
    required: bool = True
    """Without it the tool is not called, and `ask` is said."""
    ask: Said | None = None
    """What is said where it is missing."""

    @model_validator(mode="after")
    def _one_source(self) -> Argument:
        sources = (self.value is not None) + bool(self.choices) + (self.pattern is not None)
        if sources != 1:
            raise ValueError("an argument needs exactly one of 'value', 'choices', 'pattern'")
        if self.pattern is not None:
            try:
                re.compile(self.pattern)
            except re.error as error:
                raise ValueError(f"'pattern' is no regular expression: {error}") from error
        return self

    def find(self, text: str) -> str | int | float | bool | None:
        """The argument in the viewer's words; none where it is not there."""
        if self.value is not None:
            return self.value
        if self.pattern is not None:
            match = re.search(self.pattern, text, re.IGNORECASE)
            return match[match.re.groups and 1] if match else None
        folded = text.casefold()
        found = [(folded.rfind(choice.casefold()), choice) for choice in self.choices]
        where, choice = max(found)
        return choice if where >= 0 else None


class Tool(_Spec):
    """An HTTP call whose result is spoken. The address is fixed here, and redirects are refused."""

    url: HttpUrl
    method: Literal["GET", "POST"] = "GET"
    """GET sends the arguments as a query, POST as a JSON object."""
    arguments: dict[str, Argument] = {}
    headers: dict[str, str] = {}
    """A value "env:NAME" is read from that environment variable of the server, and never logged."""
    speak: Said = "{text}"
    """What is said: {field} stands for a field of the JSON answer, {text} for a plain answer."""
    fallback: Said = {
        "en": "I'm sorry, I can't look that up right now.",
        "ja": "すみません、今は調べられません。",
    }
    """What is said where the call fails, is late, or its answer lacks a field."""
    timeout_s: float = Field(default=4.0, gt=0, le=30)
    """For the whole call: a viewer is waiting."""

    @field_validator("headers")
    @classmethod
    def _plain(cls, headers: dict[str, str]) -> dict[str, str]:
        for name, value in headers.items():
            if not (name + value).isprintable():
                raise ValueError(f"header {name!r} must be one line of text")
        return headers

    def sent_headers(self) -> dict[str, str]:
        """Headers with secrets filled in; one whose variable is not set is left out."""
        filled = {
            name: os.environ.get(value[4:], "") if value.startswith("env:") else value
            for name, value in self.headers.items()
        }
        return {name: value for name, value in filled.items() if value}


class HandOver(_Spec):
    """A person takes over: they are told, and the viewer is told so."""

    say: Said
    url: HttpUrl | None = None
    """Gets a JSON object by POST: `session`, `avatar`, `text` and `history`."""
    headers: dict[str, str] = {}
    fallback: Said = {
        "en": "I'm sorry, I can't reach anybody right now.",
        "ja": "すみません、今は担当者につながりません。",
    }
    """What is said where nobody could be told."""
    timeout_s: float = Field(default=4.0, gt=0, le=30)

    @property
    def call(self) -> Tool | None:
        """The call that tells them."""
        if self.url is None:
            return None
        return Tool(
            url=self.url,
            method="POST",
            headers=self.headers,
            speak=self.say,
            fallback=self.fallback,
            timeout_s=self.timeout_s,
        )


class RouteSpec(_Spec):
    """A route: how it is recognised, and exactly one thing that is done.

    A built-in name changes what is done about that route, and may add examples to it.
    """

    name: str = Field(pattern=r"^[a-z][a-z0-9_]{0,63}$")
    description: str = ""
    """What the viewer wants; read by language models that route."""
    examples: tuple[str, ...] = ()
    """Utterances, in any language; ten varied ones make a good route."""
    min_confidence: float = Field(default=0.5, ge=0, le=1)
    """Below it the viewer is asked back, where this route would be taken."""
    answer: Answer | None = None
    say: Said | None = None
    tool: Tool | None = None
    hand_over: HandOver | None = None
    stop: Literal[True] | None = None
    repeat: Literal[True] | None = None

    @model_validator(mode="after")
    def _one_action(self) -> RouteSpec:
        given = [name for name in ACTIONS if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(
                f"route {self.name!r} needs exactly one of {', '.join(ACTIONS)}; "
                f"it has {' and '.join(given) if given else 'none'}"
            )
        if self.name not in BUILT_IN and len({e.strip().casefold() for e in self.examples}) < (
            MIN_EXAMPLES
        ):
            raise ValueError(
                f"route {self.name!r} needs at least {MIN_EXAMPLES} different examples"
            )
        if any(not example.strip() for example in self.examples):
            raise ValueError(f"route {self.name!r} has an empty example")
        return self

    @property
    def action(self) -> Action:
        return next(name for name in ACTIONS if getattr(self, name) is not None)


DEFAULT_ROUTES: Mapping[str, RouteSpec] = {
    spec.name: spec
    for spec in (
        RouteSpec(name="small_talk", answer=Answer()),
        RouteSpec(name="question", answer=Answer()),
        RouteSpec(name="command", answer=Answer()),
        RouteSpec(name="stop", stop=True),
        RouteSpec(name="repeat", repeat=True),
        RouteSpec(
            name="goodbye",
            say={"en": "Goodbye! It was nice talking with you.", "ja": "さようなら。またどうぞ。"},
        ),
        RouteSpec(
            name="unclear",
            say={
                "en": "Sorry, I didn't quite get that. Could you say it another way?",
                "ja": "すみません、もう少し詳しく言ってもらえますか。",
            },
        ),
    )
}


def check_unique(routes: Iterable[RouteSpec]) -> None:
    """Raises `ValueError` where two routes have one name, or one example two routes."""
    names: set[str] = set()
    owners: dict[str, str] = {}
    for route in routes:
        if route.name in names:
            raise ValueError(f"there are two routes named {route.name!r}: rename one")
        names.add(route.name)
        for example in route.examples:
            owner = owners.setdefault(example.strip().casefold(), route.name)
            if owner != route.name:
                raise ValueError(
                    f"{example!r} is an example of both {owner!r} and {route.name!r}: remove one"
                )


def read_routes(values: Iterable[Mapping[str, Any]]) -> list[RouteSpec]:
    """Routes as they come in a message; checked again. Raises `ValueError`."""
    routes = [RouteSpec.model_validate(value) for value in values]
    check_unique(routes)
    return routes
