"""What an avatar says in a preview, in its own voice."""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from avatar_server.avatars import AvatarSpec
from avatar_server.config import TtsSettings
from avatar_server.inference.text import ClauseCutter
from avatar_server.inference.text.speakable import speakable
from avatar_server.inference.tts import Synthesizer, TtsError, build_synthesizer, choose_voice
from avatar_server.inference.tts.contract import SAMPLE_RATE_HZ
from avatar_server.inference.tts.pitch import synthesize_pitched
from avatar_server.inference.tts.whole import WholeClause, whole_clause
from renderers.sound import recorded

_KOKORO = re.compile(r"[ab][fm]_\w+")
"""How Kokoro's voices are named: accent, sex, name."""


class Said(NamedTuple):
    """A clause as written, as said, and when its first sample sounds (s)."""

    start: float
    clause: WholeClause
    text: str


class Speech(NamedTuple):
    """What is said, as sound (int16, mono, 48 kHz) and clause by clause."""

    text: str
    voice: str
    pcm: NDArray[np.int16]
    clauses: list[Said]

    @property
    def seconds(self) -> float:
        return len(self.pcm) / SAMPLE_RATE_HZ

    def sound(self, first: int, count: int) -> NDArray[np.int16]:
        """`count` samples from sample `first` on; silence before and after the speech."""
        return recorded(self.pcm)(first, count)


def speak(
    text: str, spec: AvatarSpec, settings: TtsSettings, console: Console, *, lead_s: float
) -> Speech:
    """`text` in the voice of `spec`, after `lead_s` of silence. Raises `TtsError`, `ModelError`.

    Unlike a session, a preview has time: an avatar with a Kokoro voice speaks with it wherever it
    can be had.
    """
    synthesizer = _synthesizer(spec, settings, console)
    voice = choose_voice(synthesizer.voices(), spec.voice.name, spec.voice.fallbacks)
    if voice != spec.voice.name:
        console.print(f"The voice {spec.voice.name} cannot be had here: {voice} speaks.")
    cutter = ClauseCutter()
    clauses: list[Said] = []
    start = lead_s
    parts = [np.zeros(round(lead_s * SAMPLE_RATE_HZ), np.int16)]
    for written in [*cutter.feed(text), *cutter.flush()]:
        spoken = speakable(written.strip(), spec.language).strip()
        if spoken:
            pieces = synthesize_pitched(
                synthesizer,
                spoken,
                voice,
                spec.voice.speed,
                spec.language,
                spec.voice.pitch.get(voice, 1.0),
            )
            clause = whole_clause(pieces)
            clauses.append(Said(start, clause, written.strip()))
            parts.append(clause.pcm)
            start += clause.seconds
    if not clauses:
        raise TtsError("There is nothing in that text that can be said aloud.")
    return Speech(text, voice, np.concatenate(parts), clauses)


def _synthesizer(spec: AvatarSpec, settings: TtsSettings, console: Console) -> Synthesizer:
    from avatar_server.models import ModelStore, RichProgress

    engine = settings.engine
    if engine == "auto":
        engine = "kokoro" if _KOKORO.fullmatch(spec.voice.name) else "piper"
    wanted = {"piper": ["piper-joe"], "kokoro": ["kokoro-82m-int8", "kokoro-voices"]}
    store = ModelStore()
    if missing := store.missing(wanted.get(engine, [])):
        with RichProgress(console) as progress:
            store.ensure([entry.name for entry in missing], progress)
    return build_synthesizer(store, settings.model_copy(update={"engine": engine}), 1)
