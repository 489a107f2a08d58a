"""Which synthesiser runs here, and which of its voices speaks."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path

from avatar_server.config import TtsSettings
from avatar_server.inference.available import tts_lacks
from avatar_server.inference.tts.contract import Synthesizer, TtsError
from avatar_server.inference.tts.kokoro import KokoroSynthesizer, load_styles
from avatar_server.inference.tts.piper import PiperSynthesizer
from avatar_server.models.errors import ModelError
from avatar_server.models.store import ModelStore

PIPER_VOICE = "piper-joe"
"""The model's catalogue name, and the name of its voice."""

_KOKORO_PER_PIPER = 8.0
"""Real-time factors' ratio, as measured (1.1 to 0.13): spares the fetching and loading of Kokoro
on a machine that is far too slow for it."""

_log = logging.getLogger(__name__)


def build_synthesizer(store: ModelStore, settings: TtsSettings, sessions: int) -> Synthesizer:
    """The synthesiser that `settings` ask for, loaded and warmed up; blocks while it fetches.

    `auto` takes Kokoro where its real-time factor, measured now, times `sessions` stays below
    `settings.max_rtf`; else, or where Kokoro cannot be had, piper speaks. Raises `TtsError`.
    """
    if why := tts_lacks(settings):
        raise TtsError(why)
    if settings.engine == "kokoro-torch":
        return _warmed(_kokoro_torch(store, settings))
    if settings.engine == "kokoro":
        return _warmed(_kokoro(store, settings))
    piper = _warmed(_piper(store, settings))
    if settings.engine == "auto":
        return _kokoro_if_fast(store, settings, sessions, piper.measure_rtf()) or piper
    return piper


def choose_voice(voices: Sequence[str], wanted: str, fallbacks: Iterable[str] = ()) -> str:
    """The first of `wanted` and `fallbacks` that is among `voices`, else the first voice.

    `voices` must not be empty: an avatar with another's voice is better than a mute one.
    """
    for name in (wanted, *fallbacks):
        if name in voices:
            return name
    return voices[0]


def _kokoro_if_fast(
    store: ModelStore, settings: TtsSettings, sessions: int, piper_rtf: float
) -> Synthesizer | None:
    bound = settings.max_rtf / sessions
    if piper_rtf * _KOKORO_PER_PIPER > 2 * bound:
        _log.info(
            "Piper takes %.2f s per second of speech here; Kokoro would take about %.0f "
            "times that, too long for %d session(s): piper speaks",
            piper_rtf,
            _KOKORO_PER_PIPER,
            sessions,
        )
        return None
    try:
        kokoro = _warmed(_kokoro(store, settings))
    except TtsError as error:
        _log.warning("Kokoro cannot be used, piper speaks instead: %s", error)
        return None
    rtf = kokoro.measure_rtf()
    if rtf < bound:
        return kokoro
    _log.info(
        "Kokoro takes %.2f s per second of speech here, too long for %d session(s): piper speaks",
        rtf,
        sessions,
    )
    return None


def _kokoro(store: ModelStore, settings: TtsSettings) -> KokoroSynthesizer:
    try:
        model, voices = store.path("kokoro-82m-int8"), store.path("kokoro-voices")
    except ModelError as error:
        raise TtsError(str(error)) from error
    return onnx_kokoro(model, voices, settings.threads)


def onnx_kokoro(model: Path, voices: Path, threads: int = 1) -> KokoroSynthesizer:
    """Kokoro on the CPU, from an `.onnx` file and what `load_styles` reads."""
    from avatar_server.inference.tts.kokoro_onnx import OnnxKokoro

    return KokoroSynthesizer(OnnxKokoro(model, threads=threads), load_styles(voices))


def torch_kokoro(folder: Path, device: str, threads: int = 1) -> KokoroSynthesizer:
    """Kokoro by PyTorch, from a folder with its configuration, weights and voices."""
    from avatar_server.inference.tts.kokoro_torch import TorchKokoro, load_torch_styles

    model = TorchKokoro(folder, device, threads=threads)
    return KokoroSynthesizer(model, load_torch_styles(folder))


def _kokoro_torch(store: ModelStore, settings: TtsSettings) -> KokoroSynthesizer:
    try:
        folder = store.path("kokoro-82m")
    except ModelError as error:
        raise TtsError(str(error)) from error
    return torch_kokoro(folder, settings.device, settings.threads)


def _piper(store: ModelStore, settings: TtsSettings) -> PiperSynthesizer:
    try:
        folder = store.path(PIPER_VOICE)
    except ModelError as error:
        raise TtsError(str(error)) from error
    return PiperSynthesizer(
        folder, PIPER_VOICE, threads=settings.threads, first_piece_ms=settings.first_piece_ms
    )


def _warmed(synthesizer: Synthesizer) -> Synthesizer:
    synthesizer.warm_up()
    return synthesizer
