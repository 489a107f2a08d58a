"""One recording as it is written: a movie, captions beside it, a log of turns."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import av
import msgspec
import numpy as np
from numpy.typing import NDArray

from avatar_server.avatar.pacing import VIDEO_CLOCK_HZ
from avatar_server.protocol.messages import TurnTrace
from avatar_server.recording import files
from avatar_server.recording.captions import WEBVTT_HEADER, Cue, webvtt_cue
from avatar_server.recording.mixer import SAMPLE_RATE_HZ, Mixer
from avatar_server.recording.movie import AAC_FRAME, Movie, parameter_sets

_SOUND_DELAY_S = 0.3
"""Viewers' sound of a moment comes about as late as the network holds it up: so long is waited."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What is recorded."""

    session: str
    avatar: str
    title: str
    viewer_sound: bool
    viewer_text: bool


class Part:
    """One recording. Moments are seconds (or ticks) of the session's media time.

    Raises `OSError` or `av.FFmpegError` where something cannot be written. Used from one thread.
    """

    def __init__(
        self, parent: Path, subject: Subject, keyframe: bytes, ticks: int, now: float, fps: int
    ) -> None:
        """Begins with the picture `keyframe` at `ticks`; `now` is the Unix time of that picture."""
        self.began_at = ticks / VIDEO_CLOCK_HZ
        self._ticks, self._last_ticks = ticks, ticks - 1
        self._subject = subject
        self._viewers: set[str] = set()
        self._mixer = Mixer(ticks * SAMPLE_RATE_HZ // VIDEO_CLOCK_HZ)
        self._heard_until = self._mixer.position
        self._unix = now
        self._open: list[IO[bytes]] = []
        self.folder = files.make_folder(parent, subject.session, now)
        try:
            movie = self._new(files.MOVIE)
            files.claim(movie)
            self._captions = self._new(files.CAPTIONS)
            self._captions.write(WEBVTT_HEADER.encode())
            self._turns = self._new(files.TURNS)
            self._movie = Movie(movie, keyframe, fps)
            files.write_about(self.folder, self._about(None, {}, ""))
        except BaseException:
            self._close_files()
            raise

    def fits(self, keyframe: bytes) -> bool:
        """Whether a keyframe has the size, and all else, that this file was begun with."""
        return parameter_sets(keyframe) == self._movie.parameters

    def picture(self, access_unit: bytes, ticks: int, keyframe: bool) -> None:
        """The next picture."""
        if ticks <= self._last_ticks:
            return
        self._last_ticks = ticks
        self._movie.add_picture(access_unit, ticks - self._ticks, keyframe)

    def avatar_sound(self, at: int, pcm: NDArray[np.int16]) -> None:
        """A block of the avatar's sound, from sample `at` of media time on."""
        self._mixer.add_avatar(at, pcm)
        self._heard_until = max(self._heard_until, at + len(pcm))

    def viewer_sound(self, viewer: str, at: float, pcm: NDArray[np.int16]) -> None:
        """A piece of a viewer's sound (mono, 16 kHz) that came at `at`."""
        self._mixer.add_viewer(viewer, round(at * SAMPLE_RATE_HZ), pcm)

    def viewer(self, viewer: str) -> None:
        """Somebody is there."""
        self._viewers.add(viewer)

    def viewer_gone(self, viewer: str) -> None:
        """Somebody has left."""
        self._mixer.forget(viewer)

    def mix(self) -> None:
        """Write the sound that nothing more will come for."""
        settled = self._heard_until - round(_SOUND_DELAY_S * SAMPLE_RATE_HZ)
        until = settled - (settled - self._mixer.position) % AAC_FRAME
        if until > self._mixer.position:
            self._movie.add_sound(self._mixer.take(until))

    def caption(self, cue: Cue) -> None:
        """A cue, in media time."""
        moved = cue.moved(-self.began_at)
        if moved.end <= 0:
            return
        if moved.start < 0:
            moved = Cue(0.0, moved.end, moved.who, moved.text)
        self._movie.add_caption(moved)
        self._captions.write(webvtt_cue(moved).encode())

    def turn(self, at: float, trace: TurnTrace) -> None:
        """A turn is over that began (with the viewer's last voiced sample) at `at`."""
        file_s = at - self.began_at
        line = {
            "turn": trace.turn,
            "at_s": round(file_s, 3),
            "time": files.utc(self._unix + file_s),
            "kind": trace.kind,
            "who": trace.viewer,
            "viewer_text": trace.viewer_text if self._subject.viewer_text else None,
            "reply_text": trace.reply_text,
            "outcome": trace.outcome,
            "voice_to_voice_ms": trace.voice_to_voice_ms,
            "acknowledged_ms": trace.acknowledged_ms,
            "stages_ms": {
                s.stage: [round(s.start * 1e3, 1), round(s.end * 1e3, 1)] for s in trace.stages
            },
            "overran": trace.overran,
        }
        self._turns.write(msgspec.json.encode(line) + b"\n")

    @property
    def length_s(self) -> float:
        """Seconds from the first to the last picture."""
        return max(0, self._last_ticks - self._ticks) / VIDEO_CLOCK_HZ

    def close(self, dropped: Mapping[str, int], stopped_because: str = "") -> None:
        """Complete the files, as far as they can be."""
        try:
            if not stopped_because:
                self._movie.add_sound(self._mixer.take(self._heard_until))
            self._movie.close()
            files.write_about(self.folder, self._about(time.time(), dropped, stopped_because))
        except (OSError, av.FFmpegError):
            # On a full disk there may yet be room for these few bytes.
            with contextlib.suppress(OSError):
                files.write_about(self.folder, self._about(time.time(), dropped, stopped_because))
            if not stopped_because:
                raise
        finally:
            self._close_files()

    def _new(self, name: str) -> IO[bytes]:
        file = files.open_private(self.folder / name)
        self._open.append(file)
        return file

    def _close_files(self) -> None:
        for file in self._open:
            with contextlib.suppress(OSError):
                file.close()
        self._open.clear()

    def _about(
        self, ended: float | None, dropped: Mapping[str, int], stopped_because: str
    ) -> files.About:
        subject = self._subject
        return files.About(
            id=self.folder.name,
            session=subject.session,
            avatar=subject.avatar,
            title=subject.title,
            began=files.utc(self._unix),
            ended=None if ended is None else files.utc(ended),
            duration_s=round(self.length_s, 3),
            width=self._movie.width,
            height=self._movie.height,
            viewers=len(self._viewers),
            viewer_sound=subject.viewer_sound,
            viewer_text=subject.viewer_text,
            dropped=dict(dropped),
            stopped_because=stopped_because,
        )
