"""Recognition with the real models, on speech made by the product's own voice."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from avatar_server.config import SttSettings
from avatar_server.inference.stt import Transcriber
from avatar_server.inference.stt.transcriber import split
from avatar_server.models import ModelStore

Say = Callable[[str], NDArray[np.int16]]


@pytest.fixture(scope="session")
def tiny(model_store: ModelStore) -> Transcriber:
    transcriber = Transcriber(model_store.path("whisper-tiny.en"), SttSettings())
    transcriber.warm_up()
    return transcriber


@pytest.fixture(scope="session")
def base(model_store: ModelStore) -> Transcriber:
    return Transcriber(model_store.path("whisper-base"), SttSettings(model="whisper-base"))


def _words(text: str) -> list[str]:
    return re.sub(r"[^a-z' ]", " ", text.lower()).split()


@pytest.mark.parametrize(
    "sentence",
    [
        "What is the capital of France?",
        "Please tell me something about the history of this old house.",
        "Good morning, how are you today?",
        "I would like to know when the museum opens on Sunday.",
    ],
)
def test_every_word_is_recognised_once(tiny: Transcriber, say: Say, sentence: str) -> None:
    result = tiny.transcribe(say(sentence))
    found, wanted = _words(result.text), _words(sentence)
    # The smallest model may mishear one word of a synthetic voice; it must not repeat itself.
    assert abs(len(found) - len(wanted)) <= 1
    assert len(set(wanted) - set(found)) <= 1
    assert result.language == "en"
    assert result.mean_logprob > -1.0


@pytest.mark.parametrize("word", ["Yes.", "No.", "Thank you.", "Hello."])
def test_one_word_replies_are_speech(tiny: Transcriber, say: Say, word: str) -> None:
    assert _words(tiny.transcribe(say(word)).text) == _words(word)


def test_the_cut_window_says_what_the_whole_window_says_for_less(
    tiny: Transcriber, say: Say
) -> None:
    samples = say("The old library stands beside the river.").astype(np.float32) / 32768
    start = time.process_time()
    whole = tiny._run(samples, None, cut=False)
    middle = time.process_time()
    cut = tiny._run(samples, None, cut=True)
    end = time.process_time()
    assert _words(cut.text) == _words(whole.text)
    assert end - middle < 0.7 * (middle - start)


def _pink(rng: np.random.Generator, count: int) -> NDArray[np.float64]:
    spectrum = np.fft.rfft(rng.normal(size=count))
    spectrum /= np.sqrt(np.maximum(1, np.arange(len(spectrum))))
    sound = np.fft.irfft(spectrum, count)
    return np.asarray(sound / sound.std())


def _noises() -> dict[str, NDArray[np.float64]]:
    rng, count = np.random.default_rng(1), 48_000
    t = np.arange(count) / 16_000
    clicks = np.where(np.arange(count) % 6_000 < 60, rng.normal(0, 9_000, count), 0.0)
    return {
        "silence": np.zeros(count),
        "hiss": rng.normal(0, 300, count),
        "loud hiss": rng.normal(0, 6_000, count),
        "wind": _pink(rng, count) * 3_000,
        "hum": 3_000 * np.sin(2 * np.pi * 100 * t) + 1_000 * np.sin(2 * np.pi * 200 * t),
        "tone": 8_000 * np.sin(2 * np.pi * 440 * t),
        "clicks": clicks,
        "buzzer": 5_000 * np.sign(np.sin(2 * np.pi * 120 * t)) * (np.sin(8 * np.pi * t) > 0),
        "breath": _pink(rng, count) * 2_000 * np.maximum(0, np.sin(np.pi * t)) ** 2,
    }


@pytest.mark.parametrize("name", list(_noises()))
def test_silence_and_noise_have_no_words(tiny: Transcriber, name: str) -> None:
    sound = np.clip(_noises()[name], -32_768, 32_767).astype(np.int16)
    assert tiny.transcribe(sound).text == ""


def test_sound_shorter_than_a_frame_has_no_words(tiny: Transcriber) -> None:
    assert tiny.transcribe(np.zeros(0, dtype=np.int16)).text == ""
    assert tiny.transcribe(np.full(100, 9_000, dtype=np.int16)).text == ""


def test_speech_longer_than_the_window_is_recognised_to_its_end(
    tiny: Transcriber, say: Say
) -> None:
    sentences = [
        "Ladies and gentlemen, the train to the northern coast leaves in ten minutes.",
        "My brother bought a small boat and painted it green last summer.",
        "Can you tell me how far it is to the nearest village with a bakery?",
        "We waited for an hour in front of the theatre, but nobody came.",
        "The old bridge was closed because of the storm, so we walked along the river.",
        "Please remember to water the plants on the balcony every evening.",
        "Later that day she wrote a long letter to her grandmother in Canada.",
        "There is a wonderful market behind the church, where they sell fresh fish.",
        "The final word is elephant.",
    ]
    sound = np.concatenate([say(sentence) for sentence in sentences])
    assert len(sound) > 30 * 16_000
    words = _words(tiny.transcribe(sound).text)
    assert words[-1] == "elephant"
    for word in ("gentlemen", "boat", "bakery", "river", "plants", "grandmother", "market"):
        assert words.count(word) == 1


def test_the_multilingual_model_finds_the_language(base: Transcriber, say: Say) -> None:
    result = base.transcribe(say("Where can I buy a ticket for the evening train?"))
    assert result.language == "en"
    assert {"buy", "ticket", "evening", "train"} <= set(_words(result.text))


def test_a_language_that_the_model_does_not_know_is_refused(
    tiny: Transcriber, base: Transcriber
) -> None:
    sound = np.zeros(16_000, dtype=np.int16)
    with pytest.raises(ValueError, match="English only"):
        tiny.transcribe(sound, "ja")
    with pytest.raises(ValueError, match="does not know the language 'xx'"):
        base.transcribe(sound, "xx")


def test_a_folder_without_a_model_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"holds no CTranslate2 model"):
        Transcriber(tmp_path, SttSettings())


def test_long_sound_is_cut_where_it_is_quiet() -> None:
    rng = np.random.default_rng(0)
    pcm = rng.normal(0, 3_000, 40 * 16_000).astype(np.int16)
    pcm[20 * 16_000 : 21 * 16_000] = 0
    first, second = split(pcm, max_s=28)
    assert 20 * 16_000 <= len(first) <= 21 * 16_000
    np.testing.assert_array_equal(np.concatenate([first, second]), pcm)


def test_pieces_are_never_longer_than_asked() -> None:
    pieces = split(np.ones(100 * 16_000, dtype=np.int16), max_s=28)
    assert max(map(len, pieces)) <= 28 * 16_000
    assert sum(map(len, pieces)) == 100 * 16_000
