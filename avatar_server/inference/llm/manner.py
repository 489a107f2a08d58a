"""Small certainties about a reply: its mood, and what is said when there is none."""

from __future__ import annotations

import re

_SORRY = re.compile(r"\b(sorry|apologi[sz]e|apologies|afraid|unfortunately|my mistake)\b", re.I)
_SORRY_JA = re.compile(r"すみません|申し訳|ごめん")
_HAPPY = re.compile(
    r"\b(hi|hello|hey|welcome|glad|happy|delighted|pleasure|nice to meet|thank(s| you)|haha"
    r"|joke|funny|wonderful|congratulations)\b",
    re.I,
)
_HAPPY_JA = re.compile(r"こんにちは|はじめまして|ありがとう|うれしい|嬉しい|楽しい")

_NOTHING_TO_SAY = {
    "en": (
        "I'm sorry, I don't have a good answer to that. Could you ask me in another way?",
        "I'm afraid I don't know about that. What else would you like to talk about?",
        "Sorry, I lost my thread there. Could you say that again?",
    ),
    "ja": (
        "すみません、うまく答えられません。別の言い方で聞いてもらえますか。",
        "申し訳ありません、それについてはわかりません。",
    ),
}

_ASK_BACK = {
    "en": (
        "Sorry, I didn't quite get that. Could you say it another way?",
        "I'm not sure what you'd like. Could you put it differently?",
    ),
    "ja": (
        "すみません、もう少し詳しく言ってもらえますか。",
        "すみません、もう一度別の言い方でお願いします。",
    ),
}


def mood(question: str, reply: str) -> str:
    """`apologetic`, `happy` or `neutral`, from the words alone."""
    if _SORRY.search(reply) or _SORRY_JA.search(reply):
        return "apologetic"
    for text in (reply, question):
        if _HAPPY.search(text) or _HAPPY_JA.search(text):
            return "happy"
    return "neutral"


def fallback(language: str, turn: int) -> str:
    """What to say where the model came up with nothing; `turn` varies it."""
    phrases = _NOTHING_TO_SAY.get(language[:2].lower(), _NOTHING_TO_SAY["en"])
    return phrases[turn % len(phrases)]


def ask_back(language: str, turn: int) -> str:
    """What to say where it is not clear what is wanted; `turn` varies it."""
    phrases = _ASK_BACK.get(language[:2].lower(), _ASK_BACK["en"])
    return phrases[turn % len(phrases)]


def was_asked_back(text: str) -> bool:
    """Whether `text` is such a question."""
    return any(text in phrases for phrases in _ASK_BACK.values())
