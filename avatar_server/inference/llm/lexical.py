"""Words that two questions share or not: the second signal beside their similarity."""

from __future__ import annotations

import re

FUNCTION_WORDS = frozenset(
    """a an the is are was were be been am do does did have has had can could may might will would
    shall should must i me my mine you your yours he she it its we us our they them their this that
    these those what which who whom whose when where why how and or but if of to in on at for with
    from by about as not no yes so now then there here please tell say let any some much many more
    most exactly just really very too also own new get got like one know think""".split()  # noqa: SIM905
)
_WORD = re.compile(r"\w+(?:['’]\w+)?")
_ENDINGS = ("ings", "ing", "ies", "ers", "er", "ed", "es", "s")
_FIRST_PERSON = re.compile(r"\b(i|me|my|mine|i['’]m|i['’]ve)\b", re.IGNORECASE)
_SECOND_PERSON = re.compile(r"\b(you|your|yours|yourself|you['’]re|you['’]ve)\b", re.IGNORECASE)
_BRITISH = (("favorite", "favourite"), ("color", "colour"), ("center", "centre"))


def words(text: str) -> list[str]:
    """The words of a text in lower case, without punctuation."""
    return _WORD.findall(text.lower())


def content_words(text: str) -> frozenset[str]:
    """Stems of the words that carry meaning."""
    text = text.lower()
    for american, british in _BRITISH:
        text = text.replace(american, british)
    return frozenset(
        stem(word)
        for word in (re.sub(r"['’](s|re|m|ve|ll|d)$", "", w) for w in words(text))
        if word not in FUNCTION_WORDS
    )


def stem(word: str) -> str:
    """The word without its usual English endings."""
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)]
    return word


def speaks_of_self(text: str) -> bool:
    """Says "I" or "my", and not "you"."""
    return bool(_FIRST_PERSON.search(text)) and not speaks_of_you(text)


def speaks_of_you(text: str) -> bool:
    return bool(_SECOND_PERSON.search(text))


def overlap(a: list[str], b: list[str]) -> float:
    """Distinct words that both have, as a share of the longer text's (0..1)."""
    first, second = set(a), set(b)
    if not first or not second:
        return 0.0
    return len(first & second) / max(len(first), len(second))
