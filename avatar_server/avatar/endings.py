"""What an avatar says before a conversation ends because its time is over."""

from __future__ import annotations

from collections.abc import Callable

MINUTE_S = 60.0


def ending_words(language: str) -> Callable[[float], str]:
    """The words for so many seconds left, in the avatar's language; English where it is unknown."""
    return _japanese if language.lower().startswith("ja") else _english


def _english(seconds_left: float) -> str:
    minutes = round(seconds_left / MINUTE_S)
    if minutes >= 2:
        return f"We have about {minutes} minutes left."
    if minutes == 1:
        return "We have about a minute left."
    return "We have to end in a moment. It was good to talk to you."


def _japanese(seconds_left: float) -> str:
    minutes = round(seconds_left / MINUTE_S)
    if minutes >= 1:
        return f"あと{minutes}分ほどで終了します。"
    return "まもなく終了します。お話しできてよかったです。"
