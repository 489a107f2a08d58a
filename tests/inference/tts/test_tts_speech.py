"""What the synthesisers say, heard with a recogniser and measured."""

from __future__ import annotations

import re

import numpy as np
import pytest
from faster_whisper import WhisperModel
from numpy.typing import NDArray

from avatar_server.inference.tts.contract import SpeechPiece, TtsError
from avatar_server.inference.tts.kokoro import KokoroSynthesizer
from avatar_server.inference.tts.phonemes import phonemize
from avatar_server.inference.tts.piper import _CONTEXT_FRAMES, _HOP, PiperSynthesizer
from avatar_server.models import ModelStore
from avatar_server.resample import Resampler
from renderers.contract import Viseme

SENTENCE = "The garden opens at nine in the morning, and visitors are always welcome here."
_OPENNESS = {
    Viseme.AA: 1.0, Viseme.E: 0.75, Viseme.OH: 0.85, Viseme.IH: 0.6, Viseme.OU: 0.6,
    Viseme.RR: 0.5, Viseme.NN: 0.35, Viseme.DD: 0.2, Viseme.KK: 0.2, Viseme.TH: 0.2,
    Viseme.CH: 0.2, Viseme.SS: 0.15, Viseme.FF: 0.1,
}  # fmt: skip


@pytest.fixture(scope="module")
def recogniser(model_store: ModelStore) -> WhisperModel:
    path = model_store.path("whisper-tiny.en")
    return WhisperModel(str(path), device="cpu", compute_type="int8", cpu_threads=1)


def joined(pieces: list[SpeechPiece]) -> NDArray[np.float32]:
    """All samples of a clause, full scale 1.0."""
    return np.concatenate([piece.pcm for piece in pieces]).astype(np.float32) / 32_768


def heard(recogniser: WhisperModel, sound: NDArray[np.float32]) -> list[str]:
    resampler = Resampler(48_000, 16_000)
    at_16k = np.concatenate([resampler.push(sound), resampler.flush()])
    silence = np.zeros(8_000, np.float32)
    segments, _ = recogniser.transcribe(np.concatenate([silence, at_16k, silence]), language="en")
    return re.findall(r"[a-z']+", " ".join(s.text for s in segments).lower())


def level_db(sound: NDArray[np.float32]) -> NDArray[np.float32]:
    """Level of every 10 ms, in dB of full scale, floored at -55."""
    frames = sound[: sound.size // 480 * 480].reshape(-1, 480)
    return np.clip(20 * np.log10(np.sqrt((frames**2).mean(axis=1)) + 1e-6), -55, 0)


def openness(piece: SpeechPiece, frames: int) -> NDArray[np.float32]:
    result = np.zeros(frames, np.float32)
    for viseme, start, end in piece.visemes:
        result[round(start * 100) : round(end * 100)] = _OPENNESS.get(Viseme(viseme), 0.0)
    return np.convolve(result, np.ones(5) / 5, "same")


def test_piper_is_understood(piper: PiperSynthesizer, recogniser: WhisperModel) -> None:
    sound = joined(list(piper.synthesize(SENTENCE, "piper-joe", 1.0, "en")))
    expected = re.findall(r"[a-z']+", SENTENCE.lower())
    words = heard(recogniser, sound)
    assert sum(word in words for word in expected) >= len(expected) - 2


def test_kokoro_is_understood(kokoro: KokoroSynthesizer, recogniser: WhisperModel) -> None:
    text = "The garden opens at nine."
    sound = joined(list(kokoro.synthesize(text, "af_heart", 1.0, "en")))
    words = heard(recogniser, sound)
    assert {"garden", "opens", "at"} <= set(words)


@pytest.mark.parametrize("text", [SENTENCE, "Yes.", "well then", "It is 3.5 of the best — really!"])
def test_words_and_visemes_fit_the_sound(piper: PiperSynthesizer, text: str) -> None:
    pieces = list(piper.synthesize(text, "piper-joe", 1.0, "en"))
    length = sum(piece.pcm.size for piece in pieces) / 48_000
    first = pieces[0]
    assert [word.text for word in first.words] == text.split()
    assert all(a.end <= b.start for a, b in zip(first.words, first.words[1:], strict=False))
    assert first.visemes[0].start == 0.0
    assert first.visemes[-1].end == pytest.approx(length, abs=1e-3)
    assert [piece.last for piece in pieces] == [False] * (len(pieces) - 1) + [True]
    assert all(not piece.words and not piece.visemes for piece in pieces[1:])


def test_the_mouth_follows_the_sound(piper: PiperSynthesizer) -> None:
    lags = range(-15, 16)
    total = np.zeros(len(lags))
    for text in (SENTENCE, "My papa made a map of Paris.", "The bad cat sat back on a mat."):
        pieces = list(piper.synthesize(text, "piper-joe", 1.0, "en"))
        level = level_db(joined(pieces))
        mouth = openness(pieces[0], level.size)
        total += [np.corrcoef(np.roll(mouth, lag), level)[0, 1] for lag in lags]
    best = lags[int(total.argmax())] * 10
    assert total.max() / 3 > 0.5
    assert -20 <= best <= 50, f"the mouth should move {best} ms later"


@pytest.mark.parametrize("text", ["Bob came.", "Five people.", "And so it was.", "Hello."])
def test_sound_begins_at_once_and_the_mouth_with_it(piper: PiperSynthesizer, text: str) -> None:
    pieces = list(piper.synthesize(text, "piper-joe", 1.0, "en"))
    onset = float(np.flatnonzero(level_db(joined(pieces)) > -45)[0]) / 100
    moves = next(span.start for span in pieces[0].visemes if span.viseme != Viseme.SIL)
    assert onset <= 0.06
    assert abs(onset - moves) <= 0.06


@pytest.mark.parametrize(("text", "low", "high"), [("We go.", 0.1, 0.3), ("we go,", 0.05, 0.25)])
def test_a_clause_ends_in_a_natural_pause(
    piper: PiperSynthesizer, text: str, low: float, high: float
) -> None:
    level = level_db(joined(list(piper.synthesize(text, "piper-joe", 1.0, "en"))))
    pause = (level.size - 1 - np.flatnonzero(level > -45)[-1]) / 100
    assert low <= pause <= high


def test_the_first_piece_is_short_and_the_rest_follows(piper: PiperSynthesizer) -> None:
    pieces = list(piper.synthesize(SENTENCE, "piper-joe", 1.0, "en"))
    assert 0.2 <= pieces[0].pcm.size / 48_000 <= 0.45
    assert len(pieces) >= 3


def test_windows_join_to_what_one_decode_gives(piper: PiperSynthesizer) -> None:
    latent, _ = piper._run_front(phonemize(SENTENCE, piper._espeak).phones, 1.0)
    whole = piper._decoder.run(None, {piper._latent: latent})[0].ravel()
    start, first_end = 7, 30
    windows = np.concatenate(list(piper._decode(latent, start, first_end)))
    np.testing.assert_allclose(windows, whole[start * _HOP :], atol=1e-5)
    assert latent.shape[2] > first_end + 3 * _CONTEXT_FRAMES


def test_closing_the_generator_drops_the_rest(piper: PiperSynthesizer) -> None:
    decoded: list[int] = []
    decoder = piper._decoder

    class Counting:
        def run(self, names: object, feed: dict[str, NDArray[np.float32]]) -> object:
            decoded.append(1)
            return decoder.run(names, feed)

    piper._decoder = Counting()
    try:
        speech = piper.synthesize(SENTENCE, "piper-joe", 1.0, "en")
        next(speech)
        speech.close()  # type: ignore[attr-defined]
    finally:
        piper._decoder = decoder
    assert len(decoded) == 1


def test_speed_shortens_speech(piper: PiperSynthesizer) -> None:
    slow = joined(list(piper.synthesize(SENTENCE, "piper-joe", 0.8, "en"))).size
    fast = joined(list(piper.synthesize(SENTENCE, "piper-joe", 1.4, "en"))).size
    assert fast < 0.8 * slow


def test_no_sample_is_clipped_and_the_level_is_common(piper: PiperSynthesizer) -> None:
    sound = joined(list(piper.synthesize(SENTENCE, "piper-joe", 1.0, "en")))
    loud = sound[np.abs(sound) > 0.01]
    assert np.abs(sound).max() < 0.999
    assert 0.06 < float(np.sqrt((loud**2).mean())) < 0.16


def test_text_without_words_is_a_short_silence(piper: PiperSynthesizer) -> None:
    (piece,) = piper.synthesize("...", "piper-joe", 1.0, "en")
    assert piece.last
    assert not piece.pcm.any()
    assert 0 < piece.pcm.size <= 48_000
    assert piece.visemes == [(Viseme.SIL, 0.0, pytest.approx(piece.pcm.size / 48_000))]


def test_an_unknown_voice_is_refused_in_words(
    piper: PiperSynthesizer, kokoro: KokoroSynthesizer
) -> None:
    with pytest.raises(TtsError, match="no voice 'nobody'"):
        piper.synthesize("Hi.", "nobody", 1.0, "en")
    with pytest.raises(TtsError, match="no voice 'nobody'"):
        kokoro.synthesize("Hi.", "nobody", 1.0, "en")


def test_an_impossible_speed_is_refused_in_words(piper: PiperSynthesizer) -> None:
    with pytest.raises(TtsError, match="speed 0"):
        piper.synthesize("Hi.", "piper-joe", 0, "en")


def test_kokoro_words_and_visemes_fit_the_sound(kokoro: KokoroSynthesizer) -> None:
    text = "Bob paid 3.5 pounds."
    pieces = list(kokoro.synthesize(text, "bm_george", 1.0, "en"))
    sound = joined(pieces)
    level = level_db(sound)
    first = pieces[0]
    assert [word.text for word in first.words] == text.split()
    assert first.visemes[-1].end == pytest.approx(sound.size / 48_000, abs=1e-3)
    speech_end = float(np.flatnonzero(level > -45)[-1] + 1) / 100
    assert first.words[-1].end == pytest.approx(speech_end, abs=0.08)
    assert float(np.flatnonzero(level > -45)[0]) / 100 <= 0.06
