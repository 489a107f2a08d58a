"""Kokoro-82M (StyleTTS 2 with an ISTFTNet decoder): the better voices, whatever runs the model.

Its decoder normalises over the whole clause, so unlike piper's it cannot be run in windows:
a clause comes in one piece.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from avatar_server.inference.memory import MemoryFigure
from avatar_server.inference.tts.contract import SpeechPiece, TtsError, check_speed
from avatar_server.inference.tts.espeak import Espeak
from avatar_server.inference.tts.kokoro_alphabet import MAX_TOKENS, TOKEN_IDS, rewrite, split
from avatar_server.inference.tts.phonemes import PAUSES, Grapheme2Phoneme, Phone, phonemize
from avatar_server.inference.tts.runtime import rtf_of
from avatar_server.inference.tts.shaping import pause_after, shape, silence
from avatar_server.inference.tts.timeline import TimedPhone, build_timeline

RATE_HZ = 24_000
_FRAME = 600
"""Samples per duration unit of the model."""
_EARLY_FRAMES = 3
"""Sounds come this much before the frames that the durations give them (the reference code
subtracts the same from its time stamps)."""
_SILENT_LEVEL = 0.004
_LANGUAGES = {"a": "en-us", "b": "en-gb-x-rp"}
"""First letter of a voice's name: its accent, and espeak-ng's name for it."""
_WARM_UP_TEXT = "The quick brown fox jumps over it."
_TARGET_RMS = 0.1


class KokoroModel(Protocol):
    """The neural network alone."""

    @property
    def name(self) -> str: ...

    @property
    def cpu_threads(self) -> int:
        """Threads that it takes; 0 where the work is done elsewhere (on a GPU)."""
        ...

    def speak(
        self, tokens: list[int], style: NDArray[np.float32], speed: float
    ) -> tuple[NDArray[np.float32], NDArray[Any]]:
        """Sound (float32, 24 kHz, of shape (samples,)) of `tokens`, and the frames that each of
        them lasts, of shape (tokens,). `style` is of shape (256,)."""
        ...

    def memory(self) -> MemoryFigure: ...


class KokoroSynthesizer:
    """Kokoro with the voices of `styles`, as `load_styles` gives them.

    `sources` pronounce the text, by the first letter of a voice's name; by default espeak-ng in
    American (a) and British English (b). What they give for another letter must be symbols of
    Kokoro's alphabet already.
    """

    def __init__(
        self,
        model: KokoroModel,
        styles: dict[str, NDArray[np.float32]],
        sources: Mapping[str, Grapheme2Phoneme] | None = None,
    ) -> None:
        self._model = model
        self._styles = styles
        self._sources = sources or {letter: Espeak(name) for letter, name in _LANGUAGES.items()}
        self._gains: dict[str, float] = {}

    @property
    def name(self) -> str:
        return self._model.name

    def memory(self) -> MemoryFigure:
        return self._model.memory()

    def voices(self) -> list[str]:
        return list(self._styles)

    def synthesize(
        self, text: str, voice: str, speed: float, language: str
    ) -> Iterator[SpeechPiece]:
        """See `Synthesizer`. A voice speaks its own accent, whatever `language` says."""
        if voice not in self._styles:
            raise TtsError(f"there is no voice {voice!r}: use one of {', '.join(self._styles)}")
        check_speed(speed)
        return self._pieces(text, voice, speed)

    def warm_up(self) -> None:
        for _ in self._pieces(_WARM_UP_TEXT, next(iter(self._styles)), 1.0):
            pass

    def measure_rtf(self) -> float:
        pieces = self._pieces(_WARM_UP_TEXT, next(iter(self._styles)), 1.0)
        return rtf_of(pieces, self._model.cpu_threads)

    def _pieces(self, text: str, voice: str, speed: float) -> Iterator[SpeechPiece]:
        spoken = phonemize(text, self._sources[voice[0]])
        if voice[0] in _LANGUAGES:
            phones = rewrite(spoken.phones, british=voice[0] == "b")
        else:
            phones = [phone for phone in spoken.phones if phone.symbol in TOKEN_IDS]
        if not any(phone.word is not None for phone in phones):
            yield silence(text, pause_after(text))
            return
        if phones[-1].symbol not in PAUSES:
            phones = [*phones, Phone(",", None)]
        sounds: list[NDArray[np.float32]] = []
        timed: list[TimedPhone] = []
        offset = 0.0
        for part in split(phones, MAX_TOKENS):
            sound, times = self._run(part, voice, speed)
            timed.extend(TimedPhone(t.phone, t.start + offset, t.end + offset) for t in times)
            sounds.append(sound)
            offset += sound.size / RATE_HZ
        timeline = build_timeline(spoken.words, timed, offset)
        sound = np.concatenate(sounds)
        yield from shape(
            [sound],
            RATE_HZ,
            timeline,
            skipped_s=0.0,
            total_s=offset,
            pause_s=pause_after(text),
            gain=self._gain(voice, sound),
        )

    def _run(
        self, phones: list[Phone], voice: str, speed: float
    ) -> tuple[NDArray[np.float32], list[TimedPhone]]:
        """Sound of `phones`, float32 of shape (samples,), and their times in it."""
        ids = [0, *(TOKEN_IDS[phone.symbol] for phone in phones), 0]
        styles = self._styles[voice]
        style = styles[min(len(phones), len(styles)) - 1]
        sound, durations = self._model.speak(ids, style, speed)
        ends = (np.cumsum(durations) - _EARLY_FRAMES) * (_FRAME / RATE_HZ)
        ends = np.clip(ends, 0.0, _sound_end(sound))
        timed = [
            TimedPhone(phone, float(ends[i]), float(ends[i + 1])) for i, phone in enumerate(phones)
        ]
        return sound, timed

    def _gain(self, voice: str, sound: NDArray[np.float32]) -> float:
        """Brings the voice to the common level; decided once, by its first clause."""
        if voice not in self._gains:
            loud = sound[np.abs(sound) > 0.01]
            level = float(np.sqrt(np.mean(loud**2))) if loud.size else _TARGET_RMS
            self._gains[voice] = float(np.clip(_TARGET_RMS / level, 0.25, 4.0))
        return self._gains[voice]


def load_styles(
    path: Path, letters: Collection[str] = tuple(_LANGUAGES)
) -> dict[str, NDArray[np.float32]]:
    """Voices by name, each float32 of shape (510, 256). Raises `TtsError`.

    `letters`: first letters of the names wanted, by default those of the English voices.
    """
    try:
        if path.is_dir() and (files := sorted(path.glob("*.bin"))):
            tables = {file.stem: np.fromfile(file, np.float32) for file in files}
        else:
            file = path if path.is_file() else next(iter(sorted(path.glob("*.npz"))))
            with np.load(file) as archive:
                tables = {name: archive[name] for name in archive.files if name[0] in letters}
        styles = {
            name: np.asarray(table, np.float32).reshape(MAX_TOKENS, 256)
            for name, table in tables.items()
            if name[0] in letters
        }
    except (OSError, ValueError, StopIteration) as error:
        raise TtsError(f"{path} holds no Kokoro voices: {error!r}") from error
    if not styles:
        wanted = " or ".join(letters)
        raise TtsError(f"{path} holds no Kokoro voice of a name that begins with {wanted}")
    return styles


def _sound_end(sound: NDArray[np.float32]) -> float:
    """Seconds at which `sound` falls silent: the last phoneme's duration reaches far beyond."""
    width = RATE_HZ // 200
    steps = sound.size // width
    level = np.abs(sound[: steps * width]).reshape(steps, width).mean(axis=1)
    loud = np.flatnonzero(level > _SILENT_LEVEL)
    return float((loud[-1] + 1) * width / RATE_HZ) if loud.size else sound.size / RATE_HZ
