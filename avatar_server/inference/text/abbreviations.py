"""Abbreviations, acronyms and lone symbols in English text to words."""

from __future__ import annotations

import re


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_BEFORE_NAME = {
    "Dr.": "Doctor",
    "Mr.": "Mister",
    "Mrs.": "Missis",
    "Ms.": "Miz",
    "Prof.": "Professor",
    "St.": "Saint",
    "Mt.": "Mount",
    "Ft.": "Fort",
    "Gen.": "General",
    "Capt.": "Captain",
    "Col.": "Colonel",
    "Lt.": "Lieutenant",
    "Sgt.": "Sergeant",
    "Rev.": "Reverend",
    "Gov.": "Governor",
    "Sen.": "Senator",
    "Rep.": "Representative",
    "Pres.": "President",
}
_ANYWHERE = {
    "e.g.": "for example",
    "eg.": "for example",
    "i.e.": "that is",
    "ie.": "that is",
    "etc.": "et cetera",
    "et al.": "and others",
    "vs.": "versus",
    "vs": "versus",
    "approx.": "approximately",
    "a.k.a.": "also known as",
    "w/o": "without",
    "w/": "with",
    "b/c": "because",
    "and/or": "and or",
    "n/a": "not applicable",
    "N/A": "not applicable",
    "Jr.": "Junior",
    "Sr.": "Senior",
    "Inc.": "Incorporated",
    "Ltd.": "Limited",
    "Corp.": "Corporation",
    "Co.": "Company",
    "dept.": "department",
    "Dept.": "Department",
    "Ave.": "Avenue",
    "Blvd.": "Boulevard",
    "Rd.": "Road",
    "est.": "established",
    "incl.": "including",
    "C++": "C plus plus",
    "C#": "C sharp",
    "F#": "F sharp",
    ".NET": "dot net",
    "WiFi": "Wi-Fi",
    "Ph.D.": "PhD",
}
_KEEPS_STOP = frozenset({"etc.", "et al.", "Jr.", "Sr.", "Inc.", "Ltd.", "Corp.", "Co."})
"""May end a sentence, so that their stop is the sentence's where a capital or nothing follows."""

_NAME_TITLE = re.compile(
    r"\b(" + "|".join(re.escape(a[:-1]) for a in _BEFORE_NAME) + r")\.(?=\s+[A-Z])"
)
_STREET = re.compile(r"(?<=[a-z] )St\.(?=\s|,|$)")
_ABBREVIATION = re.compile(
    r"(?<![\w.])("
    + "|".join(re.escape(a) for a in sorted(_ANYWHERE, key=len, reverse=True))
    + r")(?!\w)"
)
_NUMBERED = re.compile(r"\b(No|no|Nos|nos|Fig|fig|Sec|sec|Ch|ch|Vol|vol|p|pp|Eq|eq)\.\s?(?=\d)")
_NUMBERED_WORDS = {
    "no": "number",
    "nos": "numbers",
    "fig": "figure",
    "sec": "section",
    "ch": "chapter",
    "vol": "volume",
    "p": "page",
    "pp": "pages",
    "eq": "equation",
}
_CAPITALS = re.compile(r"(?<![\w'’])([A-Z]{2,})(?:(['’]?s)(?!\w))?(?![\w'’])")
_COMMON = _set(
    "AND ARE ALL ANY BUT CAN DID FOR GET HAD HAS HER HIM HIS HOW ITS LET MAY NEW NOT NOW OFF "
    "OLD ONE OUR OUT OWN SEE SHE THE TOO TWO USE WAS WAY WHO WHY YES YET YOU RED BIG BAD STOP"
)
_SPELLED = _set("AWS EULA FAQ UEFA YMCA")
"""Taken by espeak-ng for words; it spells most others, and knows those that are not spelled."""
_VOWELS = frozenset("AEIOUY")
_SENTENCES = re.compile(r"(?<=[.?!])(?=\s)")
_Words = list[tuple[re.Pattern[str], str]]
_SIGNS: _Words = [
    (re.compile(r"(?<!\w)#\s?(?=\d)"), "number "),
    (re.compile(r"(?<!\w)#(?=[A-Za-z])"), "hashtag "),
    (re.compile(r"(?<!\w)@(?=\w)"), "at "),
    (re.compile(r"(?<=\s)@(?=\s)"), "at"),
    (re.compile(r"(?<!\w)~\s?(?=[\d$€£])"), "about "),
    (re.compile(r"(?<=[A-Za-z)])(?:\^2\b|²)"), " squared"),
    (re.compile(r"(?<=[A-Za-z)])(?:\^3\b|³)"), " cubed"),
]
_OPERATORS: _Words = [
    (re.compile(r"(?<=\w)\s?\+\s?(?=\w)"), " plus "),
    (re.compile(r"(?<=\w)\+(?!\w)"), " plus"),
    (re.compile(r"\s?=+\s?(?=\w)"), " equals "),
    (re.compile(r"(?<=[^\W\d_])/(?=[^\W\d_])"), " or "),
    (re.compile(r"\s?&\s?"), " and "),
    (re.compile(r"\s?%"), " percent"),
    (re.compile(r"°"), " degrees"),
    (re.compile(r"\$"), " dollars "),
    (re.compile(r"€"), " euros "),
    (re.compile(r"£"), " pounds "),
]


def expand_signs(text: str) -> str:
    """Signs that belong to the number or name they stand at, as words."""
    return _replaced(text, _SIGNS)


def expand_operators(text: str) -> str:
    """Signs between words, and those that no number has used up, as words."""
    return _replaced(text, _OPERATORS)


def expand_abbreviations(text: str) -> str:
    """Abbreviations with and without stops as words."""
    text = _STREET.sub("Street", text)
    text = _NAME_TITLE.sub(lambda m: _BEFORE_NAME[m.group(1) + "."], text)
    text = _NUMBERED.sub(lambda m: _NUMBERED_WORDS[m.group(1).lower()] + " ", text)
    return _ABBREVIATION.sub(_abbreviation, text)


def expand_acronyms(text: str) -> str:
    """Words in capitals: made lower case where they only shout, spelled where that is needed."""
    return "".join(_sentence_acronyms(part) for part in _SENTENCES.split(text))


def _sentence_acronyms(text: str) -> str:
    words = re.findall(r"[A-Za-z]{2,}", text)
    loud = [word for word in words if word.isupper()]
    plain = sum(word in _COMMON or (len(word) > 3 and bool(_VOWELS & set(word))) for word in loud)
    shouting = plain > 1 and len(loud) * 2 > len(words)
    return _CAPITALS.sub(lambda m: _capitals(m.group(1), m.group(2) or "", shouting), text)


def _replaced(text: str, words: _Words) -> str:
    for pattern, word in words:
        text = pattern.sub(word, text)
    return text


def _abbreviation(match: re.Match[str]) -> str:
    short = match.group(1)
    rest = match.string[match.end() :].lstrip()
    ends = short in _KEEPS_STOP and (not rest or rest[0].isupper() or rest[0] in '"”')
    return _ANYWHERE[short] + ("." if ends else "")


def _capitals(word: str, ending: str, shouting: bool) -> str:
    if word in _SPELLED:
        return "-".join(word) + ("'s" if ending else "")
    return (word.lower() if shouting else word) + ending
