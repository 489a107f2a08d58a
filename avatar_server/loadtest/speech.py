"""Utterances for synthetic viewers: made by the product's own TTS, or taken from a folder."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import wave
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import av
import numpy as np
from numpy.typing import NDArray

from avatar_server.inference.tts import Synthesizer
from avatar_server.loadtest.microphone import RATE_HZ
from avatar_server.loadtest.received import AUDIBLE

QUESTIONS = (
    "What is your name?",
    "What can you do for me?",
    "How many sessions fit on one machine?",
    "Do you need a graphics card to run?",
    "Tell me something about yourself.",
    "Which languages do you speak?",
    "Where do you come from?",
    "How do you hear what I say?",
    "Can I interrupt you while you talk?",
    "What is your favorite color?",
    "How fast do you answer?",
    "Do you remember what I said before?",
    "Can you tell me a short story?",
    "What should I eat for breakfast?",
    "Who made you?",
    "Is my voice recorded anywhere?",
    "What is the weather like on the moon?",
    "How does your face move when you speak?",
    "Can several people watch at the same time?",
    "Thank you, that was very helpful.",
    "What do you like to do on a rainy day?",
    "Could you explain that in simpler words?",
)
"""Things that people ask an avatar; about half are in the shipped avatars' facts."""


@dataclass(frozen=True, slots=True)
class Utterance:
    """Speech to say: `pcm` int16 mono 48 kHz, `text` where it is known.

    `voiced_start` and `voiced_end` are the offsets (s) of its first and last audible samples.
    """

    text: str
    pcm: NDArray[np.int16]
    voiced_start: float
    voiced_end: float


def utterance(text: str, pcm: NDArray[np.int16]) -> Utterance:
    """An utterance with its audible part found. Raises `ValueError` for silence."""
    loud = np.flatnonzero(np.abs(pcm.astype(np.int32)) >= AUDIBLE)
    if not loud.size:
        raise ValueError(f"no sound in the speech for {text!r}")
    return Utterance(text, pcm, float(loud[0]) / RATE_HZ, float(loud[-1] + 1) / RATE_HZ)


def spoken(synthesizer: Synthesizer, texts: Sequence[str], voice: str) -> list[Utterance]:
    """`texts` in the product's own voice."""
    out = []
    for text in texts:
        pieces = [piece.pcm for piece in synthesizer.synthesize(text, voice, 1.0, "en")]
        out.append(utterance(text, np.concatenate(pieces)))
    return out


def prepared(cache: Path) -> Path:
    """The folder with `QUESTIONS` as recordings in the bundled voice; made once, within seconds."""
    from avatar_server.config import TtsSettings
    from avatar_server.inference.tts import build_synthesizer
    from avatar_server.models import ModelStore

    text = "\n".join(QUESTIONS)
    folder = cache / f"speech-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    if folder.is_dir():
        return folder
    synthesizer = build_synthesizer(ModelStore(), TtsSettings(engine="piper"), 1)
    clips = spoken(synthesizer, QUESTIONS, synthesizer.voices()[0])
    cache.mkdir(parents=True, exist_ok=True)
    making = Path(tempfile.mkdtemp(dir=cache))
    for number, clip in enumerate(clips):
        (making / f"{number:02}.txt").write_text(clip.text + "\n", encoding="utf-8")
        with wave.open(str(making / f"{number:02}.wav"), "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(RATE_HZ)
            file.writeframes(clip.pcm.astype("<i2").tobytes())
    try:
        making.rename(folder)
    except OSError:  # another load test was quicker
        shutil.rmtree(making, ignore_errors=True)
    return folder


def recorded(folder: Path) -> list[Utterance]:
    """All audio files of `folder`, each with the text of a `.txt` file beside it, if any.

    Raises `ValueError` where the folder has none.
    """
    files = sorted(p for p in folder.iterdir() if p.suffix in {".wav", ".flac", ".ogg", ".mp3"})
    if not files:
        raise ValueError(f"no .wav, .flac, .ogg or .mp3 files in {folder}")
    out = []
    for file in files:
        text = file.with_suffix(".txt")
        out.append(utterance(text.read_text().strip() if text.exists() else "", read_audio(file)))
    return out


def read_audio(path: Path) -> NDArray[np.int16]:
    """The sound of a file as int16 mono 48 kHz."""
    with av.open(str(path)) as container:
        resampler = av.AudioResampler(format="s16", layout="mono", rate=RATE_HZ)
        pieces = [
            out.to_ndarray().reshape(-1)
            for frame in [*container.decode(audio=0), None]
            for out in resampler.resample(frame)
        ]
    return np.concatenate(pieces).astype(np.int16, copy=False)
