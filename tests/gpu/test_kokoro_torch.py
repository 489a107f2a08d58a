"""Kokoro by PyTorch through the product's speech interface, on the CPU, with random weights."""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from avatar_server.config import TtsSettings
from avatar_server.inference.tts import SAMPLE_RATE_HZ, SpeechPiece, TtsError, build_synthesizer
from avatar_server.inference.tts.build import torch_kokoro
from avatar_server.models import ModelStore
from renderers.contract import Viseme

TEXT = "Hello there, my friend. How are you?"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tiny_kokoro import make_kokoro

    return make_kokoro(tmp_path_factory.mktemp("kokoro") / "tiny")


@pytest.fixture(scope="module")
def kokoro(folder: Path) -> Any:
    made = torch_kokoro(folder, "cpu")
    made.warm_up()
    return made


def speak(kokoro: Any, text: str = TEXT, voice: str = "af_tiny", speed: float = 1.0) -> SpeechPiece:
    (piece,) = kokoro.synthesize(text, voice, speed, "en")
    return piece


def test_the_language_packs_are_not_loaded(kokoro: Any) -> None:
    assert "kokoro.model" in sys.modules
    assert not {"misaki", "spacy", "kokoro.pipeline"} & set(sys.modules)


def test_english_voices_are_found(kokoro: Any) -> None:
    assert kokoro.voices() == ["af_tiny", "bm_tiny"]
    with pytest.raises(TtsError, match="no voice 'zf_other'"):
        kokoro.synthesize(TEXT, "zf_other", 1.0, "en")


@pytest.mark.parametrize("voice", ["af_tiny", "bm_tiny"])
def test_a_clause_has_sound_words_and_visemes_that_fit_together(kokoro: Any, voice: str) -> None:
    piece = speak(kokoro, voice=voice)
    seconds = piece.pcm.size / SAMPLE_RATE_HZ
    assert piece.last
    assert piece.pcm.dtype == np.int16
    assert np.abs(piece.pcm).max() > 100
    assert [word.text for word in piece.words] == TEXT.split()
    times = [time for word in piece.words for time in (word.start, word.end)]
    assert times == sorted(times)
    assert times[-1] <= seconds
    assert piece.visemes[0].start == 0.0
    assert piece.visemes[-1].end == pytest.approx(seconds, abs=0.001)
    for before, after in itertools.pairwise(piece.visemes):
        assert before.end == pytest.approx(after.start)
    shapes = {span.viseme for span in piece.visemes}
    assert len(shapes) > 4
    # "my", "friend": lips closed for m; teeth on the lip for f.
    assert {int(Viseme.PP), int(Viseme.FF)} <= shapes


def test_the_models_durations_decide_how_long_a_clause_is(kokoro: Any, folder: Path) -> None:
    model = kokoro._model
    tokens = [0, 50, 83, 54, 156, 31, 0]
    sound, durations = model.speak(tokens, kokoro._styles["af_tiny"][5], 1.0)
    assert durations.shape == (len(tokens),)
    assert durations.min() >= 1
    assert sound.shape == (int(durations.sum()) * 600,)
    assert sound.dtype == np.float32
    _, quicker = model.speak(tokens, kokoro._styles["af_tiny"][5], 2.0)
    assert quicker.sum() < durations.sum()


def test_faster_speech_is_shorter(kokoro: Any) -> None:
    assert speak(kokoro, speed=2.0).pcm.size < 0.8 * speak(kokoro).pcm.size


def test_its_speed_and_memory_are_told(kokoro: Any, folder: Path) -> None:
    assert kokoro.name == "kokoro-82m (cpu)"
    assert 0 < kokoro.measure_rtf() < 50
    size = (folder / "kokoro-tiny.pth").stat().st_size
    assert (kokoro.memory().device, kokoro.memory().weights) == ("cpu", size)


def test_without_a_gpu_the_setting_says_what_to_do(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    monkeypatch.setattr(ModelStore, "path", lambda *_: folder)
    settings = TtsSettings(engine="kokoro-torch", device="cuda")
    with pytest.raises(TtsError, match="PyTorch finds no GPU"):
        build_synthesizer(ModelStore(), settings, 1)
    on_cpu = settings.model_copy(update={"device": "cpu"})
    assert build_synthesizer(ModelStore(), on_cpu, 1).name == "kokoro-82m (cpu)"


def test_files_that_are_no_kokoro_are_errors_in_words(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(TtsError, match="holds no Kokoro"):
        torch_kokoro(tmp_path, "cpu")
    config = json.loads((folder / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"vocab": {"a": 1}}))
    (tmp_path / "x.pth").write_bytes(b"no weights")
    with pytest.raises(TtsError, match="another alphabet"):
        torch_kokoro(tmp_path, "cpu")
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(TtsError, match="cannot load Kokoro"):
        torch_kokoro(tmp_path, "cpu")
