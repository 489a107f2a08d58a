"""Kana as symbols of Kokoro's alphabet."""

from __future__ import annotations

import pytest

from avatar_server.bench.lipsync_sentences import JAPANESE
from avatar_server.inference.tts.kana import Kana
from avatar_server.inference.tts.kokoro_alphabet import TOKEN_IDS


@pytest.mark.parametrize(
    ("kana", "said"),
    [
        ("しんぶん", "ɕimbɯɴ"),
        ("おちゃ", "oʨa"),
        ("つづく", "ʦɨzɨkɯ"),
        ("ふじさん", "ɸɯʥisaɴ"),
        ("まっか", "maʔka"),
        ("きゅーけー", "kʲɯːkeː"),
        ("パーティー", "paːtiː"),
        ("びょーいん", "bʲoːiɴ"),
        ("漢字かな", "kana"),
    ],
)
def test_kana_are_said_as_in_standard_japanese(kana: str, said: str) -> None:
    assert Kana().word(kana) == said


def test_all_letters_of_the_sentences_are_known_and_words_stay_words() -> None:
    for text in JAPANESE:
        said = Kana().phonemes(text)
        assert len(said.split()) == len(text.split())
        assert set(said) <= {*TOKEN_IDS, " "}
