"""Python, packages, codecs, models, and limits of the operating system."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import resource
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement

from avatar_server.avatars import AvatarError, AvatarSpec, find_avatars
from avatar_server.config import AudioSettings, Settings
from avatar_server.doctor.check import Check, failed, passed
from avatar_server.inference.available import lacking
from avatar_server.models import ModelError, ModelStore, default_models
from avatar_server.paths import cache_dir, data_dir

OPEN_FILES = 4_096
"""Sockets, pipes and models of a gateway with some sessions of 16 viewers."""
ROOM_BYTES = 1 << 30
"""For models that are still to be fetched, drawn art and logs."""
EARLIEST = 1_767_225_600
"""1 January 2026: a clock before it is wrong, and with it TURN credentials and certificates."""


def python() -> Iterator[Check]:
    """That every package the server needs is there, in a version that will do."""
    version = platform.python_version()
    yield passed("python", f"{version}, {platform.system()} {platform.machine()}")
    wrong = list(_wrong_packages())
    if wrong:
        yield failed(
            "packages",
            "; ".join(wrong),
            "Install them as the README says: pip install -e . -c constraints.txt",
        )
    else:
        yield passed("packages", "everything the server needs")


def _wrong_packages() -> Iterator[str]:
    for text in importlib.metadata.requires("avatar-server") or []:
        requirement = Requirement(text)
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        try:
            version = importlib.metadata.version(requirement.name)
        except importlib.metadata.PackageNotFoundError:
            yield f"{requirement.name} is missing"
            continue
        if not requirement.specifier.contains(version, prereleases=True):
            yield f"{requirement.name} is {version}, wanted {requirement.specifier}"


def codecs() -> Iterator[Check]:
    """Encoders, each tried by opening it."""
    from avatar_server.avatar.encoder.base import EncoderError
    from avatar_server.avatar.encoder.libav import Coding, open_encoder
    from avatar_server.avatar.encoder.opus import OpusEncoder

    for name, what, attempt in (
        ("libx264", "H.264", lambda: open_encoder(Coding("libx264", {}, 30), 320, 240)),
        ("libvpx", "VP8", lambda: open_encoder(Coding("libvpx", {}, 30), 320, 240)),
        ("libopus", "Opus", lambda: OpusEncoder(AudioSettings())),
    ):
        try:
            attempt()
        except EncoderError as error:
            yield failed(
                f"codec {name}",
                f"cannot be opened: {error}",
                f"Reinstall the package 'av' from its published wheel, which carries {what}.",
            )
        else:
            yield passed(f"codec {name}", f"{what} can be encoded")


def models(settings: Settings) -> Iterator[Check]:
    """Whether the configured models are here and unchanged; reads every file."""
    for why in lacking(settings):
        yield failed("engine", why.partition(",")[0], why)
    store = ModelStore()
    try:
        names = [name for name in default_models(settings) if not Path(name).expanduser().exists()]
        missing = {entry.name for entry in store.missing(names)}
    except ModelError as error:
        yield failed("models", str(error), "Name a known model: avatar-server models list.")
        return
    for name in names:
        if name in missing:
            yield failed(
                f"model {name}", "not here yet", f"Fetch it: avatar-server models fetch {name}"
            )
        elif not store.verify(name):
            yield failed(
                f"model {name}",
                "its files have changed since they were fetched",
                f"Remove {cache_dir() / 'models'}/{name}-* and fetch it again: "
                f"avatar-server models fetch {name}",
            )
        else:
            yield passed(f"model {name}", "here, sha256 as fetched")


def avatars(settings: Settings) -> Iterator[Check]:
    """Whether avatars can be read."""
    try:
        found = find_avatars(settings.avatar_dirs)
    except AvatarError as error:
        yield failed("avatars", "one cannot be used", str(error))
        return
    if found:
        yield passed("avatars", ", ".join(found))
    else:
        yield failed("avatars", "none", "Name a folder that holds some in avatar_dirs.")
    for spec in found.values():
        if spec.renderer == "neural":
            yield _lip_sync(spec, settings)


def _lip_sync(spec: AvatarSpec, settings: Settings) -> Check:
    from avatar_server.inference.faces.networks import load_network
    from renderers.neural import Base, NeuralError, load_manifest

    name, video = f"avatar {spec.name}", settings.media.video
    try:
        manifest = load_manifest(spec.folder)
        Base(manifest, (video.width, video.height), cache_dir() / "art")
        network = load_network(manifest, settings.faces)
    except NeuralError as error:
        return failed(name, "its face cannot be drawn", str(error))
    return passed(name, f"lip-sync network of {network.size} px, on {network.device}")


def files() -> Iterator[Check]:
    """Folders that are written to, the room there, and how many files may be open."""
    for name, folder in (("cache folder", cache_dir()), ("data folder", data_dir())):
        there = folder
        while not there.exists():
            there = there.parent
        free = shutil.disk_usage(there).free
        variable = "AVATAR_SERVER_CACHE" if name.startswith("cache") else "AVATAR_SERVER_DATA"
        if not os.access(there, os.W_OK | os.X_OK):
            yield failed(
                name,
                f"{folder} cannot be written to",
                f"Set {variable} to a folder that this user may write to.",
            )
        elif free < ROOM_BYTES:
            yield failed(
                name,
                f"{folder}: {free / 1e9:.1f} GB free",
                f"Make room, or set {variable} to a folder on another disk.",
            )
        else:
            yield passed(name, f"{folder}: {free / 1e9:.0f} GB free")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < OPEN_FILES:
        yield failed(
            "open files",
            f"at most {soft} (may be raised to {hard})",
            f"Start the server after 'ulimit -n {OPEN_FILES}', or set LimitNOFILE={OPEN_FILES} in "
            "its systemd unit.",
        )
    else:
        yield passed("open files", "unlimited" if soft == resource.RLIM_INFINITY else str(soft))


def recordings(settings: Settings) -> Iterator[Check]:
    """Whether sessions can be recorded, where all of them are to be."""
    recording = settings.recording
    if not recording.enabled:
        yield passed("recordings", "off, unless a launch asks for one")
        return
    there = recording.path
    while not there.exists():
        there = there.parent
    free_gb = shutil.disk_usage(there).free / 1e9
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        yield failed(
            "recordings",
            f"{recording.path} cannot be written to",
            "Set recording.folder to a folder that this user may write to.",
        )
    elif free_gb < recording.keep_free_gb:
        yield failed(
            "recordings",
            f"{recording.path}: {free_gb:.1f} GB free, and recording stops below "
            f"{recording.keep_free_gb:g} GB",
            "Make room, set recording.folder to another disk, or lower recording.keep_free_gb.",
        )
    else:
        yield passed("recordings", f"into {recording.path}: {free_gb:.0f} GB free")


def clock(now_s: float | None = None) -> Iterator[Check]:
    """The wall clock, on which certificates and TURN credentials depend."""
    now = time.time() if now_s is None else now_s
    found = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(now))
    if now < EARLIEST:
        yield failed("clock", found, "Set the clock, and keep it with NTP.")
    else:
        yield passed("clock", found)


def priority(settings: Settings) -> Iterator[Check]:
    """Whether inference can be given a lower priority than the avatars."""
    wanted = settings.inference.sched
    if wanted == "normal" and settings.inference.nice == 0:
        yield passed("priority", "inference runs at equal priority, as configured")
        return
    policy = {"batch": "SCHED_BATCH", "idle": "SCHED_IDLE"}.get(wanted)
    if policy is not None and not hasattr(os, policy):
        yield failed(
            "priority",
            f"this system has no {policy}",
            "Set inference.sched to normal; frames may come late while models compute.",
        )
    else:
        yield passed(
            "priority", f"inference runs at nice {settings.inference.nice}, {wanted} scheduling"
        )
