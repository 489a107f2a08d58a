"""Japanese kana to the symbols of Kokoro's alphabet.

Kana say how a word sounds, so a table is enough, after the phonetics of standard Japanese
(Vance, The Sounds of Japanese, 2008): し is ɕi, ち ʨi, つ ʦɨ, ふ ɸɯ, ん ɴ (m before p, b, m); a
small っ holds the consonant after it. The particle は is to be written わ. Kanji are not read.
"""

from __future__ import annotations

_VOWELS = dict(zip("aiueo", ("a", "i", "ɯ", "e", "o"), strict=True))

_CONSONANTS: dict[str, tuple[str, str, str, str, str]] = {
    "かきくけこ": ("k", "kʲ", "k", "k", "k"),
    "がぎぐげご": ("ɡ", "ɡʲ", "ɡ", "ɡ", "ɡ"),
    "さしすせそ": ("s", "ɕ", "s", "s", "s"),
    "ざじずぜぞ": ("z", "ʥ", "z", "z", "z"),
    "たちつてと": ("t", "ʨ", "ʦ", "t", "t"),
    "だぢづでど": ("d", "ʥ", "z", "d", "d"),
    "なにぬねの": ("n", "ɲ", "n", "n", "n"),
    "はひふへほ": ("h", "ç", "ɸ", "h", "h"),
    "ばびぶべぼ": ("b", "bʲ", "b", "b", "b"),
    "ぱぴぷぺぽ": ("p", "pʲ", "p", "p", "p"),
    "まみむめも": ("m", "mʲ", "m", "m", "m"),
    "らりるれろ": ("ɾ", "ɾʲ", "ɾ", "ɾ", "ɾ"),
}
_CENTRAL_U = frozenset("すずつづ")
"""After these the vowel u is made further forward."""


def _table() -> dict[str, str]:
    table = dict(zip("あいうえお", _VOWELS.values(), strict=True))
    table |= {"や": "ja", "ゆ": "jɯ", "よ": "jo", "わ": "βa", "を": "o"}
    table |= {"っ": "ʔ", "ー": "ː", "ふぁ": "ɸa", "ふぃ": "ɸi", "ふぇ": "ɸe", "ふぉ": "ɸo"}
    table |= {"てぃ": "ti", "でぃ": "di", "うぃ": "βi", "うぇ": "βe", "うぉ": "βo"}
    for row, consonants in _CONSONANTS.items():
        for kana, consonant, vowel in zip(row, consonants, _VOWELS.values(), strict=True):
            table[kana] = consonant + ("ɨ" if kana in _CENTRAL_U else vowel)
        second = row[1]
        for small, vowel in (("ゃ", "a"), ("ゅ", "ɯ"), ("ょ", "o"), ("ぇ", "e")):
            table[second + small] = consonants[1] + vowel
    return table


_TABLE = _table()
_KATAKANA, _HIRAGANA, _KANA_COUNT = 0x30A1, 0x3041, 86


class Kana:
    """Pronounces text in kana; words are separated by blanks, and other letters are left out."""

    def phonemes(self, text: str) -> str:
        """The symbols of `text`, words separated by single blanks."""
        return " ".join(self.word(word) for word in text.split())

    def word(self, text: str) -> str:
        """The symbols of one word."""
        kana = "".join(_hiragana(letter) for letter in text)
        said, at = "", 0
        while at < len(kana):
            length = 2 if kana[at : at + 2] in _TABLE else 1
            letter = kana[at : at + length]
            said += "ɴ" if letter == "ん" else _TABLE.get(letter, "")
            at += length
        for lips in "pbm":
            said = said.replace(f"ɴ{lips}", f"m{lips}")
        return said


def _hiragana(letter: str) -> str:
    offset = ord(letter) - _KATAKANA
    return chr(_HIRAGANA + offset) if 0 <= offset < _KANA_COUNT else letter
