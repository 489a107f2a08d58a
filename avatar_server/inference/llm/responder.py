"""What is asked of the language model, and what is said without it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from avatar_server.avatar_routes import Answer
from avatar_server.config import LlmSettings
from avatar_server.inference.llm.emotion import TAGS_IN_PROMPT
from avatar_server.inference.llm.engine import ChatMessage
from avatar_server.inference.llm.manner import fallback
from avatar_server.inference.llm.retrieval import Encoder, FactIndex, Found
from avatar_server.inference.llm.secrets import Secret, harmless
from avatar_server.inference.llm.small_talk import AGAIN, REPEAT, next_answer
from avatar_server.inference.llm.tidy import ReplyTidier
from avatar_server.protocol.messages import HistoryItem

FACTS_IN_PROMPT = 4
FACTS_IN_SMALL_PROMPT = 1
"""For a model on the CPU, which reads some 100-200 tokens a second."""
SMALL_PERSONA_CHARS = 300
FACT_IN_PROMPT_SCORE = 0.45
"""Below it a fact has nothing to do with the question, and would only lead a small model astray."""
SMALL_TALK_THRESHOLD = 0.75
CHARS_PER_TOKEN = 3.0
"""Of English text there are about four; a prompt that is estimated too long is no harm."""
MAX_VIEWER_CHARS = 600
ITEMS_DROPPED = 8
"""Of a history too long, at once: dropping some each turn would have all read anew each turn."""

AS_USUAL = Answer()
STYLE = "Answer in one or two short sentences of plain spoken language."
# Shows a small model the length and tone wanted. General on purpose: it repeats what it reads.
EXAMPLES = (
    ChatMessage("user", "Where do fish sleep?"),
    ChatMessage(
        "assistant",
        "Many fish rest near the bottom of the water. They slow down, but their eyes stay open.",
    ),
    ChatMessage("user", "I planted a tree today."),
    ChatMessage("assistant", "How lovely! What kind of tree is it?"),
    ChatMessage("user", "Who painted the Mona Lisa?"),
    ChatMessage("assistant", "Leonardo da Vinci painted it, about five hundred years ago."),
)
LANGUAGES = {"en": "English", "ja": "Japanese"}
_NONSENSE = re.compile(r"[bcdfghjklmnpqrstvwxz]{6,}", re.IGNORECASE)
_HAS_WORD = re.compile(r"\w")


@dataclass(frozen=True, slots=True)
class Direct:
    """Say this, word for word.

    `own`: the words are the avatar's, and not a model's or a viewer's that are said again.
    """

    text: str
    own: bool = True


@dataclass(frozen=True, slots=True)
class Generate:
    """Let the model continue `messages`, within the limits."""

    messages: tuple[ChatMessage, ...]
    max_tokens: int
    max_sentences: int


class Responder:
    """Decides how to answer one avatar's viewer.

    The prompt is persona, style and examples, then the history, then facts with the viewer's
    words. Only the last message is new to the engine's cache from turn to turn, so the facts stand
    there and are left out of the history. The embedded model gets the persona's first paragraph
    only, since more of it comes back as chatter, and examples, which it follows better.
    """

    stop: tuple[str, ...] = ("\n\n", "<|im_")

    def __init__(
        self,
        persona: str,
        facts: FactIndex,
        encoder: Encoder,
        settings: LlmSettings,
        *,
        name: str = "",
        language: str = "en",
        small_talk: FactIndex | None = None,
    ) -> None:
        self._facts = facts
        self._encoder = encoder
        self._settings = settings
        self._name = name
        self._language = language
        self._small_talk = small_talk
        small = settings.engine == "llamacpp"
        self._facts_in_prompt = FACTS_IN_SMALL_PROMPT if small else FACTS_IN_PROMPT
        if small:
            persona = persona.strip().split("\n\n")[0][:SMALL_PERSONA_CHARS]
        # The embedded model would say the tags, or nothing else.
        style = STYLE if small else f"{STYLE} {TAGS_IN_PROMPT}"
        self._fixed = [ChatMessage("system", f"{persona.strip()} {style}".strip())]
        self._small = small
        self._secret = Secret(self._fixed[0].content, facts.answers())
        if small and language.startswith("en"):
            self._fixed += EXAMPLES

    def prefix(self, history: Sequence[HistoryItem] = ()) -> list[ChatMessage]:
        """Messages that the next request will begin with: never without the persona, and with as
        much of the history as the context has room for."""
        room = self._settings.context_tokens - self._settings.max_reply_tokens
        room -= sum(_tokens(message.content) for message in self._fixed)
        room -= _tokens("x" * MAX_VIEWER_CHARS) * 2
        turns = [ChatMessage(i.role, text) for i in history if (text := harmless(i.text))]
        first = 0
        while sum(_tokens(turn.content) for turn in turns[first:]) > room and first < len(turns):
            first += ITEMS_DROPPED
        kept = turns[first:]
        if kept and kept[0].role == "assistant":
            # Chat templates expect the viewer to speak first.
            kept.pop(0)
        return [*self._fixed, *kept]

    def plan(
        self,
        text: str,
        history: Sequence[HistoryItem],
        answer: Answer = AS_USUAL,
        language: str | None = None,
    ) -> Direct | Generate:
        """How to answer `text`, by the policy `answer` of its route. Encodes it: some 5 ms.

        `language` is the viewer's; a capable model replies in it.
        """
        text = harmless(text)[:MAX_VIEWER_CHARS]
        if not _HAS_WORD.search(text) or _NONSENSE.search(text):
            return Direct(self.fallback(2, language))
        vector = self._encoder.encode([text])[0]
        found = self._facts.search(text, vector, self._facts_in_prompt)
        if found and found[0].direct and found[0].score >= self._settings.fact_threshold:
            return Direct(next_answer(found[0].fact, (), self._name))
        if self._small_talk is not None:
            remarks = self._small_talk.search(text, vector, 1)
            if remarks and remarks[0].score >= SMALL_TALK_THRESHOLD:
                return self._remark(next_answer(remarks[0].fact, history, self._name), history)
        asked = "\n".join(
            part
            for part in (answer.prompt, self._in_language(language), _with_facts(text, found))
            if part
        )
        return Generate(
            (*self.prefix(history), ChatMessage("user", asked)),
            answer.max_tokens or self._settings.max_reply_tokens,
            answer.max_sentences or self._settings.max_reply_sentences,
        )

    def tidier(
        self, text: str, max_sentences: int | None = None, *, brief: bool = False
    ) -> ReplyTidier:
        """Makes the model's reply to `text` fit to be spoken, and keeps the prompt out of it;
        `brief`: one sentence of it."""
        most = 1 if brief else max_sentences or self._settings.max_reply_sentences
        return ReplyTidier(most, text, (self._name,), self._secret)

    def fallback(self, turn: int, language: str | None = None) -> str:
        """What is said where the model said nothing."""
        return fallback(language or self._language, turn)

    def _in_language(self, language: str | None) -> str:
        """What tells the model to answer in the viewer's language. The embedded one has English
        only, and would begin to talk about the sentence."""
        if self._small or language is None or language[:2] == self._language[:2]:
            return ""
        return f"Answer in {LANGUAGES.get(language[:2], 'the language of the words below')}."

    def _remark(self, answer: str, history: Sequence[HistoryItem]) -> Direct | Generate:
        if answer == REPEAT:
            said = [i.text for i in history if i.role == "assistant" and i.text.strip()]
            again = f"I said: {said[-1]}" if said else "I haven't said anything yet."
            return Direct(again, own=False)
        if answer == AGAIN:
            asked = [i.text for i in history if i.role == "user" and i.text.strip()]
            if not asked:
                return Direct(self.fallback(1))
            before = [i for i in history if i.text != asked[-1] or i.role != "user"]
            return self.plan(asked[-1], before)
        return Direct(answer)


def _with_facts(text: str, found: Sequence[Found]) -> str:
    facts = [f.fact.answer for f in found if f.score >= FACT_IN_PROMPT_SCORE]
    return f"{' '.join(facts)}\n{text}" if facts else text


def _tokens(text: str) -> int:
    """Estimated tokens of a message, with what the chat template adds."""
    return int(len(text) / CHARS_PER_TOKEN) + 6
