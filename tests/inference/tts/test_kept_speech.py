"""Speech that is kept for the next time."""

from __future__ import annotations

import numpy as np

from avatar_server.inference.tts.contract import SpeechPiece
from avatar_server.inference.tts.kept import KeptSpeech, Spoken


def pieces(samples: int, *, whole: bool = True) -> list[SpeechPiece]:
    half = np.ones(samples // 2, np.int16)
    return [SpeechPiece(half, False), SpeechPiece(half, whole)]


def words(text: str, voice: str = "v", speed: float = 1.0, language: str = "en") -> Spoken:
    return Spoken(text, voice, speed, language)


def test_a_clause_is_found_again_only_as_it_was_spoken() -> None:
    kept = KeptSpeech(1_000)
    made = pieces(100)
    kept.keep(words("hello"), made)
    assert list(kept.get(words("hello"))) == made
    for other in (
        words("Hello"),
        words("hello", voice="w"),
        words("hello", speed=1.1),
        words("hello", language="ja"),
        words("hello")._replace(pitch=1.1),
    ):
        assert not kept.get(other)
    assert kept.found == 1


def test_what_was_not_heard_for_longest_goes_first() -> None:
    kept = KeptSpeech(600)
    for text in "abc":
        kept.keep(words(text), pieces(100))
    assert kept.bytes == 600
    kept.get(words("a"))
    kept.keep(words("d"), pieces(100))
    assert [bool(kept.get(words(text))) for text in "abcd"] == [True, False, True, True]
    assert kept.bytes == 600


def test_half_a_clause_and_one_that_fills_all_are_not_kept() -> None:
    kept = KeptSpeech(600)
    kept.keep(words("a"), pieces(100))
    kept.keep(words("broken off"), pieces(100, whole=False))
    kept.keep(words("too long"), pieces(400))
    kept.keep(words("nothing"), [])
    assert kept.bytes == 200
    none = KeptSpeech(0)
    none.keep(words("a"), pieces(100))
    assert not none.get(words("a"))
