"""Utterances that need no deciding: said like this they always mean the same."""

from __future__ import annotations

from avatar_server.inference.llm.router.features import normal

_STOP = (
    "stop",
    "stop stop",
    "stop it",
    "stop talking",
    "please stop",
    "stop please",
    "shut up",
    "be quiet",
    "quiet",
    "silence",
    "never mind",
    "nevermind",
    "ストップ",
    "やめて",
    "黙って",
    "静かにして",
    "もういいです",
)
_REPEAT = (
    "pardon",
    "pardon me",
    "come again",
    "say that again",
    "say it again",
    "repeat that",
    "please repeat",
    "repeat please",
    "can you repeat that",
    "could you repeat that",
    "what did you say",
    "もう一回言って",
    "もう一度言って",
    "もう一度言ってください",
    "今なんて言った",
    "なんて言った",
)
_QUICK = dict.fromkeys(_STOP, "stop") | dict.fromkeys(_REPEAT, "repeat")


def quick_route(text: str) -> str | None:
    """`stop` or `repeat` where the whole utterance is a set phrase, else none."""
    return _QUICK.get(normal(text))
