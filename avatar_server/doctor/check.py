"""One thing looked at: what was found, whether it will do, and what to do if not."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Check:
    """`fix` is a sentence that says what to do, and is empty exactly where `ok` is true."""

    name: str
    ok: bool
    found: str
    fix: str = ""

    def __post_init__(self) -> None:
        if self.ok == bool(self.fix):
            raise ValueError(f"{self.name}: a fix belongs to what failed, and to nothing else")


def passed(name: str, found: str) -> Check:
    """A check that holds."""
    return Check(name, True, found)


def failed(name: str, found: str, fix: str) -> Check:
    """A check that does not hold."""
    return Check(name, False, found, fix)


def guarded(name: str, look: Callable[[], Iterable[Check]]) -> list[Check]:
    """What `look` finds; an error while looking is itself a failed check."""
    try:
        return list(look())
    except Exception as error:
        return [
            failed(
                name,
                f"could not be looked at: {type(error).__name__}: {error}",
                "Run the server with --set observe.log_level=debug and report what it prints.",
            )
        ]
