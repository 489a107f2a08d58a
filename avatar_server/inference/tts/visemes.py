"""IPA to the 15 visemes of the Oculus set.

The grouping of consonants by place of articulation follows the published viseme tables of Oculus
lip sync and of MPEG-4 face animation (ISO/IEC 14496-2, table of visemes); sounds those tables do
not list take the viseme of the nearest place of articulation.
"""

from __future__ import annotations

from renderers.contract import Viseme

_BY_VISEME: dict[Viseme, str] = {
    Viseme.PP: "pbmɓʘ",
    Viseme.FF: "fvɱⱱʋ",
    Viseme.TH: "θð",
    Viseme.DD: "tdʈɖɾɽT",
    Viseme.KK: "kɡgŋxɣqɢχʁɴcɟçʝħʕ",
    Viseme.CH: "ʃʒʧʤɕʑʨʥʂʐ",
    Viseme.SS: "szʦʣ",
    Viseme.NN: "nlɫɳɲɭʎɬɺ",
    Viseme.RR: "rɹɻʀɚɝ",
    Viseme.AA: "aɑæʌɒɶ",
    Viseme.E: "eɛəɐɜɘɞᵊ",
    Viseme.IH: "iɪɨᵻj",
    Viseme.OH: "oɔɤ",
    Viseme.OU: "uʊwyʏøœʉɯɰɥʍβɸɵꭧ",
}
_VISEME = {symbol: viseme for viseme, symbols in _BY_VISEME.items() for symbol in symbols}

DIPHTHONGS: dict[str, tuple[Viseme, Viseme]] = {
    "A": (Viseme.E, Viseme.IH),
    "I": (Viseme.AA, Viseme.IH),
    "O": (Viseme.OH, Viseme.OU),
    "Q": (Viseme.E, Viseme.OU),
    "W": (Viseme.AA, Viseme.OU),
    "Y": (Viseme.OH, Viseme.IH),
}
"""Single letters by which Kokoro's alphabet writes diphthongs, as (first, second) viseme."""

DIPHTHONG_SPLIT = 0.6
"""Share of a diphthong's time that its first target is held: the glide comes late."""

MARKS = frozenset("ˈˌːˑʰʲˠˤ̩̯̃͡ʼ‿ʔ")
"""Symbols without a mouth shape of their own: they lengthen or colour their neighbour."""

_FOLLOWING = frozenset("hɦ")
"""Sounds made with the mouth already shaped for the vowel that follows."""

_AFFRICATES = frozenset({("t", "ʃ"), ("d", "ʒ"), ("t", "ɕ"), ("d", "ʑ")})


def viseme_of(symbol: str, following: str = "") -> Viseme | None:
    """The viseme of one IPA symbol before `following`, or None where it has none of its own.

    None means: hold what the neighbours show. Diphthong letters give their first target.
    """
    if (symbol, following) in _AFFRICATES:
        return Viseme.CH
    if symbol in _FOLLOWING:
        return _VISEME.get(following)
    if symbol in DIPHTHONGS:
        return DIPHTHONGS[symbol][0]
    return _VISEME.get(symbol)
