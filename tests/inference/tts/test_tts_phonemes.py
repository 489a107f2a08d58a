"""Phonemes and the words they belong to."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from avatar_server.inference.tts.contract import TtsError
from avatar_server.inference.tts.espeak import Espeak
from avatar_server.inference.tts.phonemes import PhonemizedText, phonemize


@pytest.fixture(scope="module")
def espeak() -> Espeak:
    return Espeak("en-us")


def said(spoken: PhonemizedText) -> dict[str, str]:
    return {
        word: "".join(p.symbol for p in spoken.phones if p.word == index)
        for index, word in enumerate(spoken.words)
    }


def test_each_word_gets_its_own_phonemes(espeak: Espeak) -> None:
    assert said(phonemize("Hello there, friend.", espeak)) == {
        "Hello": "həlˈoʊ",
        "there,": "ðˈɛɹ",
        "friend.": "fɹˈɛnd",
    }


def test_words_that_are_said_as_one_are_told_apart(espeak: Espeak) -> None:
    assert said(phonemize("one of the best", espeak)) == {
        "one": "wˈʌn",
        "of": "ʌv",
        "the": "ðə",
        "best": "bˈɛst",
    }


def test_a_number_that_is_said_as_many_words_stays_one_word(espeak: Espeak) -> None:
    words = said(phonemize("I have 3.5 apples in the twenty-three bags", espeak))
    assert words["3.5"] == "θɹˈiː pɔɪnt fˈaɪv"
    assert words["apples"] == "ˈæpəlz"
    assert words["twenty-three"].replace(" ", "") == "twˈɛntiθɹˈiː"
    assert words["bags"] == "bˈæɡz"


def test_punctuation_is_kept_as_symbols_of_its_own(espeak: Espeak) -> None:
    symbols = "".join(p.symbol for p in phonemize("Well, is it? Yes!", espeak).phones)
    assert [s for s in symbols if s in ",.?!"] == [",", "?", "!"]


def test_the_stop_of_an_abbreviation_is_no_pause(espeak: Espeak) -> None:
    spoken = phonemize("From nine a.m. to five p.m.", espeak)
    symbols = "".join(p.symbol for p in spoken.phones)
    assert symbols.count(".") == 1
    assert symbols.endswith(".")
    assert said(spoken)["a.m."] == "ˌeɪˈɛm"


def test_a_word_without_sound_has_no_phonemes(espeak: Espeak) -> None:
    spoken = phonemize("here — there ...", espeak)
    assert spoken.words == ["here", "—", "there", "..."]
    assert said(spoken)["—"] == ""


def test_nothing_to_say_gives_no_phonemes(espeak: Espeak) -> None:
    assert phonemize(" ... — ", espeak).phones == []


def test_letters_of_another_script_are_not_named_one_by_one(espeak: Espeak) -> None:
    assert said(phonemize("hello こんにちは friend", espeak)) == {
        "hello": "həlˈoʊ",
        "こんにちは": "",
        "friend": "fɹˈɛnd",
    }


def test_two_languages_do_not_disturb_each_other() -> None:
    american, british = Espeak("en-us"), Espeak("en-gb-x-rp")
    before = american.phonemes("water in the bath")
    assert british.phonemes("water in the bath") != before
    assert american.phonemes("water in the bath") == before


def test_an_unknown_language_is_an_error_in_words() -> None:
    with pytest.raises(TtsError, match="no language 'xx-none'"):
        Espeak("xx-none")


@settings(deadline=None, max_examples=60)
@given(st.text(max_size=60))
def test_words_come_in_order_whatever_the_text(text: str) -> None:
    spoken = phonemize(text, Espeak("en-us"))
    assert spoken.words == text.split()
    owners = [p.word for p in spoken.phones if p.word is not None]
    assert owners == sorted(owners)
