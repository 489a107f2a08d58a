"""What is asked of the language model, and what is said without it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from avatar_server.config import LlmSettings
from avatar_server.inference.llm.engine import ChatMessage
from avatar_server.inference.llm.manner import fallback, mood
from avatar_server.inference.llm.retrieval import Fact, FactIndex
from avatar_server.inference.llm.tidy import ReplyTidier
from avatar_server.protocol.messages import HistoryItem

STYLE = (
    "Answer in one or two short spoken sentences. Use plain words, no lists, no emoji. "
    "If you do not know, say so."
)


@dataclass(frozen=True, slots=True)
class Direct:
    """Say this, word for word."""

    text: str


@dataclass(frozen=True, slots=True)
class Generate:
    """Let the model continue `messages`; the last `fresh` of them are not in its cache."""

    messages: tuple[ChatMessage, ...]


class Responder:
    """Decides how to answer one avatar's viewer."""

    stop: tuple[str, ...] = ("\nUser:", "\nQ:", "<|im_")

    def __init__(
        self, persona: str, index: FactIndex, settings: LlmSettings, language: str = "en"
    ) -> None:
        self._index = index
        self._language = language
        self._settings = settings
        self._system = ChatMessage("system", f"{persona.strip()}\n{STYLE}".strip())

    def prefix(self, history: Sequence[HistoryItem] = ()) -> list[ChatMessage]:
        """Messages that the next request will begin with."""
        return [self._system, *(ChatMessage(item.role, item.text) for item in history)]

    def plan(self, text: str, history: Sequence[HistoryItem]) -> Direct | Generate:
        """How to answer `text`."""
        found = self._index.search(text, 2)
        if found and found[0][1] >= self._settings.fact_threshold and found[0][0].questions:
            return Direct(found[0][0].answer)
        return Generate((*self.prefix(history), ChatMessage("user", self._question(text, found))))

    def tidier(self, text: str) -> ReplyTidier:
        """Makes the model's reply to `text` fit to be spoken."""
        return ReplyTidier(self._settings.max_reply_sentences, text)

    def fallback(self, turn: int) -> str:
        """What is said where the model said nothing."""
        return fallback(self._language, turn)

    def emotion(self, text: str, reply: str) -> str:
        """The mood of a reply to `text`."""
        return mood(text, reply)

    def _question(self, text: str, found: Sequence[tuple[Fact, float]]) -> str:
        if not found:
            return text
        return f"({found[0][0].answer}) {text}"
