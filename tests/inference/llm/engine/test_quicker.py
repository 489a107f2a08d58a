"""The copy of a model whose weights are quickest on a CPU."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter, quants

from avatar_server.inference.llm.engine import quicker
from avatar_server.inference.llm.engine.quicker import quick_copy

Q4_1, Q8_0 = GGMLQuantizationType.Q4_1, GGMLQuantizationType.Q8_0
WEIGHTS = np.random.default_rng(7).normal(0, 0.1, (16, 64)).astype(np.float32)
NORM = np.linspace(0.5, 1.5, 64, dtype=np.float32)


def model(path: Path, kind: GGMLQuantizationType = Q4_1) -> Path:
    writer = GGUFWriter(path, "llama")
    writer.add_context_length(128)
    writer.add_token_list(["<s>", "é", "\u3042"])
    writer.add_array("tokenizer.ggml.merges", ["a b", "b c"])
    writer.add_tensor("blk.0.w", quants.quantize(WEIGHTS, kind), raw_dtype=kind)
    writer.add_tensor("blk.0.norm", NORM)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_the_copy_says_the_same_in_the_quick_form(tmp_path: Path) -> None:
    source = model(tmp_path / "small.gguf")
    copy = quick_copy(source, tmp_path / "cache")
    before, after = GGUFReader(source), GGUFReader(copy)
    assert copy != source
    kept = {name for name in before.fields if not name.startswith("GGUF.")}
    assert kept == {name for name in after.fields if not name.startswith("GGUF.")}
    for name in kept:
        assert after.fields[name].contents() == before.fields[name].contents()
    matrix, norm = after.tensors
    assert matrix.tensor_type == Q8_0
    exact = quants.dequantize(before.tensors[0].data, Q4_1)
    # Half a step of the finer grid: a 127th of a block's largest weight, and its 16-bit scale.
    bound = 0.51 / 127 * np.abs(exact).max()
    assert np.abs(quants.dequantize(matrix.data, Q8_0) - exact).max() < bound
    assert np.array_equal(norm.data, NORM)


def test_it_is_made_once_and_again_for_another_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = model(tmp_path / "small.gguf")
    first = quick_copy(source, tmp_path / "cache")
    written = first.stat().st_mtime_ns
    assert quick_copy(source, tmp_path / "cache").stat().st_mtime_ns == written
    monkeypatch.setattr(quicker, "EDITION", quicker.EDITION + 1)
    assert quick_copy(source, tmp_path / "cache") != first


@pytest.mark.parametrize("kind", [Q8_0, GGMLQuantizationType.F16])
def test_a_model_that_is_quick_already_is_used_itself(
    tmp_path: Path, kind: GGMLQuantizationType
) -> None:
    source = model(tmp_path / "small.gguf", kind)
    assert quick_copy(source, tmp_path / "cache") == source
    assert not (tmp_path / "cache").exists()


def test_a_large_model_is_used_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = model(tmp_path / "small.gguf")
    monkeypatch.setattr(quicker, "LARGEST_BYTES", source.stat().st_size - 1)
    assert quick_copy(source, tmp_path / "cache") == source


def test_where_no_copy_can_be_made_the_model_is_used_itself(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = model(tmp_path / "small.gguf")
    (tmp_path / "occupied").write_text("a file", encoding="utf-8")
    assert quick_copy(source, tmp_path / "occupied") == source
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(source.read_bytes()[:200])
    assert quick_copy(broken, tmp_path / "cache") == broken
    assert "no quicker copy" in caplog.text
    assert not list((tmp_path / "cache").rglob("*.partial"))
    assert quick_copy(tmp_path / "missing.gguf", tmp_path / "cache") == tmp_path / "missing.gguf"
