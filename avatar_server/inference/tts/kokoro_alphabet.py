"""Kokoro-82M's alphabet: its token ids, and espeak-ng's IPA rewritten to the way it was trained.

The ids are those of the model's published `config.json` (Apache-2.0). Kokoro was trained on a
narrower alphabet than espeak-ng's: one letter for each diphthong and affricate, no length marks
in American English, a letter of its own for the flapped t (as described with the model).
"""

from __future__ import annotations

from avatar_server.inference.tts.phonemes import Phone

MAX_TOKENS = 510
"""Rows of a voice's style table, and phonemes that the model takes at once."""

TOKEN_IDS: dict[str, int] = {
    symbol: number
    for symbols, first in (
        (";:,.!?", 1),
        ('—…"()“”', 9),
        (" ̃ʣʥʦʨᵝꭧAI", 16),
        ("O", 31),
        ("Q", 33),
        ("ST", 35),
        ("W", 39),
        ("Yᵊabcdef", 41),
        ("hijklmnopqrstuvwxyzɑɐɒæ", 50),
        ("βɔɕç", 75),
        ("ɖðʤə", 80),
        ("ɚɛɜ", 85),
        ("ɟ", 90),
        ("ɡ", 92),
        ("ɥ", 99),
        ("ɨɪʝ", 101),
        ("ɯɰŋ", 110),
        ("ɳɲɴø", 113),
        ("ɸθœ", 118),
        ("ɹ", 123),
        ("ɾɻ", 125),
        ("ʁɽʂʃʈʧ", 128),
        ("ʊʋ", 135),
        ("ʌɣɤ", 138),
        ("χʎ", 142),
        ("ʒʔ", 147),
        ("ˈˌː", 156),
        ("ʰ", 162),
        ("ʲ", 164),
        ("↓", 169),
        ("→↗↘", 171),
        ("ᵻ", 177),
    )
    for number, symbol in enumerate(symbols, first)
}

_SHARED: dict[str, str] = {
    "aɪ": "I",
    "aʊ": "W",
    "dʒ": "ʤ",
    "eɪ": "A",
    "tʃ": "ʧ",
    "ɔɪ": "Y",
    "ʲ": "",
    "ɚ": "əɹ",
    "r": "ɹ",
    "x": "k",
    "ç": "k",
    "ɐ": "ə",
    "ɬ": "l",
    "̃": "",
    "̩": "",
}
_AMERICAN: dict[str, str] = {
    **_SHARED,
    "oʊ": "O",
    "ɜːɹ": "ɜɹ",
    "ɜː": "ɜɹ",
    "ɪə": "iə",
    "ː": "",
    "o": "ɔ",
    "ɾ": "T",
    "ʔ": "t",
}
_BRITISH: dict[str, str] = {**_SHARED, "eə": "ɛː", "iə": "ɪə", "əʊ": "Q", "o": "ɔ"}
_LONGEST = 3


def rewrite(phones: list[Phone], british: bool) -> list[Phone]:
    """`phones` of espeak-ng's IPA in Kokoro's alphabet; symbols it has no token for are left out.

    Each new symbol keeps the word of the first symbol it came from.
    """
    table = _BRITISH if british else _AMERICAN
    result: list[Phone] = []
    at = 0
    while at < len(phones):
        for length in range(min(_LONGEST, len(phones) - at), 0, -1):
            written = "".join(p.symbol for p in phones[at : at + length])
            if written in table:
                result.extend(Phone(symbol, phones[at].word) for symbol in table[written])
                at += length
                break
        else:
            result.append(phones[at])
            at += 1
    return [phone for phone in result if phone.symbol in TOKEN_IDS]


def split(phones: list[Phone], limit: int = MAX_TOKENS) -> list[list[Phone]]:
    """`phones` in parts of at most `limit`, cut after punctuation, else between words."""
    parts: list[list[Phone]] = []
    rest = phones
    while len(rest) > limit:
        window = rest[:limit]
        cut = _last(window, ".!?…") or _last(window, ",;:—") or _last(window, " ") or limit
        parts.append(rest[:cut])
        rest = rest[cut:]
    if rest:
        parts.append(rest)
    return parts


def _last(phones: list[Phone], symbols: str) -> int:
    for at in range(len(phones), 0, -1):
        if phones[at - 1].symbol in symbols:
            return at
    return 0
