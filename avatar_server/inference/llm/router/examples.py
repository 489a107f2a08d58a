"""Labelled utterances: the rows of the routing data files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from avatar_server.inference.llm.router.routes import BUILTIN_ROUTES, Turn, asks

BUILTIN_NAMES = frozenset(route.name for route in BUILTIN_ROUTES)


class DatasetError(ValueError):
    """A routing data file that cannot be used; the message names the line and what to change."""


@dataclass(frozen=True, slots=True)
class Example:
    """One labelled utterance. `resolved` is there exactly when `continuation` is true."""

    id: str
    lang: str
    history: tuple[Turn, ...]
    text: str
    route: str
    continuation: bool
    resolved: str | None = None

    @property
    def group(self) -> str:
        """What must not be parted when data is split: the topic within the language."""
        return self.id.rsplit("-", 1)[0]


def load_examples(
    path: Path, routes: Iterable[str] = BUILTIN_NAMES, *, lenient: bool = False
) -> list[Example]:
    """Every row of a JSONL file, checked. Raises `DatasetError`.

    `lenient` takes data of other people's, as long as one can tell what is right: rows without
    `resolved`, continuations of anything, ids that come twice.
    """
    names = frozenset(routes)
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DatasetError(f"cannot read {path}: {error}") from error
    examples = []
    seen: set[str] = set()
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            example = parse_example(json.loads(line), names, lenient=lenient)
            if example.id in seen and not lenient:
                raise ValueError(f"id {example.id!r} is used twice")
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
            raise DatasetError(f"{path}, line {number}: {what}") from error
        seen.add(example.id)
        examples.append(example)
    if not examples:
        raise DatasetError(f"{path} holds no rows")
    return examples


def parse_example(
    row: Any, routes: frozenset[str] = BUILTIN_NAMES, *, lenient: bool = False
) -> Example:
    """A row as JSON gives it. Raises `ValueError`, or `KeyError` for a missing key."""
    if not isinstance(row, dict):
        raise ValueError("a row must be an object")
    continuation, resolved = row["continuation"], row.get("resolved")
    for key in ("id", "lang", "text", "route"):
        if not isinstance(row[key], str) or not row[key].strip():
            raise ValueError(f"'{key}' must be text that is not empty")
    if row["route"] not in routes:
        raise ValueError(f"route {row['route']!r} is none of {sorted(routes)}")
    if not isinstance(continuation, bool):
        raise ValueError("'continuation' must be true or false")
    if not isinstance(row["history"], list):
        raise ValueError("'history' must be a list of turns, oldest first; it may be empty")
    history = tuple(_turn(item) for item in row["history"])
    if not lenient:
        _check_rules(row, history)
    elif resolved is not None and not isinstance(resolved, str):
        raise ValueError("'resolved' must be text")
    return Example(
        row["id"], row["lang"], history, row["text"], row["route"], continuation, resolved
    )


def _check_rules(row: dict[str, Any], history: tuple[Turn, ...]) -> None:
    continuation, resolved = row["continuation"], row.get("resolved")
    if continuation and not (isinstance(resolved, str) and resolved.strip()):
        raise ValueError("a continuation needs 'resolved', the whole request")
    if not continuation and resolved is not None:
        raise ValueError("'resolved' belongs to continuations only")
    if continuation and not asks(row["route"]):
        raise ValueError(f"{row['route']!r} never continues")
    if continuation and not any(turn.role == "user" for turn in history):
        raise ValueError("a continuation needs an earlier turn of the user in 'history'")


def _turn(item: Any) -> Turn:
    role, text, route = item["role"], item["text"], item.get("route")
    if role not in ("user", "assistant") or not isinstance(text, str):
        raise ValueError("a turn of 'history' needs 'role' (user or assistant) and 'text'")
    if route is not None and not isinstance(route, str):
        raise ValueError("'route' of a turn must be text")
    return Turn(role, text, route)


def alone(examples: Sequence[Example]) -> list[Example]:
    """Further training rows without history: what stands alone beside it stands alone without.

    That is each row that does not continue, and each resolved request. In cross-validation over
    topics they add half a point of accuracy; giving rows a foreign history cost as much.
    """
    out = []
    for example in examples:
        if example.continuation and example.resolved:
            out.append(
                replace(
                    example, text=example.resolved, continuation=False, resolved=None, history=()
                )
            )
        elif example.history and not example.continuation and example.route != "unclear":
            out.append(replace(example, history=()))
    return out
