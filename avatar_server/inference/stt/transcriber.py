"""Speech to text: Whisper on CTranslate2, without the 30 seconds that it usually reads.

The encoder takes the time of its window, not of the speech. Cutting the window alone makes the
decoder say everything several times: it knows the end by the silence that follows in the
encoder's output. So only the sound is encoded, and what follows is taken from an encoding of
silence that was made once (`Encoder`). The words are those of the full window; on six sentences
of read speech the CPU time is a quarter of it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import ctranslate2
import numpy as np
from numpy.typing import NDArray

from avatar_server.avatar.vad import FRAME_MS, Vad
from avatar_server.config import SttSettings
from avatar_server.inference.memory import MemoryFigure, MemoryMeter, files_bytes
from avatar_server.inference.stt.cuda import load_cublas
from avatar_server.inference.stt.encoder import Encoder
from avatar_server.inference.stt.mel import SAMPLE_RATE_HZ
from avatar_server.inference.stt.plausible import is_speech, repeats_itself, without_loop
from avatar_server.inference.stt.tokens import WhisperTokens
from avatar_server.models import ModelStore

_MAX_PIECE_S = 28.0
_MIN_VOICED_MS = 64
_VOICED = 0.35
_MAX_TOKENS = 220


@dataclass(frozen=True, slots=True)
class Transcription:
    """What was said. `text` is empty where nobody spoke."""

    text: str
    language: str
    no_speech_probability: float
    mean_logprob: float


@dataclass(frozen=True, slots=True)
class _Decoded:
    ids: list[int]
    text: str
    no_speech_probability: float
    mean_logprob: float


class Transcriber:
    """A loaded Whisper model. Threads may share it; each call takes `settings.threads`."""

    def __init__(self, model_dir: Path, settings: SttSettings, vad: Vad | None = None) -> None:
        """`model_dir` holds a CTranslate2 Whisper model with its `tokenizer.json`.

        Raises `ValueError` where it does not, or where the device cannot be used.
        """
        if not (model_dir / "model.bin").is_file():
            raise ValueError(f"{model_dir} holds no CTranslate2 model (model.bin)")
        meter = MemoryMeter(settings.device)
        if settings.device == "cuda":
            load_cublas()
        try:
            self._model = ctranslate2.models.Whisper(
                str(model_dir),
                device=settings.device,
                compute_type=settings.compute_type,
                inter_threads=1,
                intra_threads=settings.threads,
            )
        except (RuntimeError, ValueError) as error:
            hint = "; set stt.device: cpu" if settings.device == "cuda" else ""
            raise ValueError(
                f"cannot load {model_dir} on {settings.device}: {error}{hint}"
            ) from error
        self._memory = meter.figure(files_bytes(model_dir, "model.bin"))
        self._tokens = WhisperTokens(model_dir / "tokenizer.json")
        self._encoder = Encoder(self._model)
        self._multilingual = bool(self._model.is_multilingual)
        self._language = self._checked(settings.language)
        # A GPU reads the whole window in a few milliseconds: nothing is to be saved.
        self._cut = settings.device == "cpu"
        self._vad = vad or Vad(ModelStore().path("silero-vad"))

    def transcribe(self, pcm: NDArray[np.int16], language: str | None = None) -> Transcription:
        """Words in `pcm` (16 kHz mono).

        `language` is a two-letter code and wins over the setting; without either, a multilingual
        model finds out. Raises `ValueError` for a language the model does not know.
        """
        if pcm.ndim != 1:
            raise ValueError(f"sound must be mono samples, not of shape {pcm.shape}")
        language = self._checked(language) or self._language
        voiced = self._vad.probabilities(pcm) >= _VOICED
        voiced_ms = int(voiced.sum()) * FRAME_MS
        if voiced_ms < _MIN_VOICED_MS:
            return Transcription("", language or "en", 1.0, 0.0)
        pieces: list[_Decoded] = []
        for piece in split(pcm):
            samples = piece.astype(np.float32) / 32768.0
            if language is None and self._multilingual:
                language = self._find_language(samples)
            pieces.append(
                self._decode(
                    samples,
                    language if self._multilingual else None,
                    voiced_ms / 1_000 * len(piece) / len(pcm),
                )
            )
        count = sum(len(piece.ids) + 1 for piece in pieces)
        mean_logprob = sum(p.mean_logprob * (len(p.ids) + 1) for p in pieces) / count
        no_speech = min(piece.no_speech_probability for piece in pieces)
        text = " ".join(
            piece.text
            for piece in pieces
            if is_speech(
                piece.text, piece.no_speech_probability, piece.mean_logprob, voiced_ms / 1_000
            )
        )
        return Transcription(text, language or "en", no_speech, mean_logprob)

    def memory(self) -> MemoryFigure:
        """What the model holds."""
        return self._memory

    def warm_up(self) -> None:
        """Run once, so that the first utterance is not slower than the others."""
        silence = np.zeros(SAMPLE_RATE_HZ, dtype=np.float32)
        self._run(silence, "en" if self._multilingual else None, cut=self._cut)

    def _decode(
        self, samples: NDArray[np.float32], language: str | None, voiced_s: float
    ) -> _Decoded:
        decoded = self._run(samples, language, cut=self._cut)
        text = without_loop(decoded.text, voiced_s)
        if text != decoded.text:
            # The words are there, several times: reading the whole window would cost a second.
            return replace(decoded, text=text)
        if self._cut and repeats_itself(decoded.ids, decoded.text):
            decoded = self._run(samples, language, cut=False)
        if repeats_itself(decoded.ids, decoded.text):
            decoded = self._run(samples, language, cut=False, no_repeat_ngram_size=3)
        return decoded

    def _run(
        self,
        samples: NDArray[np.float32],
        language: str | None,
        cut: bool,
        no_repeat_ngram_size: int = 0,
    ) -> _Decoded:
        seconds = len(samples) / SAMPLE_RATE_HZ
        result = self._model.generate(
            self._encoder(samples, cut),
            [self._tokens.prompt(language)],
            beam_size=1,
            # Nobody says more; a loop ends here instead of at the model's 448 tokens.
            max_length=min(_MAX_TOKENS, 20 + round(10 * seconds)),
            no_repeat_ngram_size=no_repeat_ngram_size,
            return_scores=True,
            return_no_speech_prob=True,
        )[0]
        ids = list(result.sequences_ids[0])
        # The score is the mean over the text; Whisper's own counts the end token, too.
        mean_logprob = result.scores[0] * len(ids) / (len(ids) + 1)
        return _Decoded(ids, self._tokens.decode(ids), result.no_speech_prob, mean_logprob)

    def _find_language(self, samples: NDArray[np.float32]) -> str:
        found = self._model.detect_language(self._encoder(samples, self._cut))
        token, _ = found[0][0]
        return str(token).strip("<|>")

    def _checked(self, language: str | None) -> str | None:
        if language is None:
            return None
        if not self._multilingual:
            if language != "en":
                raise ValueError(
                    f"this model knows English only, not {language!r}: set stt.model to a "
                    "multilingual one, e.g. whisper-base"
                )
        elif not self._tokens.has_language(language):
            raise ValueError(f"the model does not know the language {language!r}")
        return language


def split(pcm: NDArray[np.int16], max_s: float = _MAX_PIECE_S) -> list[NDArray[np.int16]]:
    """`pcm` (16 kHz) in pieces of at most `max_s`, cut where it is quietest near the end."""
    limit = round(max_s * SAMPLE_RATE_HZ)
    step = SAMPLE_RATE_HZ // 10
    pieces = []
    while len(pcm) > limit:
        search = pcm[limit // 2 : limit].astype(np.float32)
        blocks = np.square(search[: len(search) // step * step].reshape(-1, step)).mean(axis=1)
        cut = limit // 2 + int(blocks.argmin()) * step + step // 2
        pieces.append(pcm[:cut])
        pcm = pcm[cut:]
    pieces.append(pcm)
    return pieces
