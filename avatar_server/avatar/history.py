"""What was said so far, as the language model is told: of the avatar's words only those heard."""

from __future__ import annotations

from collections.abc import Sequence

from avatar_server.protocol.messages import HistoryItem

History = tuple[HistoryItem, ...]

INTERRUPTED_MARK = " —"
MAX_ITEMS = 240
MAX_CHARS = 24_000
"""Bounds of what is kept and sent; inference takes of it what its context has room for."""
BLOCK_ITEMS = 40
"""A multiple of what inference drops at once, so that both begin at the same items."""


def with_user(history: History, text: str) -> History:
    """`history` and the viewer's `text`; what they said without being answered is joined."""
    text = text.strip()
    if not text:
        return history
    if history and history[-1].role == "user":
        text = f"{history[-1].text} {text}"
        history = history[:-1]
    return bounded((*history, HistoryItem(role="user", text=text)))


def with_reply(history: History, heard: str, interrupted: bool = False) -> History:
    """`history` and the words of a reply that were heard; none heard adds nothing."""
    heard = heard.strip()
    if not heard:
        return history
    if interrupted:
        heard = heard.rstrip(" ,;:-–—") + INTERRUPTED_MARK
    if history and history[-1].role == "assistant":
        heard = f"{history[-1].text} {heard}"
        history = history[:-1]
    return bounded((*history, HistoryItem(role="assistant", text=heard)))


def unanswered(history: History) -> str:
    """What the viewer said last, where no word of an answer was heard; else empty."""
    return history[-1].text if history and history[-1].role == "user" else ""


def without_unanswered(history: History) -> History:
    """`history` up to the last answer that was heard."""
    return history[:-1] if history and history[-1].role == "user" else history


def bounded(
    history: Sequence[HistoryItem],
    max_items: int = MAX_ITEMS,
    max_chars: int = MAX_CHARS,
    block: int = BLOCK_ITEMS,
) -> History:
    """The newest items within both bounds. A single item that is too long keeps its end.

    The oldest go `block` items at a time: a language model that has read the beginning before
    would have to read everything anew if one were dropped each turn.
    """
    kept = list(history)
    while len(kept) > max_items or (
        len(kept) > 1 and sum(len(item.text) for item in kept) > max_chars
    ):
        del kept[: min(block, len(kept) - 1)]
    if kept and len(kept[0].text) > max_chars:
        kept[0] = HistoryItem(role=kept[0].role, text=kept[0].text[-max_chars:])
    return tuple(kept)
