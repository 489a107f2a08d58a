"""Text to IPA by the espeak-ng library, in this process (no program is started per clause).

espeak-ng is GPL-3.0-or-later; it is loaded at run time from the `espeakng-loader` package.
"""

from __future__ import annotations

import ctypes
import re
import threading
from collections import OrderedDict

import espeakng_loader

from avatar_server.inference.tts.contract import TtsError

_AUDIO_OUTPUT_SYNCHRONOUS = 2
_INITIALIZE_DONT_EXIT = 0x8000
_CHARS_UTF8 = 1
_PHONEMES_IPA = 0x02
_CACHED_WORDS = 4_096

_UNREADABLE = re.compile(
    "[\0\u1100-\u11ff\u2e80-\ud7ff\uf900-\ufaff\ufe30-\ufe4f\uff00-\uffef\U00020000-\U0003ffff]"
)
"""East Asian scripts: espeak-ng names each of their letters ("Japanese letter") in English."""

_library_lock = threading.Lock()
"""The library keeps its voice and its text in process-wide variables."""


class Espeak:
    """IPA, with stress marks, for text in one language.

    `voice` is espeak-ng's name of a language, e.g. `en-us`. Raises `TtsError` where the library
    or the language is missing.
    """

    def __init__(self, voice: str) -> None:
        self._voice = voice.encode()
        self._cache: OrderedDict[str, str] = OrderedDict()
        try:
            self._library = ctypes.CDLL(espeakng_loader.get_library_path())
            data_path = espeakng_loader.get_data_path()
        except (OSError, RuntimeError) as error:
            raise TtsError(
                f"espeak-ng cannot be loaded ({error}): reinstall the package espeakng-loader"
            ) from error
        self._to_phonemes = self._library.espeak_TextToPhonemes
        self._to_phonemes.restype = ctypes.c_char_p
        self._to_phonemes.argtypes = [ctypes.POINTER(ctypes.c_char_p), ctypes.c_int, ctypes.c_int]
        with _library_lock:
            rate = self._library.espeak_Initialize(
                _AUDIO_OUTPUT_SYNCHRONOUS, 0, data_path.encode(), _INITIALIZE_DONT_EXIT
            )
            if rate <= 0:
                raise TtsError(f"espeak-ng finds no data in {data_path}")
            self._select_voice()

    def phonemes(self, text: str) -> str:
        """IPA of `text`; words (as espeak-ng joins them) are separated by single blanks."""
        parts: list[str] = []
        rest = ctypes.c_char_p(_UNREADABLE.sub(" ", text).encode(errors="replace"))
        with _library_lock:
            self._select_voice()
            while rest.value is not None:
                found = self._to_phonemes(ctypes.byref(rest), _CHARS_UTF8, _PHONEMES_IPA)
                if found:
                    parts.extend(_without_language_switches(found.decode(errors="replace")).split())
        return " ".join(parts)

    def word(self, text: str) -> str:
        """IPA of one word by itself; remembered."""
        known = self._cache.get(text)
        if known is None:
            known = self.phonemes(text)
            self._cache[text] = known
            if len(self._cache) > _CACHED_WORDS:
                self._cache.popitem(last=False)
        else:
            self._cache.move_to_end(text)
        return known

    def _select_voice(self) -> None:
        if self._library.espeak_SetVoiceByName(self._voice) != 0:
            raise TtsError(f"espeak-ng has no language {self._voice.decode()!r}")


def _without_language_switches(ipa: str) -> str:
    """espeak-ng marks words it takes to be foreign: `(fr)bɔ̃ʒuʁ(en-us)`."""
    while "(" in ipa and ")" in ipa[ipa.index("(") :]:
        start = ipa.index("(")
        ipa = ipa[:start] + ipa[ipa.index(")", start) + 1 :]
    return ipa
