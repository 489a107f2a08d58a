"""The catalogue, its licences page, and what configurations need."""

from __future__ import annotations

import hashlib
import io
import re
import tarfile
from pathlib import Path

import numpy as np
import pytest

from avatar_server.config import load_settings
from avatar_server.models import CATALOGUE, ModelStore, WrongContentError, default_models
from avatar_server.models.download import explain
from avatar_server.models.entries import VoicesSource, WheelSource
from avatar_server.models.unpack import stack_voices

ROOT = Path(__file__).resolve().parents[2]


def _licensed(section: str) -> set[str]:
    text = (ROOT / "docs" / "licences.md").read_text(encoding="utf-8")
    part = re.split(r"^## ", text.split(f"## {section}\n")[1], flags=re.M)[0]
    return {row.split("|")[1].strip(" `") for row in part.splitlines() if row.startswith("| ")}


def test_every_model_is_on_the_licences_page() -> None:
    assert set(CATALOGUE) <= _licensed("Models")


def test_every_package_is_on_the_licences_page() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    packages = {line.split("==")[0] for line in lines if line and not line.startswith("#")}
    assert len(packages) > 50
    assert packages - _licensed("Packages") == set()


def test_wheel_sources_are_pinned_and_their_sizes_add_up() -> None:
    for entry in CATALOGUE.values():
        for source in entry.sources:
            if not isinstance(source, WheelSource):
                continue
            assert all(re.fullmatch(r"[\w.-]+==[\d.]+", r) for r in source.requirements)
            assert all(re.fullmatch(r"[0-9a-f]{64}", f.sha256) for f in source.files)
            if source is entry.sources[0]:
                assert sum(f.size_bytes for f in source.files) == entry.size_bytes


def test_the_default_configuration_needs_only_published_packages() -> None:
    names = default_models(load_settings("cpu"))
    assert {"silero-vad", "smart-turn-v3.2", "whisper-tiny.en", "piper-joe"} <= set(names)
    assert {"kokoro-82m-int8", "kokoro-voices", "smollm2-135m-instruct"} <= set(names)
    assert "sentence-encoder" in names
    assert not any("hub" in s.label for n in names for s in CATALOGUE[n].sources)


def test_the_gpu_configuration_names_its_own_models() -> None:
    names = default_models(load_settings("h100"))
    assert {"whisper-large-v3-turbo", "qwen3.6-35b-a3b-fp8", "kokoro-82m"} <= set(names)
    assert "smollm2-135m-instruct" not in names


def test_an_endpoint_instead_of_the_language_model_needs_no_weights() -> None:
    llm = {"engine": "openai", "base_url": "http://127.0.0.1/v1", "model": "anything"}
    names = default_models(load_settings("cpu", {"llm": llm}))
    assert "anything" not in names
    assert "smollm2-135m-instruct" not in names


@pytest.mark.parametrize(
    ("output", "meaning"),
    [
        ("OSError: [Errno 28] No space left on device", "the disk is full"),
        ("npm error code ENOTFOUND", "cannot be reached"),
        ("npm error code E404", "does not have it"),
        ("", "failed silently"),
        ("ERROR: something else\n", "something else"),
    ],
)
def test_what_a_downloader_says_is_explained(output: str, meaning: str) -> None:
    assert meaning in explain("a model", output)


def _tarball(path: Path, tables: dict[str, bytes]) -> None:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in tables.items():
            info = tarfile.TarInfo(f"package/voices/{name}.bin")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))


def test_voice_tables_are_stacked_into_one_file(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    wanted = {v: rng.normal(size=(510, 1, 256)).astype("<f4") for v in ("jf_b", "af_a")}
    raw = {name: table.tobytes() for name, table in wanted.items()}
    _tarball(tmp_path / "v.tgz", raw)
    joined = raw["af_a"] + raw["jf_b"]
    source = VoicesSource(
        "voices@1", "voices", "voices.npz", 1, len(joined), hashlib.sha256(joined).hexdigest()
    )
    stack_voices(source, tmp_path / "v.tgz", tmp_path)
    with np.load(tmp_path / "voices.npz") as found:
        assert sorted(found.files) == ["af_a", "jf_b"]
        for name, table in wanted.items():
            np.testing.assert_array_equal(found[name], table)

    _tarball(tmp_path / "v.tgz", {**raw, "af_a": raw["jf_b"]})
    with pytest.raises(WrongContentError, match="another content"):
        stack_voices(source, tmp_path / "v.tgz", tmp_path)


def test_kokoros_voices_have_the_shape_that_the_model_takes(model_store: ModelStore) -> None:
    with np.load(model_store.path("kokoro-voices")) as voices:
        assert "jf_alpha" in voices.files
        assert {voices[name].shape for name in voices.files} == {(510, 1, 256)}
