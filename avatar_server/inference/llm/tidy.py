"""Making a small model's words fit to be spoken: bounded, plain, without labels and loops."""

from __future__ import annotations

import re

from avatar_server.inference.llm.emotion import leading_tag
from avatar_server.inference.llm.lexical import overlap, words
from avatar_server.inference.llm.secrets import Secret

LABELS = frozenset(
    {
        *("user", "assistant", "system", "human", "viewer", "ai", "bot", "me", "you"),
        *("question", "answer", "q", "a", "response", "reply", "note", "example"),
        *("context", "fact", "facts"),
    }
)
ABBREVIATIONS = frozenset(
    {
        *("mr.", "mrs.", "ms.", "dr.", "st.", "prof.", "jr.", "sr.", "no.", "vs.", "etc."),
        *("e.g.", "i.e.", "a.m.", "p.m.", "u.s.", "u.k."),
    }
)
HELD_WORDS = 3
"""Words of a sentence seen before the first is spoken: enough to tell a label from speech."""
MAX_SENTENCE_WORDS = 45
"""A sentence that has not ended by then never will."""
MAX_DIRECTION_WORDS = 6
ECHO_OVERLAP = 0.8

_UNIT = re.compile(r"\S*?[。！？、]|\S+(?=\s)|\n+|[^\S\n]+")
_NEVER_SPOKEN = re.compile(r"[*_`#~<>|\[\]{}\U0001F000-\U0001FAFF☀-➿️‍\"“”]")
_MARKER = re.compile(r"(?:[-*•–]|\d{1,2}[.)]|#+)")
_END = re.compile(r"[.!?…。！？]+[)'’”\"]*$")
_STAGE = re.compile(r"\[[^\W\d_]+\]")
"""A word in brackets before a sentence ("[laughs]") is no part of it."""
_LEAKS = re.compile(
    r"\b(as an? (ai|artificial)|language model|my (instructions|persona|prompt)|system prompt"
    r"|the (user|viewer|assistant)'?s?)\b",
    re.IGNORECASE,
)


class ReplyTidier:
    """Takes a reply as it is generated and gives back what should be said of it.

    The first sentence is passed on word by word, since the viewer waits for it; later ones only
    when they are whole, so that a reply never breaks off in mid-sentence or begins to loop.
    """

    def __init__(
        self,
        max_sentences: int,
        question: str,
        names: tuple[str, ...] = (),
        secret: Secret | None = None,
    ) -> None:
        """`secret`: what is never read out; a reply that begins to ends there."""
        self._max_sentences = max_sentences
        self._secret = secret
        self._question = words(question)
        self._labels = LABELS | {name.lower() for name in names}
        self._raw = ""
        self._sentence: list[str] = []
        self._released = 0
        self._sentences: list[str] = []
        self._direction = 0
        self._mark = ""
        self._line_start = True
        self._ending = False
        self.done = False

    @property
    def said_anything(self) -> bool:
        return bool(self._sentences) or self._released > 0

    def feed(self, text: str) -> str:
        """The words to say next, with a blank after each; empty where there are none yet."""
        self._raw += text
        out: list[str] = []
        end = 0
        for match in _UNIT.finditer(self._raw):
            if self.done:
                break
            end = match.end()
            self._unit(match[0], out)
        self._raw = self._raw[end:]
        return "".join(out)

    def flush(self) -> str:
        """What is left at the end of the generated text."""
        out: list[str] = []
        self._ending = True
        if not self.done and self._raw.strip():
            self._unit(self._raw.strip(), out)
        self._raw = ""
        if not self.done and not self._sentences and self._sentence:
            # A lone sentence without an end is said to where it got.
            self._sentence[-1] = self._sentence[-1].rstrip(",;:-") + "."
            self._finish_sentence(out)
        self.done = True
        return "".join(out)

    def _unit(self, unit: str, out: list[str]) -> None:
        if not unit.strip():
            if "\n" in unit:
                if self._sentences:
                    self.done = True
                self._line_start = True
            return
        mark, unit = leading_tag(unit)
        if mark:
            # An emotion for the face: it goes with the next word, and is taken off before speech.
            self._mark = mark
            if not unit:
                return
        if not self._sentence and _STAGE.fullmatch(unit):
            return
        at_line_start, self._line_start = self._line_start, False
        if at_line_start and _MARKER.fullmatch(unit):
            return
        if self._is_direction(unit):
            return
        if not self._sentence and self._is_label(unit):
            self.done = self.said_anything
            return
        word = _NEVER_SPOKEN.sub("", unit)
        if not word:
            return
        self._sentence.append(self._mark + word)
        self._mark = ""
        if self._tells_secret():
            # Also what of this sentence was held back; of what was said no run is long.
            self._sentence.clear()
            self._released = 0
            self.done = True
            return
        if is_end(word) or len(self._sentence) >= MAX_SENTENCE_WORDS:
            self._finish_sentence(out)
        elif not (self._sentences or self._ending) and len(self._sentence) >= HELD_WORDS:
            if _LEAKS.search(" ".join(self._sentence)):
                self._sentence.clear()
                self.done = True
                return
            self._release(out)

    def _tells_secret(self) -> bool:
        if self._secret is None:
            return False
        return self._secret.in_text(" ".join((*self._sentences[-2:], *self._sentence)))

    def _is_direction(self, unit: str) -> bool:
        """Inside "*smiles and waves*", which is for nobody's ears."""
        opens = unit.startswith("*") and not unit.startswith("**") and len(unit) > 1
        if not self._direction and not opens:
            return False
        self._direction += 1
        if unit.rstrip(".,!?").endswith("*") or self._direction >= MAX_DIRECTION_WORDS:
            self._direction = 0
        return True

    def _is_label(self, unit: str) -> bool:
        bare = unit.strip("*_")
        return bare.endswith(":") and bare[:-1].strip("*_").lower() in self._labels

    def _release(self, out: list[str]) -> None:
        words = self._sentence[self._released :]
        # CJK words carry no blanks between them.
        out += [word if word[-1] in "。！？、" else word + " " for word in words]
        self._released = len(self._sentence)

    def _finish_sentence(self, out: list[str]) -> None:
        sentence = " ".join(self._sentence)
        if self._released:
            self._release(out)
        elif self._unfit(sentence):
            self._sentence.clear()
            return
        else:
            self._release(out)
        self._sentences.append(sentence)
        self._sentence.clear()
        self._released = 0
        if len(self._sentences) >= self._max_sentences:
            self.done = True

    def _unfit(self, sentence: str) -> bool:
        """Echoes, loops and leaks are left out; a loop ends the reply."""
        said = words(sentence)
        if not said:
            return True
        if _LEAKS.search(sentence):
            return True
        for earlier in self._sentences:
            if overlap(said, words(earlier)) >= ECHO_OVERLAP:
                self.done = True
                return True
        return sentence.endswith("?") and overlap(said, self._question) >= ECHO_OVERLAP


def is_end(word: str) -> bool:
    """Does a sentence end with this word?"""
    if not _END.search(word):
        return False
    lower = word.lower()
    return lower not in ABBREVIATIONS and not re.fullmatch(r"[a-z]\.", lower)
