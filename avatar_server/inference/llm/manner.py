"""What is said where there is no reply, or where it is not clear what is wanted."""

from __future__ import annotations

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
