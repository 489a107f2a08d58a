"""A talk made by hand for the recorder: the product's own encoder, a beep with each flash."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray

from avatar_server.avatar.encoder import H264Encoder
from avatar_server.avatar.packets import EncodedVideo
from avatar_server.config import RecordingSettings, VideoSettings
from avatar_server.recording.part import Subject
from avatar_server.recording.recorder import MOST_WAITING, Recorder
from renderers.contract import I420Frame

FPS, RATE = 30, 48_000
SUBJECT = Subject("abc123", "theo", "Theo", viewer_sound=True, viewer_text=True)


def video(width: int = 320, height: int = 180) -> VideoSettings:
    return VideoSettings(width=width, height=height, preset="ultrafast")


class Film:
    """Pictures at 30 fps: white in the first tenth of every second, else grey."""

    def __init__(self, settings: VideoSettings | None = None, first: int = 0) -> None:
        settings = settings or video()
        self._encoder = H264Encoder(settings, "full")
        self._frame = I420Frame.empty(settings.width, settings.height)
        self.number = first

    def next(self, keyframe: bool = False) -> EncodedVideo:
        self._frame.data[:] = 128
        self._frame.y[:] = 235 if self.number % FPS < 3 else 60
        made = self._encoder.encode(self._frame, self.number * 3_000, keyframe)
        self.number += 1
        return made

    def close(self) -> None:
        self._encoder.close()


def beep(at: int, samples: int) -> NDArray[np.int16]:
    """A tone in the first tenth of every second."""
    t = np.arange(at, at + samples)
    return (np.sin(2 * np.pi * 440 * t / RATE) * 12_000 * (t % RATE < RATE // 10)).astype(np.int16)


class Told:
    def __init__(self) -> None:
        self.keyframes = 0
        self.failures: list[str] = []
        self.failed = threading.Event()

    def keyframe(self) -> None:
        self.keyframes += 1

    def fail(self, reason: str) -> None:
        self.failures.append(reason)
        self.failed.set()


def recorder(
    folder: Path, told: Told | None = None, subject: Subject = SUBJECT, **settings: Any
) -> Recorder:
    told = told or Told()
    values = {"folder": folder, "keep_free_gb": 0.0, **settings}
    return Recorder(
        RecordingSettings(**values), subject, FPS, lambda t: 1_700_000_000 + t,
        told.keyframe, told.fail,
    )  # fmt: skip


def feed(
    to: Recorder,
    film: Film,
    seconds: float,
    *,
    each: Callable[[int, Recorder], None] = lambda number, to: None,
) -> None:
    """`seconds` of picture and the avatar's sound, as fast as they are taken."""
    for _ in range(round(seconds * FPS)):
        number = film.number
        to.picture(film.next(keyframe=number % 150 == 0))
        for block in range(2 if number % 3 else 1):
            # 5 blocks of 20 ms in 3 frames.
            at = (number // 3 * 5 + (0 if number % 3 == 0 else 2 * (number % 3) - 1) + block) * 960
            to.avatar_sound(at, beep(at, 960))
        each(number, to)
        while len(to._items) > MOST_WAITING // 2:
            time.sleep(0.01)


def only(folder: Path) -> Path:
    found = [path for path in folder.iterdir() if path.is_dir()]
    assert len(found) == 1, found
    return found[0]


def luma(path: Path) -> list[tuple[float, float]]:
    """(s, mean luma) of every picture."""
    with av.open(str(path)) as container:
        return [
            (float(f.pts * f.time_base), float(f.to_ndarray()[: f.height].mean()))
            for f in container.decode(video=0)
        ]


def channels(path: Path) -> NDArray[np.float32]:
    """The sound: shape (2, samples), 48 kHz, from time 0 on."""
    with av.open(str(path)) as container:
        frames = list(container.decode(audio=0))
    assert frames[0].pts == 0
    return np.concatenate([frame.to_ndarray() for frame in frames], axis=1)
