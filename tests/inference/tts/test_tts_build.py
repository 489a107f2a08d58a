"""Which synthesiser is chosen, and the models' files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from avatar_server.config import TtsSettings
from avatar_server.inference.tts import TtsError, build, build_synthesizer, choose_voice
from avatar_server.inference.tts.kokoro import load_styles
from avatar_server.inference.tts.kokoro_alphabet import MAX_TOKENS, TOKEN_IDS, rewrite, split
from avatar_server.inference.tts.onnxgraph import GraphError, OnnxGraph
from avatar_server.inference.tts.phonemes import Phone
from avatar_server.inference.tts.piper import PiperConfig, PiperSynthesizer
from avatar_server.models import ModelStore


class FakeVoice:
    def __init__(self, name: str, rtf: float) -> None:
        self.name = name
        self.rtf = rtf

    def warm_up(self) -> None:
        pass

    def measure_rtf(self) -> float:
        return self.rtf


def chosen(
    monkeypatch: pytest.MonkeyPatch,
    piper_rtf: float,
    kokoro: float | TtsError,
    sessions: int = 1,
    engine: str = "auto",
) -> str:
    def make_kokoro(*_: object) -> FakeVoice:
        if isinstance(kokoro, TtsError):
            raise kokoro
        return FakeVoice("kokoro", kokoro)

    monkeypatch.setattr(build, "_piper", lambda *_: FakeVoice("piper", piper_rtf))
    monkeypatch.setattr(build, "_kokoro", make_kokoro)
    settings = TtsSettings.model_validate({"engine": engine, "max_rtf": 0.5})
    return build_synthesizer(ModelStore(), settings, sessions).name


def test_kokoro_speaks_where_the_machine_is_fast_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    assert chosen(monkeypatch, 0.03, 0.2) == "kokoro"


def test_piper_speaks_where_kokoro_is_too_slow_for_the_sessions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert chosen(monkeypatch, 0.03, 0.2, sessions=4) == "piper"


def test_kokoro_is_not_even_fetched_for_a_slow_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    assert chosen(monkeypatch, 0.2, 0.01) == "piper"


def test_piper_speaks_where_kokoro_cannot_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    assert chosen(monkeypatch, 0.03, TtsError("no network")) == "piper"


def test_a_setting_overrides_the_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    assert chosen(monkeypatch, 0.2, 9.0, engine="kokoro") == "kokoro"
    assert chosen(monkeypatch, 0.01, 0.01, engine="piper") == "piper"


def test_the_wanted_voice_is_chosen_then_a_fallback_then_any() -> None:
    assert choose_voice(["a", "b", "c"], "b", ["c"]) == "b"
    assert choose_voice(["a", "b", "c"], "x", ["y", "c"]) == "c"
    assert choose_voice(["a", "b"], "x") == "a"


def phones(symbols: str) -> list[Phone]:
    return [Phone(symbol, None if symbol in " .," else 0) for symbol in symbols]


def test_ipa_is_rewritten_to_kokoros_alphabet() -> None:
    def written(ipa: str, british: bool = False) -> str:
        return "".join(p.symbol for p in rewrite(phones(ipa), british))

    assert written("həlˈoʊ wˈɜːld") == "həlˈO wˈɜɹld"
    assert written("tʃˈɪɹ dʒˈʌst") == "ʧˈɪɹ ʤˈʌst"
    assert written("wˈɔːɾɚ") == "wˈɔTəɹ"
    assert written("həlˈəʊ", british=True) == "həlˈQ"


def test_long_phoneme_rows_are_split_at_the_best_place() -> None:
    row = phones(("na " * 60 + "na. ") * 4)
    parts = split(row)
    assert [p for part in parts for p in part] == row
    assert all(len(part) <= MAX_TOKENS for part in parts)
    assert all(part[-1].symbol == "." for part in parts[:-1])
    assert [len(part) for part in split(phones("a" * 1_200))] == [510, 510, 180]


def test_the_alphabet_has_no_number_twice() -> None:
    assert len(set(TOKEN_IDS.values())) == len(TOKEN_IDS)
    assert max(TOKEN_IDS.values()) < 178


def test_voices_are_read_from_a_folder_or_an_archive(tmp_path: Path) -> None:
    table = np.random.default_rng(1).standard_normal((510, 1, 256)).astype(np.float32)
    (tmp_path / "bin").mkdir()
    table.tofile(tmp_path / "bin" / "af_one.bin")
    table.tofile(tmp_path / "bin" / "zf_two.bin")
    np.savez(tmp_path / "voices.npz", af_one=table, zf_two=table)
    for source in (tmp_path / "bin", tmp_path / "voices.npz", tmp_path):
        styles = load_styles(source)
        assert list(styles) == ["af_one"]
        np.testing.assert_array_equal(styles["af_one"], table.reshape(510, 256))


def test_a_folder_without_voices_is_an_error_in_words(tmp_path: Path) -> None:
    with pytest.raises(TtsError, match="no Kokoro voices"):
        load_styles(tmp_path)


def test_files_that_are_no_voice_are_errors_in_words(tmp_path: Path) -> None:
    with pytest.raises(TtsError, match=r"\.onnx file, or a folder"):
        PiperSynthesizer(tmp_path, "x")
    config = tmp_path / "voice.onnx.json"
    (tmp_path / "voice.onnx").write_bytes(b"nothing")
    with pytest.raises(TtsError, match="cannot read"):
        PiperSynthesizer(tmp_path, "x")
    config.write_text("[]")
    with pytest.raises(TtsError, match="does not describe a piper voice"):
        PiperConfig.load(config)
    config.write_text(
        json.dumps(
            {
                "audio": {"sample_rate": 22_050},
                "espeak": {"voice": "en-us"},
                "phoneme_id_map": {"_": [0], "^": [1], "$": [2]},
            }
        )
    )
    with pytest.raises(TtsError, match="not an ONNX model"):
        PiperSynthesizer(tmp_path, "x")


def test_a_graph_is_cut_where_it_is_told(model_store: ModelStore, tmp_path: Path) -> None:
    (source,) = model_store.path("piper-joe").glob("*.onnx")
    graph = OnnxGraph.load(source)
    latent = graph.input_of("/dec/conv_pre/Conv")
    part = graph.extract([(latent, (1, "channels", "frames"))], graph.outputs)
    part.save(tmp_path / "part.onnx")
    assert part.outputs == graph.outputs
    assert not part.has_tensor(latent)
    assert (tmp_path / "part.onnx").stat().st_size < source.stat().st_size / 4
    with pytest.raises(GraphError, match="no tensor 'nowhere'"):
        graph.extract([], ["nowhere"])
    with pytest.raises(GraphError, match="no node"):
        graph.input_of("nowhere")
