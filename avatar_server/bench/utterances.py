"""What `bench lipsync` listens to: sentences in the product's voices, with their sounds timed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from avatar_server.avatar.clip import rms_per_10_ms
from avatar_server.bench.lipsync_sentences import ENGLISH, JAPANESE
from avatar_server.config import TtsSettings
from avatar_server.inference.tts import Synthesizer
from avatar_server.inference.tts.contract import SAMPLE_RATE_HZ
from avatar_server.inference.tts.kana import Kana
from avatar_server.inference.tts.kokoro import KokoroSynthesizer, load_styles
from avatar_server.inference.tts.timeline import TimedPhone
from avatar_server.inference.tts.whole import whole_clause
from renderers import VisemeSpan

JAPANESE_VOICE = "jf_alpha"
VOWEL_BAND_HZ = (500.0, 3_000.0)
"""Loudness in the band of the vowels' formants goes with the opening of the mouth (Grant & Seitz
2000); below it a nasal murmurs behind closed lips, above it a hiss passes hardly open ones."""
_SAMPLES_PER_10_MS = 480


class Utterance(NamedTuple):
    """A spoken sentence. Times are seconds from its first sample."""

    text: str
    seconds: float
    phones: list[TimedPhone]
    visemes: list[VisemeSpan]
    energy: NDArray[np.float32]
    """RMS (0..1 of full scale) per 10 ms."""
    vowel_energy: NDArray[np.float32]
    """The same of the band in which an open mouth is heard."""


class Spoken(NamedTuple):
    """All sentences of a language, and where their times come from."""

    voice: str
    source: str
    utterances: list[Utterance]


def utterances(
    synthesizer: Synthesizer, voice: str, sentences: Sequence[str], language: str
) -> Iterator[Utterance]:
    """`sentences` as `synthesizer` says them."""
    for text in sentences:
        said = whole_clause(synthesizer.synthesize(text, voice, 1.0, language))
        yield Utterance(
            text,
            said.seconds,
            said.phones,
            said.visemes,
            _energy(said.pcm),
            _energy(_band(said.pcm, *VOWEL_BAND_HZ)),
        )


def _energy(pcm: NDArray[np.int16]) -> NDArray[np.float32]:
    return rms_per_10_ms(pcm[: len(pcm) // _SAMPLES_PER_10_MS * _SAMPLES_PER_10_MS])


def _band(pcm: NDArray[np.int16], low_hz: float, high_hz: float) -> NDArray[np.int16]:
    spectrum = np.fft.rfft(pcm)
    frequencies = np.fft.rfftfreq(len(pcm), 1 / SAMPLE_RATE_HZ)
    spectrum[(frequencies < low_hz) | (frequencies > high_hz)] = 0
    return np.asarray(np.fft.irfft(spectrum, len(pcm)), np.int16)


def english(progress: Callable[[str], None]) -> Spoken:
    """The English sentences in the bundled voice. Raises `TtsError` and `ModelError`."""
    from avatar_server.inference.tts import build_synthesizer
    from avatar_server.models import ModelStore

    progress(f"English: {len(ENGLISH)} sentences in the bundled voice")
    synthesizer = build_synthesizer(ModelStore(), TtsSettings(engine="piper"), 1)
    voice = synthesizer.voices()[0]
    said = list(utterances(synthesizer, voice, ENGLISH, "en"))
    return Spoken(synthesizer.name, "durations of the voice's own model", said)


def japanese(progress: Callable[[str], None]) -> Spoken:
    """The Japanese sentences in a voice of Kokoro's. Raises `TtsError` and `ModelError`."""
    from avatar_server.inference.tts.kokoro_onnx import OnnxKokoro
    from avatar_server.models import ModelStore

    progress(f"Japanese: {len(JAPANESE)} sentences by Kokoro, some 2 minutes on one core")
    store = ModelStore()
    styles = load_styles(store.path("kokoro-voices"), letters="j")
    synthesizer = KokoroSynthesizer(
        OnnxKokoro(store.path("kokoro-82m-int8"), threads=1), styles, {"j": Kana()}
    )
    voice = JAPANESE_VOICE if JAPANESE_VOICE in styles else synthesizer.voices()[0]
    said = list(utterances(synthesizer, voice, JAPANESE, "ja"))
    return Spoken(f"{synthesizer.name} ({voice})", "durations of the voice's own model", said)


LANGUAGES = {"en": english, "ja": japanese}
"""What speaks each language; called with something that takes lines of progress."""
