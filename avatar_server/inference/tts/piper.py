"""Piper voices (VITS, Kim et al. 2021): fast enough for any CPU.

The graph is cut between its flow and its HiFi-GAN decoder. The first half gives the latent frames
and the phonemes' durations for the whole clause; the decoder then runs over windows of frames, so
that the first sound leaves before the rest is decoded. Each window is decoded with
`_CONTEXT_FRAMES` more on both sides, the decoder's receptive field, and is therefore
equal to the same stretch of a decode in one go (to 1e-6).
"""

from __future__ import annotations

import itertools
import json
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from avatar_server.inference.memory import MemoryFigure, files_bytes
from avatar_server.inference.tts.contract import SpeechPiece, TtsError, check_speed
from avatar_server.inference.tts.espeak import Espeak
from avatar_server.inference.tts.onnxgraph import GraphError, OnnxGraph
from avatar_server.inference.tts.phonemes import PAUSES, Phone, phonemize
from avatar_server.inference.tts.runtime import derived, open_session, rtf_of
from avatar_server.inference.tts.shaping import pause_after, shape, silence
from avatar_server.inference.tts.timeline import TimedPhone, build_timeline

_HOP = 256
"""Samples per latent frame in all of piper's VITS configurations."""
_CONTEXT_FRAMES = 10
_NEXT_WINDOW_FRAMES = (48, 128, 160)
"""Frames of the second window and of later ones: each must be decoded, on a busy machine too,
before the sound of those before it has been played."""
_SMALLEST_REST_FRAMES = 40
"""A shorter rest joins the window before it: its context would cost more than itself."""
_LEAD_FRAMES = 3
"""Decoded before the first phoneme: its onset may be early."""
_TARGET_RMS = 0.1
"""Speech level (-20 dB of full scale) that every voice is brought to."""
_WARM_UP_TEXT = "The quick brown fox jumps over the lazy dog, and then it rests."
_EARLY_S = 0.012
"""By how much sounds come before the frames that the model's durations give them: measured, as
the shift at which mouth openness follows the sound's level best."""
_PAD, _BEGIN, _END = "_", "^", "$"


@dataclass(frozen=True, slots=True)
class PiperConfig:
    """What a voice's `.onnx.json` says."""

    sample_rate_hz: int
    espeak_voice: str
    phoneme_ids: dict[str, list[int]]
    noise_scale: float
    length_scale: float
    noise_w: float
    speakers: int

    @classmethod
    def load(cls, path: Path) -> PiperConfig:
        """Raises `TtsError` where `path` is not the description of a piper voice."""
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
            inference = values.get("inference", {})
            return cls(
                sample_rate_hz=int(values["audio"]["sample_rate"]),
                espeak_voice=str(values["espeak"]["voice"]),
                phoneme_ids={
                    str(k): [int(i) for i in v] for k, v in values["phoneme_id_map"].items()
                },
                noise_scale=float(inference.get("noise_scale", 0.667)),
                length_scale=float(inference.get("length_scale", 1.0)),
                noise_w=float(inference.get("noise_w", 0.8)),
                speakers=int(values.get("num_speakers", 1)),
            )
        except OSError as error:
            raise TtsError(
                f"cannot read the voice's description {path}: {error.strerror}"
            ) from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise TtsError(f"{path} does not describe a piper voice: {error!r}") from error


class PiperSynthesizer:
    """One piper voice.

    `model` is its `.onnx` file (beside it lies `<model>.json`) or a folder with one such pair;
    `voice` is the name it is known by.
    """

    def __init__(
        self, model: Path, voice: str, *, threads: int = 1, first_piece_ms: int = 300
    ) -> None:
        path = _model_file(model)
        self._voice = voice
        self._config = PiperConfig.load(path.with_name(path.name + ".json"))
        self._threads = threads
        self._espeak = Espeak(self._config.espeak_voice)
        self._first_piece_s = first_piece_ms / 1_000
        parts = derived(path, {"front": _front, "decoder": _decoder})
        self._front = open_session(parts["front"], threads)
        self._decoder = open_session(parts["decoder"], threads)
        self._latent = self._decoder.get_inputs()[0].name
        self._gain = 1.0
        self._memory = MemoryFigure("cpu", sum(files_bytes(part) for part in parts.values()))

    def memory(self) -> MemoryFigure:
        return self._memory

    @property
    def name(self) -> str:
        return f"piper ({self._voice})"

    def voices(self) -> list[str]:
        return [self._voice]

    def synthesize(
        self, text: str, voice: str, speed: float, language: str
    ) -> Iterator[SpeechPiece]:
        """See `Synthesizer`. The voice's own language is spoken, whatever `language` says."""
        if voice != self._voice:
            raise TtsError(f"there is no voice {voice!r}: this synthesiser has {self._voice!r}")
        check_speed(speed)
        return self._pieces(text, speed)

    def warm_up(self) -> None:
        """Run once and set the level from what is heard."""
        sound = np.concatenate([p.pcm for p in self._pieces(_WARM_UP_TEXT, 1.0)]) / 32_768
        loud = sound[np.abs(sound) > 0.01]
        if loud.size and self._gain == 1.0:
            self._gain = float(np.clip(_TARGET_RMS / np.sqrt(np.mean(loud**2)), 0.25, 4.0))

    def measure_rtf(self) -> float:
        return rtf_of(self._pieces(_WARM_UP_TEXT, 1.0), self._threads)

    def _pieces(self, text: str, speed: float) -> Iterator[SpeechPiece]:
        spoken = phonemize(text, self._espeak)
        phones = spoken.phones
        if not phones:
            yield silence(text, pause_after(text))
            return
        if phones[-1].symbol not in PAUSES:
            # Voices were trained on whole sentences; without a mark the last sound is clipped.
            phones = [*phones, Phone(",", None)]
        latent, timed = self._run_front(phones, speed)
        rate = self._config.sample_rate_hz
        frames = latent.shape[2]
        timeline = build_timeline(spoken.words, timed, frames * _HOP / rate)
        skipped = max(0, int(timeline.start * rate / _HOP) - _LEAD_FRAMES)
        first = skipped + _LEAD_FRAMES + max(1, round(self._first_piece_s * rate / _HOP))
        yield from shape(
            self._decode(latent, skipped, first),
            rate,
            timeline,
            skipped_s=skipped * _HOP / rate,
            total_s=frames * _HOP / rate,
            pause_s=pause_after(text),
            gain=self._gain,
        )

    def _run_front(
        self, phones: list[Phone], speed: float
    ) -> tuple[NDArray[np.float32], list[TimedPhone]]:
        """Latent frames, float32 of shape (1, channels, frames), and the phones' times."""
        pad = self._config.phoneme_ids[_PAD]
        ids = [*self._config.phoneme_ids[_BEGIN], *pad]
        owners: list[int | None] = [None] * len(ids)
        known: list[Phone] = []
        for phone in phones:
            for symbol in unicodedata.normalize("NFD", phone.symbol):
                if symbol_ids := self._config.phoneme_ids.get(symbol):
                    known.append(Phone(symbol, phone.word))
                    ids += [*symbol_ids, *pad]
                    owners += [len(known) - 1] * len(symbol_ids) + [None] * len(pad)
        ids += self._config.phoneme_ids[_END]
        owners += [None] * (len(ids) - len(owners))
        config = self._config
        feed: dict[str, NDArray[Any]] = {
            "input": np.array([ids], np.int64),
            "input_lengths": np.array([len(ids)], np.int64),
            "scales": np.array(
                [config.noise_scale, config.length_scale / speed, config.noise_w], np.float32
            ),
        }
        if config.speakers > 1:
            feed["sid"] = np.zeros(1, np.int64)
        latent, durations = self._front.run(None, feed)
        ends = np.cumsum(durations.ravel()) * (_HOP / config.sample_rate_hz)
        return latent, _timed(known, owners, ends.tolist())

    def _decode(
        self, latent: NDArray[np.float32], start: int, first_end: int
    ) -> Iterator[NDArray[np.float32]]:
        frames = latent.shape[2]
        end = min(first_end, frames)
        smallest_rest = _CONTEXT_FRAMES
        sizes = iter(_NEXT_WINDOW_FRAMES)
        size = _NEXT_WINDOW_FRAMES[-1]
        while start < frames:
            if frames - end <= smallest_rest:
                end = frames
            smallest_rest = _SMALLEST_REST_FRAMES
            left, right = max(0, start - _CONTEXT_FRAMES), min(frames, end + _CONTEXT_FRAMES)
            sound = self._decoder.run(None, {self._latent: latent[:, :, left:right]})[0].ravel()
            yield sound[(start - left) * _HOP : (end - left) * _HOP]
            size = next(sizes, size)
            start, end = end, min(end + size, frames)


def _front(graph: OnnxGraph) -> OnnxGraph:
    """Text to latent frames, with durations as a second output."""
    durations = graph.tensors_of("Ceil")
    if len(durations) != 1:
        raise GraphError("not a piper voice: its graph does not round durations in one place")
    return graph.extract([], [_decoder_input(graph), durations[0]])


def _decoder(graph: OnnxGraph) -> OnnxGraph:
    """Latent frames to sound."""
    return graph.extract([(_decoder_input(graph), (1, "channels", "frames"))], graph.outputs)


def _decoder_input(graph: OnnxGraph) -> str:
    return graph.input_of("/dec/conv_pre/Conv")


def _timed(phones: list[Phone], owners: list[int | None], ends: list[float]) -> list[TimedPhone]:
    """Times of the phones; what a pad takes goes to the phone after it.

    The row begins where the pads before the first phone end.
    """
    last_end = [0.0] * len(phones)
    first_start: float | None = None
    previous_end = 0.0
    for owner, end in zip(owners, ends, strict=True):
        if owner is not None:
            if first_start is None:
                first_start = previous_end
            last_end[owner] = end
        previous_end = end
    borders = [max(0.0, at - _EARLY_S) for at in (first_start or 0.0, *last_end)]
    return [
        TimedPhone(phone, start, end)
        for phone, (start, end) in zip(phones, itertools.pairwise(borders), strict=True)
    ]


def _model_file(model: Path) -> Path:
    if model.is_file():
        return model
    found = sorted(model.glob("*.onnx")) if model.is_dir() else []
    if len(found) != 1:
        raise TtsError(f"{model} must be a piper voice's .onnx file, or a folder with one")
    return found[0]
